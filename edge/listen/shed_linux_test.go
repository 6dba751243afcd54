package listen_test

import (
	"bufio"
	"net"
	"testing"

	"sluice/edge/edgetest"
)

// A server counts what it sheds with its shedder, and serves others.
func TestConnectionShedderServesOthers(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "shed: connection\nrules: [{name: r, limit: 1, window: 1h}]")
	for range 2 {
		e.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the second begins the mitigation
	}
	const n = 16 // the shedder starts with the eighth in a row
	for round := 1; round <= 2; round++ {
		for range n {
			if got := e.Raw(edgetest.PlainGet); got != "" {
				t.Fatalf("a shed connection got %q", got)
			}
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+round))}}
		c, err := d.Dial("tcp", e.Addr)
		edgetest.Must(t, err)
		defer c.Close()
		good := &edgetest.Talk{T: t, Conn: c, R: bufio.NewReader(c)}
		if resp, _ := good.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
			t.Errorf("another source: %d", resp.StatusCode)
		}
		if got := e.Metrics()["sluice_connections_refused_total{cap=mitigated}"]; got != float64(round*n) {
			t.Errorf("%v shed, want %d", got, round*n)
		}
	}
}
