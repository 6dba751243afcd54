package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// A source that holds its share of the slots gets that answer, and others are served; a reload changes nothing of it.
// Who is always allowed may have them all.
func TestOneSourceCannotTakeAllRequestSlots(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			arrived <- struct{}{}
			<-leave
		}
	})
	const from = "X-Forwarded-For: 192.0.2."
	e := edgetest.Start(t, "", fmt.Sprintf("source: {trust: [127.0.0.1]}\nallow: [192.0.2.9]\norigins: [{servers: [%q], max_requests: 7}]", origin))
	hold := func(source string) *edgetest.Talk {
		c := e.Talk()
		_, _ = io.WriteString(c, "GET /hold HTTP/1.1\r\nHost: a\r\n"+from+source+"\r\n\r\n")
		<-arrived
		return c
	}
	status := func(source string) int {
		resp, body := e.Get("/", from+source)
		if resp.StatusCode == 503 && (resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"origin_busy"`)) {
			t.Errorf("%v %s", resp.Header, body)
		}
		return resp.StatusCode
	}
	holding := []*edgetest.Talk{hold("1"), hold("1"), hold("1")}
	for range 2 {
		if a, b := status("1"), status("2"); a != 503 || b != 200 {
			t.Errorf("the source that holds three of seven: %d, another: %d", a, b)
		}
		edgetest.Must(t, e.Apply(e.Config()))
	}
	holding = append(holding, hold("9"), hold("9"), hold("9"))
	if got := status("9"); got != 200 {
		t.Errorf("who is always allowed: %d", got)
	}
	holding = append(holding, hold("3"))
	if got := status("4"); got != 503 {
		t.Errorf("with no place left: %d", got)
	}
	close(leave)
	for _, c := range holding {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
			t.Errorf("one that was held: %d", resp.StatusCode)
		}
	}
	if got := status("1"); got != 200 {
		t.Errorf("afterwards: %d", got)
	}
	e.Rest()
}

// However a request ends, it gives its source's place back.
func TestEveryRequestReleasesItsSlot(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, func(n int, request string) string {
		switch {
		case strings.Contains(request, "/upgrade"):
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x00"
		case strings.Contains(request, "/close"):
			return "\x00"
		case strings.Contains(request, "/cut"):
			return edgetest.OKHead + "Content-Length: 9\r\n\r\nabc\x00"
		case strings.Contains(request, "/early"):
			return edgetest.OKHead + "Content-Length: 3\r\nConnection: close\r\n\r\nabc\x00"
		}
		return edgetest.Hello(n, "")
	})
	e := edgetest.Start(t, "", fmt.Sprintf("limits: {header_timeout: 200ms}\norigins: [{servers: [%q], max_requests: 2}]", o.URL()))
	g := e.Upstreams().Any
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /close HTTP/1.1\r\nHost: a\r\n\r\n", "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\na",
		"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		c := e.Talk()
		_, _ = io.WriteString(c, request)
		_, _ = http.ReadResponse(c.R, nil)
		c.Close()
		e.Rest()
		edgetest.Until(t, "all places are free after "+request, func() bool {
			g.SourceSlots.Mu.Lock()
			defer g.SourceSlots.Mu.Unlock()
			return len(g.SourceSlots.BySource) == 0 && g.Servers[0].Active.Load() == 0
		})
	}
	if resp, body := e.Get("/"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	e.Rest()
}

// A server that has no room answers nobody else's requests late.
func TestOriginConcurrency(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	slow := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) { close(arrived); <-leave })
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], max_requests: 1, max_requests_per_source: 2}]", slow))
	first := e.Talk()
	_, _ = io.WriteString(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	if resp, body := e.Get("/"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, "origin_busy") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	close(leave)
	if resp, _ := first.Hear("GET"); resp.StatusCode != 200 {
		t.Errorf("the first: %d", resp.StatusCode)
	}
	e.Rest()
	if o := e.Upstreams().All[0]; o.Active.Load() != 0 {
		t.Errorf("%d under way at rest", o.Active.Load())
	}
}
