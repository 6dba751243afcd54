package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/edge/edgetest"
)

// A stopped origin is one that can be started: nobody listens at its address until then.
type stopped struct {
	network, Addr, URL string
}

func stoppedOrigins(t *testing.T) []stopped {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.83:0")
	edgetest.Must(t, err)
	ln.Close()
	path := filepath.Join(t.TempDir(), "origin")
	return []stopped{{"tcp", ln.Addr().String(), "http://" + ln.Addr().String()}, {"unix", path, "unix:" + path}}
}

func (o stopped) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen(o.network, o.Addr)
	edgetest.Must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })}
	t.Cleanup(func() { s.Close() })
	go s.Serve(ln)
}

// While its origin is started again nobody's request fails, whatever it is.
func TestOriginRestart(t *testing.T) {
	for _, o := range stoppedOrigins(t) {
		t.Run(o.network, func(t *testing.T) {
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL))
			const n = 9
			var all sync.WaitGroup
			for i := range n {
				request := []string{
					"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
					"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
				}[i%3]
				c := e.Talk()
				all.Go(func() {
					if resp, body := c.Say(request); resp.StatusCode != 200 || request[0] == 'P' && body != "abc" {
						t.Errorf("%d %s", resp.StatusCode, body)
					}
				})
			}
			edgetest.Until(t, "all have tried", func() bool { return e.Metrics()["sluice_origin_attempts_total{origin="+o.URL+"}"] >= n })
			o.start(t)
			all.Wait()
			if m := e.Rest(); m["sluice_origin_up{origin="+o.URL+"}"] != 1 {
				t.Errorf("%v", m)
			}
		})
	}
}

// An origin that stays away has failed once for each request.
func TestOriginStaysAway(t *testing.T) {
	for _, o := range stoppedOrigins(t) {
		t.Run(o.network, func(t *testing.T) {
			t.Parallel()
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL))
			resp, body := e.Get("/")
			if n := e.Upstreams().All[0].Failures.Load(); resp.StatusCode != 502 || !strings.Contains(body, `"origin_unreachable"`) || n != 1 {
				t.Errorf("%d %s after %d failures", resp.StatusCode, body, n)
			}
			if m := e.Rest(); m["sluice_origin_attempts_total{origin="+o.URL+"}"] != 1 {
				t.Errorf("%v", m)
			}
		})
	}
}

// All servers of a group are started again: the first that is back has the requests.
func TestRestartOfAllServers(t *testing.T) {
	o, dead := stoppedOrigins(t)[0], stoppedOrigins(t)[0]
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q, %q]}]", o.URL, dead.URL))
	first, second := e.Talk(), e.Talk()
	for _, c := range []*edgetest.Talk{first, second} { // whichever comes first
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	edgetest.Until(t, "both have tried both", func() bool {
		m := e.Metrics()
		return m["sluice_origin_attempts_total{origin="+o.URL+"}"] == 2 && m["sluice_origin_attempts_total{origin="+dead.URL+"}"] == 2
	})
	o.start(t)
	for _, c := range []*edgetest.Talk{first, second} {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}

// A client that leaves is not waited for: it is done with before one that came earlier and stays.
func TestLeaverEndsItsWait(t *testing.T) {
	o := stoppedOrigins(t)[0]
	e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL))
	tried := func(n float64) {
		edgetest.Until(t, "it has tried", func() bool { return e.Metrics()["sluice_origin_attempts_total{origin="+o.URL+"}"] == n })
	}
	stays, leaves := e.Talk(), e.Talk()
	_, _ = io.WriteString(stays, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	tried(1)
	_, _ = io.WriteString(leaves, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	tried(2)
	_ = leaves.Conn.(*net.TCPConn).SetLinger(0)
	leaves.Close()
	edgetest.Until(t, "one is done with", func() bool {
		m := e.Metrics()
		return m["sluice_aborted_total"]+m["sluice_answers_total{code=502,from=edge}"] > 0
	})
	o.start(t)
	if resp, body := stays.Hear("GET"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	e.Rest()
}
