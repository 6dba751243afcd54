//go:build !linux

package counter

func hugePages[P any]([]P) {}
