package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"sluice/edge/edgetest"
	"sluice/edge/listen"
)

// A connection on which an origin answered a request that it has not taken whole is not used again: what comes next would be
// its rest.
func TestHalfTakenRequestEndsTheLink(t *testing.T) {
	for _, takes := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s := edgetest.MemoryServer(t, &edgetest.Hasty{Takes: takes, Answer: "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"}, "")
			client := &edgetest.Sender{Sends: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", Most: 1000}
			s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
			all, _ := client.Answers("GET")
			if idle := len(s.Upstreams().All[0].Idle); len(all) != 1 || all[0] != 431 || idle != takes/1000 {
				t.Errorf("%d bytes taken: answers %d, %d connections kept", takes, all, idle)
			}
		})
	}
}

// What has come of a body goes on while the client is silent, though chunks that came together go on together.
func TestBodiesAreNotHeldBack(t *testing.T) {
	seen := make(chan string)
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 3)
		for {
			n, err := io.ReadFull(r.Body, buf)
			if n > 0 {
				seen <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	})
	e := edgetest.Start(t, origin, "")
	c := e.Talk()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1")
	if got := <-seen; got != "abc" {
		t.Errorf("%q", got)
	}
	_, _ = io.WriteString(c, "\r\nd\r\n2\r\nef\r\n")
	if got := <-seen; got != "def" {
		t.Errorf("%q", got)
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	if resp, _ := c.Hear("POST"); resp.StatusCode != 200 {
		t.Errorf("%d", resp.StatusCode)
	}
	e.Rest()
}

// Clients that send small bodies slowly hold nothing of the origin's: others are served meanwhile, and they themselves when they have
// done.
func TestSlowSmallBodiesTakeNoConnection(t *testing.T) {
	const most = 4
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], max_requests: %d}]", o.URL(), most))
	var slow [most]*edgetest.Talk
	for i := range slow {
		slow[i] = e.Talk()
		_, _ = io.WriteString(slow[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16384\r\n\r\nx")
	}
	e.AwaitReceived(most)
	for range 20 {
		if resp, body := e.Get("/"); resp.StatusCode != 200 {
			t.Fatalf("another client: %d %s", resp.StatusCode, body)
		}
	}
	if n := o.Connections(); n != 1 {
		t.Errorf("%d connections to the origin", n)
	}
	for _, c := range slow {
		if resp, body := c.Say(strings.Repeat("y", 16383)); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("a slow client: %d %s", resp.StatusCode, body)
		}
	}
	for _, got := range o.Requests()[20:] {
		if !strings.HasSuffix(got, "Content-Length: 16384\r\n\r\nx"+strings.Repeat("y", 16383)) {
			t.Errorf("the origin got %.200q", got)
		}
	}
	e.Rest()
}

// A small body that its client does not finish is no matter of the origin's.
func TestUnfinishedSmallBodyNeverReachesTheOrigin(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 200ms}")
	for name, test := range map[string]struct {
		End    func(c *net.TCPConn) error
		status string // "": there is no client for it
	}{
		"slow":        {func(*net.TCPConn) error { return nil }, "HTTP/1.1 408 "},
		"half closed": {(*net.TCPConn).CloseWrite, "HTTP/1.1 400 "},
		"gone":        {(*net.TCPConn).Close, ""},
		"reset": {func(c *net.TCPConn) error {
			_ = c.SetLinger(0)
			return c.Close()
		}, ""},
	} {
		before := int(e.Metrics()["sluice_received_total"])
		c := e.Dial().(*net.TCPConn)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
		e.AwaitReceived(before + 1)
		edgetest.Must(t, test.End(c))
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), test.status) {
			t.Errorf("%s: %q", name, got)
		}
		e.Rest()
	}
	if n, m := o.Connections(), e.Metrics(); n != 0 || m["sluice_origin_attempts_total{origin="+o.URL()+"}"] != 0 {
		t.Errorf("%d connections to the origin, %v", n, m)
	}
}
