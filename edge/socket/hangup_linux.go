package socket

import (
	"syscall"
	"unsafe"
)

const (
	pollErr   = 0x8
	pollHup   = 0x10
	pollRdHup = 0x2000
)

// systemHangup uses poll(2), which sees an end behind unread bytes. It does not wait.
func systemHangup(fd uintptr) Hangup {
	p := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: pollRdHup}
	var none syscall.Timespec
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1,
		uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	switch {
	case n != 1:
		return Open
	case p.revents&(pollErr|pollHup) != 0:
		return Reset
	}
	return Closed
}
