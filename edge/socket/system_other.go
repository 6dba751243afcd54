//go:build !linux || race

package socket

import "syscall"

func systemRead(fd uintptr, p []byte) (int, error)  { return system(syscall.Read, fd, p) }
func systemWrite(fd uintptr, p []byte) (int, error) { return system(syscall.Write, fd, p) }

func system(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		if n, err := call(int(fd), p); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// systemPeek reads a byte and leaves it there.
func systemPeek(fd uintptr) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return max(n, 0), err
}
