package memcached

import (
	"math/bits"
	"net"
	"syscall"
)

// lowMark sets how many bytes must have come before a connection is ready to be read (SO_RCVLOWAT,
// socket(7)). What is not a socket of the system it leaves alone.
type lowMark struct {
	socket syscall.RawConn
	bytes  int
}

func newLowMark(conn net.Conn) lowMark {
	m := lowMark{bytes: 1}
	if c, ok := conn.(syscall.Conn); ok {
		m.socket, _ = c.SyscallConn()
	}
	return m
}

// set sets n bytes or up to twice as many, which is a power of two, so that it seldom changes; 1 is
// 1.
func (m *lowMark) set(n int) {
	if n = 1 << bits.Len(uint(n-1)); n == m.bytes || m.socket == nil {
		return
	}
	m.bytes = n
	_ = m.socket.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
	})
}
