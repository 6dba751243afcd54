package closedloop

import (
	"net"
	"testing"
	"time"
)

// An edge that closes at accept may have reset the connection before the request is written. That is a refusal, and no end of the load.
func TestLoadIsShedBeforeItWrites(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			c.Close()
		}
	}()
	load := Load{Edge: ln.Addr().(*net.TCPAddr).AddrPort(), Conns: 64, Fresh: true, Shed: true, For: 300 * time.Millisecond}
	out, err := load.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out.Shed == 0 || out.Shed != out.Answers || out.Failed != 0 {
		t.Errorf("%d shed of %d answers, %d failed", out.Shed, out.Answers, out.Failed)
	}
}
