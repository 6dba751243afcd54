package listen_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"sluice/edge/edgetest"
	"sluice/edge/front"
)

// crowded is what a connection above the cap is told.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

// One source cannot take all connections; others are served.
func TestConnectionsPerSource(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {connections_per_source: 3}")
	for range 3 {
		if resp, _ := e.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
	}
	if got := e.Raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); got != "" {
		t.Errorf("a fourth connection got %q", got)
	}
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", e.Addr)
	edgetest.Must(t, err)
	defer other.Close()
	_, _ = io.WriteString(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("another source: %v", err)
	}
	if m := e.Metrics(); m["sluice_connections_refused_total{cap=source}"] == 0 {
		t.Errorf("metrics: %v", m)
	}
}

// A connection above the cap on all gets an answer that says so; far above it, there is none.
func TestConnectionsInAll(t *testing.T) {
	o := edgetest.StartSlowOrigin(t, 200)
	e := o.Edge(t, "limits: {connections: 2}")
	first := e.Talk()
	for _, c := range []*edgetest.Talk{first, e.Talk()} { // with requests under way: nobody may go to make room
		o.Keep(c)
	}
	if got := e.Raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); got != crowded {
		t.Errorf("a third connection got %q", got)
	}
	edgetest.Reset(first.Conn)
	edgetest.Until(t, "there is room again", func() bool { return e.Connections() == 1 })
	if resp, _ := e.Get("/"); resp.StatusCode != 200 {
		t.Error(resp.StatusCode)
	}
	o.Release()
	if m := e.Rest(); m["sluice_connections_refused_total{cap=total}"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// A connection above the cap is closed a second after its answer, also if its proxy then begins to say whose it is.
func TestCrowdedProxyDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := edgetest.MemoryServer(t, nil, "source: {trust: ['::'], proxy_protocol: true}\nlimits: {header_timeout: 10s}") // a pipe has no address
		var got []byte
		took := edgetest.ServeAlone(s, func(c *front.Client) { c.OverCap = true }, func(client net.Conn) {
			got = make([]byte, len(crowded))
			_, _ = io.ReadFull(client, got)
			_, _ = io.WriteString(client, "PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\n")
		})
		if string(got) != crowded || took != front.LingerTime {
			t.Errorf("%q, closed after %v", got, took)
		}
	})
}
