//go:build !linux

package records

func hugePages([]uint64) {}
