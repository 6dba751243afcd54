package edge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/rules"
)

// So many at once, and no block for who is refused. A request that is over the limit as well gets that answer.
func TestConcurrency(t *testing.T) {
	h := edgetest.StartHolder(t, `
source: {trust: [127.0.0.1]}
rules:
- {name: slow, match: {path: /slow}, concurrency: 2}
- {name: both, match: {path: /both}, limit: 4, window: 1h, concurrency: 1, response: {status: 503, body: busy}}
- {name: shadow, match: {path: /shadow}, mode: shadow, concurrency: 1}
`)
	refused := func(path, status, policy, limit, body string) {
		t.Helper()
		resp, text := h.Get(path)
		for name, want := range map[string]string{"RateLimit-Policy": policy, "RateLimit": limit, "Retry-After": "1", "Cache-Control": "no-store", "X-RateLimit-Remaining": "0"} {
			if got := resp.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
		if !strings.HasPrefix(resp.Status, status) || resp.Close || text != body {
			t.Errorf("%s: %s, close %v, %s", path, resp.Status, resp.Close, text)
		}
	}
	h.Hold("/slow")
	h.Hold("/slow")
	slow := `{"error":{"code":"rate_limited","rule":"slow","limit":2,"scope":"source","message":"Too many requests. Try again in 1 second.","retry_after":1}}` + "\n"
	for range 3 {
		refused("/slow", "429", `"slow";q=2;qu="concurrent-requests"`, `"slow";r=0;t=1`, slow)
	}
	h.Hold("/slow", "X-Forwarded-For: 192.0.2.1")
	h.Hold("/both")
	refused("/both", "503", `"both";q=4;w=3600, "both/concurrency";q=1;qu="concurrent-requests"`, `"both/concurrency";r=0;t=1`, "busy")
	h.Hold("/shadow")
	h.Hold("/shadow")
	h.AwaitInFlight("slow", 3)
	h.AwaitInFlight("both", 1)
	h.AwaitInFlight("shadow", 1)
	for _, test := range []struct {
		source string
		want   []control.SourceState
	}{
		{"127.0.0.1", []control.SourceState{
			{Rule: "slow", Mode: rules.Enforce, Places: &control.Places{Held: 2, Here: 2, Limit: 2}},
			{Rule: "both", Mode: rules.Enforce, Estimate: 1, Limit: 4, Remaining: 3, Places: &control.Places{Held: 1, Here: 1, Limit: 1}},
			{Rule: "shadow", Mode: rules.Shadow, Places: &control.Places{Held: 1, Here: 1, Limit: 1}}}},
		{"192.0.2.1", []control.SourceState{
			{Rule: "slow", Mode: rules.Enforce, Places: &control.Places{Held: 1, Here: 1, Limit: 2}},
			{Rule: "both", Mode: rules.Enforce, Limit: 4, Remaining: 4, Places: &control.Places{Limit: 1}},
			{Rule: "shadow", Mode: rules.Shadow, Places: &control.Places{Limit: 1}}}},
	} {
		for i := range test.want {
			test.want[i].Source = test.source
		}
		if diff := cmp.Diff(test.want, h.Look(t.Context(), netip.MustParseAddr(test.source)).Rules); diff != "" {
			t.Error(diff)
		}
	}
	h.End(6)
	for _, rule := range []string{"slow", "both", "shadow"} {
		h.AwaitInFlight(rule, 0)
	}
	h.Hold("/slow")
	h.Hold("/slow")
	h.End(2)
	for _, c := range h.Held {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 || strings.Contains(resp.Header.Get("RateLimit"), "slow") {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	m := h.Rest()
	for name, want := range map[string]float64{"sluice_requests_total{rule=slow,verdict=pass}": 5, "sluice_requests_total{rule=slow,verdict=limited}": 3,
		"sluice_requests_total{rule=both,verdict=limited}": 1, "sluice_requests_total{rule=shadow,verdict=shadow}": 1, "sluice_mitigations_started_total{by=edge,mode=enforce,rule=slow}": 0} {
		if got := m[name]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Thousands of requests that end in all ways that there are, over a reload every few milliseconds, leave nothing.
func TestNothingStaysInFlight(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var conns sync.Map
	go func() { // an origin that does what the path says
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(nc, true)
			go func() {
				defer nc.Close()
				c := &edgetest.Talk{Conn: nc}
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					_, path, _ := strings.Cut(string(buf[:n]), " ")
					switch {
					case strings.HasPrefix(path, "/drop"):
						return
					case strings.HasPrefix(path, "/half"):
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
						return
					case strings.HasPrefix(path, "/garbage"):
						_, _ = io.WriteString(c, "what?\r\n\r\n")
						return
					case strings.HasPrefix(path, "/wait"):
						_, _ = c.Read(buf) // until the edge gives up
						return
					case strings.HasPrefix(path, "/tunnel"):
						_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
						_, _ = io.Copy(c, c)
						return
					default:
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}
			}()
		}
	}()
	const shared = `
source: {trust: [127.0.0.1]}
limits: {body_bytes: 1KiB}
rules:
- {name: slow, concurrency: %d}
- {name: by-path, key: path, concurrency: 1000}
- {name: refuses, match: {path: /refused}, limit: 1, window: 1h, mitigation_timeout: 0}
`
	yaml := fmt.Sprintf("origins: [{servers: ['http://%s'], timeout: 5s, shedding: {min: 8, max: 8}}]", ln.Addr())
	e := edgetest.Start(t, "", yaml+fmt.Sprintf(shared, 30))
	var left atomic.Int64
	left.Store(3000)
	statuses := make([]atomic.Int64, 600)
	var all sync.WaitGroup
	for worker := range 12 {
		all.Go(func() {
			for i := worker; left.Add(-1) >= 0; i++ {
				nc, err := net.Dial("tcp", e.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
				head := func(path string, more ...string) string {
					return "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + edgetest.Lines(more) + "\r\n"
				}
				read := func() {
					answer, _ := io.ReadAll(nc)
					status := 0
					if _, err := fmt.Sscanf(string(answer), "HTTP/1.1 %d ", &status); err == nil {
						statuses[status].Add(1)
					}
				}
				say := func(text string) { _, _ = io.WriteString(nc, text) }
				switch i % 13 {
				case 0, 1, 2:
					say(head("/"))
					read()
				case 3:
					say(head("/drop"))
					read()
				case 4:
					say(head("/half"))
					read()
				case 5:
					say(head("/garbage"))
					read()
				case 6: // the client goes away while its origin is at work
					say(head("/wait"))
					_ = nc.(*net.TCPConn).SetLinger(0)
				case 7: // or before its body is there
					say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
					_ = nc.(*net.TCPConn).SetLinger(0)
				case 8:
					say(strings.Replace(edgetest.UpgradeGet, "/chat", "/tunnel", 1) + "hello")
					_, _ = io.ReadAtLeast(nc, make([]byte, 200), 20)
				case 9:
					say(head("/refused"))
					read()
				case 10: // a body that is refused, and never comes
					say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")
					_ = nc.(*net.TCPConn).SetLinger(0)
				case 11: // several, the last of which is broken
					say("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /drop HTTP/1.1\r\nHost: a\r\n\r\nGET  / HTTP/1.1\r\n\r\n")
					read()
				case 12:
					say(head("/", "X-Forwarded-For: 192.0.2.9"))
					read()
				}
				nc.Close()
				if i%50 == 0 {
					c := edgetest.Parse(t, yaml+fmt.Sprintf(shared, 20+i%20))
					if err := e.Apply(c); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true }) // and tunnels whose clients are gone
	e.Rest()
	e.AwaitInFlight("slow", 0)
	e.AwaitInFlight("by-path", 0)
	for status, least := range map[int]int64{200: 20, 429: 20, 502: 10, 503: 1} {
		if n := statuses[status].Load(); n < least {
			t.Errorf("only %d answers were %d: the test does not test", n, status)
		}
	}
	if _, keys := e.Limiter().InFlight.Held(); keys != 0 {
		t.Errorf("%d keys are left", keys)
	}
}

// A fault in the edge gives places back, wherever it is; a tunnel holds its own until it ends.
func TestInFlightOfFaultsAndTunnels(t *testing.T) {
	url, heads := edgetest.StartEcho(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	e := edgetest.Start(t, url, "rules: [{name: slow, concurrency: 1}, {name: r, limit: 1000, first_sight: wait}]")
	c := e.Talk()
	_, _ = io.WriteString(c, edgetest.UpgradeGet)
	<-heads
	if resp, _ := e.Get("/"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("beside a tunnel: %d", resp.StatusCode)
	}
	e.AwaitInFlight("slow", 1)
	c.Close()
	e.AwaitInFlight("slow", 0)

	e.Limiter().Fetch = func(*algorithm.Spec, counter.Source) {}
	counters := e.Limiter().Counters
	e.Limiter().Counters = nil // places are taken, and then there is a fault
	if resp, _ := e.Get("/"); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("a fault: %d", resp.StatusCode)
	}
	e.Limiter().Counters = counters
	e.AwaitInFlight("slow", 0)
}
