package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sluice/edge/listen"
	"sluice/edge/screen"
	"sluice/edge/socket"
	"testing"
	"time"
)

// In a siege the connections of a shed peer are closed, each once, and another peer's is accepted as ever; the siege ends
// with it. A listener stops in a siege as it does without one, and leaves nothing that listens.
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
	l := &listen.Listener{Listener: ln, Ended: make(chan struct{}), Registry: registryWith(t, screen.Limits{PerSource: 10}, func(peer netip.Addr) bool { knocks[peer]++; return peer == bad })}
	knock := func(from netip.Addr) net.Conn {
		t.Helper()
		d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
		c, err := d.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
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
		defer time.AfterFunc(10*time.Second, l.Stop).Stop()
		c, err := l.AcceptClient()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, ok := socket.Innermost(c).(*net.TCPConn); !ok || c.Peer != good {
			t.Errorf("accepted %T of %v", c.Raw, c.Peer)
		}
		return c
	}

	for _, n := range []int{1, listen.ShedInARow, listen.ShedInARow + 1, listen.ShedInARow + 2*listen.ShedAtOnce + 1} {
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
		if l.Siege.File.Load() != nil || l.Siege.Shed != 0 {
			t.Errorf("the siege goes on: %+v", &l.Siege)
		}
		if _, err := io.WriteString(client, "a"); err != nil {
			t.Fatal(err)
		}
		if n, err := server.(*screen.Client).Raw.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("of a good connection: %d bytes, %v", n, err)
		}
	}

	done := make(chan error, 1)
	go func() {
		_, err := l.AcceptClient()
		done <- err
	}()
	var list []net.Conn
	for range listen.ShedInARow + 1 {
		list = append(list, knock(bad))
	}
	closed(list)
	if l.Siege.File.Load() == nil {
		t.Fatal("no siege")
	}
	l.Stop()
	select {
	case err := <-done:
		if err != io.EOF {
			t.Errorf("stopped: %v, want io.EOF", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not stop")
	}
	again, err := net.Listen("tcp", ln.Addr().String())
	if err != nil {
		t.Fatalf("something listens yet: %v", err)
	}
	again.Close()
}

// A server counts what it sheds in a siege, and serves others.
func TestSiegeOfServer(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "shed: connection\nrules: [{name: r, limit: 1, window: 1h}]")
	for range 2 {
		e.talk().say("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the second begins the mitigation
	}
	const n = 2 * listen.ShedInARow
	for round := 1; round <= 2; round++ {
		for range n {
			if got := e.raw(plainGet); got != "" {
				t.Fatalf("a shed connection got %q", got)
			}
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+round))}}
		c, err := d.Dial("tcp", e.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		good := &talk{t, c, bufio.NewReader(c)}
		if resp, _ := good.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
			t.Errorf("another source: %d", resp.StatusCode)
		}
		if got := e.metrics()["sluice_connections_refused_total{cap=mitigated}"]; got != float64(round*n) {
			t.Errorf("%v shed, want %d", got, round*n)
		}
	}
}
