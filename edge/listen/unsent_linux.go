package listen

import (
	"net"
	"syscall"
)

const tcpNotsentLowat = 25 // TCP_NOTSENT_LOWAT, tcp(7)

// BoundUnsent bounds what the kernel holds of answers that clients do not take. Left alone it lets
// megabytes gather for a client that once was fast, and reports room only when a third of that has
// gone: one that reads slowly would seem to read nothing for minutes. Accepted connections inherit
// it from the socket that listens (one of multipath TCP does not pass it on).
func BoundUnsent(ln net.Listener) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, maxUnsent)
		})
	}
}

// maxUnsent is how much of its answer the kernel holds for a client that does not take it, in
// bytes. The kernel reports room when half of that is gone, which at a rate of 500 takes 33 s:
// within the pause that idle_timeout allows by default.
const maxUnsent = 32 << 10
