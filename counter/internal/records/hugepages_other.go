//go:build !linux

package records

func hugePages[P any]([]P) {}
