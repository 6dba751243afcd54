//go:build !linux

package socket

import "syscall"

// systemHangup sees an end that has no bytes before it.
func systemHangup(fd uintptr) Hangup {
	switch n, err := systemPeek(fd); {
	case n > 0 || err == syscall.EAGAIN:
		return Open
	case err == nil:
		return Closed
	}
	return Reset
}
