package listen

import (
	"net"
	"syscall"
	"testing"
)

// Connections inherit the bound from the socket that listens, as long as that is of plain TCP.
func TestUnsentIsInherited(t *testing.T) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	BoundUnsent(ln)
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if cerr := raw.Control(func(fd uintptr) {
		got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if got != maxUnsent {
		t.Errorf("%d, want %d", got, maxUnsent)
	}
}
