//go:build !race

package edge

import (
	"syscall"
	"unsafe"
)

// System calls on sockets, which do not block. The scheduler does not hear of them; the race detector must: see system_other.go.

func systemRead(fd uintptr, p []byte) (int, error)  { return system(syscall.SYS_READ, fd, p) }
func systemWrite(fd uintptr, p []byte) (int, error) { return system(syscall.SYS_WRITE, fd, p) }

func system(call, fd uintptr, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
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
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
