package chaos

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// What a client gets of an answer of 0123456789 through a wire, and that the server has had its request: stories rely on both.
func TestWire(t *testing.T) {
	for how, want := range map[harm]string{
		mend: "0123456789", garble: "abc\r\n",
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		w, err := newWire(netip.MustParseAddrPort(ln.Addr().String()))
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		if err := w.harm(how, 0); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", w.addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(c, "request")
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		request := make([]byte, len("request"))
		if _, err := io.ReadFull(server, request); err != nil {
			t.Errorf("%s: the server had %q: %v", how, request, err)
		}
		io.WriteString(server, "0123456789")
		server.Close()
		if answer, err := io.ReadAll(c); err != nil || string(answer) != want {
			t.Errorf("%s: %q, %v; want %q", how, answer, err, want)
		}
	}
}
