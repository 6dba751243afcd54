package listen

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"sluice/edge/front"
	"sluice/edge/socket"
)

// While the shedder works the connections of a shed peer are closed, each once, and another peer's is accepted as ever; it stops
// with that one. A listener stops then as it does else, and leaves nothing that listens.
func TestSiege(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", ":0"} { // the second with IPv6, where there is that
		t.Run(at, func(t *testing.T) { testSiege(t, at) })
	}
}

func testSiege(t *testing.T, at string) {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	to := fmt.Sprintf("127.0.0.1:%d", ln.Addr().(*net.TCPAddr).Port)
	knocks := make(map[netip.Addr]int) // by Accept, one after the other
	good, bad := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	l := &Listener{Listener: ln, Ended: make(chan struct{}), Registry: registryWith(t, front.Limits{PerSource: 10}, func(peer netip.Addr) bool { knocks[peer]++; return peer == bad })}
	knock := func(from netip.Addr) net.Conn {
		t.Helper()
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
		c, err := d.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	closed := func(list []net.Conn) {
		t.Helper()
		for _, c := range list {
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Fatalf("a shed connection: %d bytes, %v", n, err)
			}
		}
	}
	accepted := func() net.Conn {
		t.Helper()
		defer time.AfterFunc(time.Minute, l.Stop).Stop()
		c, err := l.acceptClient()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, ok := socket.Innermost(c).(*net.TCPConn); !ok || c.Peer != good {
			t.Errorf("accepted %T of %v", c.Raw, c.Peer)
		}
		return c
	}

	for _, n := range []int{1, shedInARow, shedInARow + 1, shedInARow + 2*shedAtOnce + 1} {
		clear(knocks)
		var list []net.Conn
		for range n {
			list = append(list, knock(bad))
		}
		client := knock(good)
		server := accepted()
		closed(list)
		if knocks[bad] != n || len(knocks) != 2 {
			t.Errorf("%d connections to shed: %v", n, knocks)
		}
		if l.shedder.file.Load() != nil || l.shedder.shed != 0 {
			t.Errorf("the shedder goes on: %+v", &l.shedder)
		}
		if _, err := io.WriteString(client, "a"); err != nil {
			t.Fatal(err)
		}
		if n, err := server.(*front.Client).Raw.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("of a good connection: %d bytes, %v", n, err)
		}
	}

	done := make(chan error, 1)
	go func() {
		_, err := l.acceptClient()
		done <- err
	}()
	var list []net.Conn
	for range shedInARow + 1 {
		list = append(list, knock(bad))
	}
	closed(list)
	if l.shedder.file.Load() == nil {
		t.Fatal("the shedder rests")
	}
	l.Stop()
	select {
	case err := <-done:
		if err != io.EOF {
			t.Errorf("stopped: %v, want io.EOF", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not stop")
	}
	again, err := net.Listen("tcp", ln.Addr().String())
	if err != nil {
		t.Fatalf("something listens yet: %v", err)
	}
	again.Close()
}
