//go:build !race

package socket

import (
	"syscall"
	"unsafe"
)

// System calls on sockets, which do not block. They skip the scheduler; the race detector must see
// them: system_other.go. recvfrom and sendto are a tenth cheaper than read and write, which go by
// way of what sockets share with files, and a connection that is gone gives an error with them, and
// no signal.

func systemRead(fd uintptr, p []byte) (int, error) { return system(syscall.SYS_RECVFROM, fd, p, 0) }

func systemWrite(fd uintptr, p []byte) (int, error) {
	return system(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL)
}

func system(call, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// systemPeek reads a byte and leaves it there.
func systemPeek(fd uintptr) (int, error) {
	var b [1]byte
	return system(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}
