//go:build !linux

package edge

import "syscall"

// systemHangup sees an end that has no bytes before it.
func systemHangup(fd uintptr) hangup {
	switch n, err := systemPeek(fd); {
	case n > 0 || err == syscall.EAGAIN:
		return stillThere
	case err == nil:
		return wasClosed
	}
	return wasReset
}
