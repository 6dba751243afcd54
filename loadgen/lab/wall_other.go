//go:build !linux

package lab

// wallRefused is nothing where there is no wall.
func (s *Site) wallRefused() (uint64, error) { return 0, nil }
