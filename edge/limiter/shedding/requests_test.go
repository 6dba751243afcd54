package shedding_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/events"
	"sluice/edge/limiter/shedding"
)

// ranks are rules that tell priorities by path. The first has no limit, and the others say the opposite of what a shadow and a silent rule say.
const ranks = `
source: {trust: [127.0.0.1]}
allow: [192.0.2.9]
rules:
- {name: crawlers, match: {path: /low*}, priority: sheddable}
- {name: pay, match: {path: "*/pay"}, limit: 1000000, priority: critical}
- {name: shadow, mode: shadow, limit: 1000000, priority: critical, queue: 10s}
- {name: silent, limit: 1000000}
- {name: patient, match: {path: /wait/*}, queue: 5s}
`

// Who is turned away first follows from the rules, and he is told in the form of all answers; everything is counted, and told to operators.
func TestSheddableRequestsGoFirst(t *testing.T) {
	log := events.New(10, nil)
	h := edgetest.StartHolder(t, ranks, func(o *edge.Options) { o.Events = log })
	at := time.Now()
	h.Sweep(at)
	shed := func(path string, header ...string) {
		t.Helper()
		c := h.Talk()
		for range 2 { // the connection stays
			resp, body := c.Say("GET " + path + " HTTP/1.1\r\nHost: a\r\n" + edgetest.Lines(header) + "\r\n")
			if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("Cache-Control") != "no-store" ||
				!strings.HasPrefix(body, `{"error":{"code":"overloaded","message":"`) {
				t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, body)
			}
		}
	}
	for range 5 {
		h.Hold("/low")
	}
	shed("/low")
	for range 3 {
		h.Hold("/")
	}
	shed("/")
	shed("/low/2")
	h.Hold("/low/pay")
	h.Hold("/", "X-Forwarded-For: 192.0.2.9")
	shed("/pay")
	shed("/", "X-Forwarded-For: 192.0.2.9")
	h.Sweep(at.Add(time.Second))
	h.Sweep(at.Add(5 * time.Second))
	m := h.Metrics()
	for name, want := range map[string]float64{"sluice_shedding_limit{hosts=*}": 10, "sluice_shedding_in_flight{hosts=*}": 10,
		"sluice_shed_total{hosts=*,priority=sheddable}": 4, "sluice_shed_total{hosts=*,priority=default}": 2, "sluice_shed_total{hosts=*,priority=critical}": 4,
		"sluice_requests_total{rule=crawlers,verdict=pass}": 10} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if o := h.Origins(at)[0]; o.Shedding == nil || o.Shedding.Limit != 10 || o.Shedding.InFlight != 10 || !o.Shedding.Now || o.Shedding.Shed["sheddable"] != 4 || o.Servers[0].Active != 10 {
		t.Errorf("%+v", o)
	}
	h.End(10)
	for _, c := range h.Held {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
			t.Errorf("one that was held: %d", resp.StatusCode)
		}
	}
	h.Rest()
	if s := h.Shedding(); s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	h.Sweep(at.Add(time.Hour))
	list := log.Since(0)
	if len(list) != 2 || list[1].New != "shedding" || list[0].New != "sound" || !strings.Contains(list[1].Text, "10 requests are under way") {
		t.Errorf("%+v", list)
	}
}

// Who may wait gets the next place, the last to come first; who has gone gets none.
func TestWaitingForASlot(t *testing.T) {
	h := edgetest.StartHolder(t, ranks)
	for range 8 {
		h.Hold("/")
	}
	first := h.Wait(t, "/wait/1", 1)
	gone := h.Wait(t, "/wait/gone", 2)
	edgetest.Reset(gone.Conn)
	edgetest.Until(t, "who has gone leaves", func() bool { return h.Shedding().Waiting == 1 })
	last := h.Wait(t, "/wait/2", 2)
	if resp, _ := h.Get("/"); resp.StatusCode != 503 {
		t.Errorf("who may not wait: %d", resp.StatusCode)
	}
	for _, want := range []string{"/wait/2", "/wait/1"} {
		h.End(1)
		if got := <-h.Arrived; got != want {
			t.Errorf("%s gets the place, want %s", got, want)
		}
	}
	h.End(8)
	for _, c := range append(h.Held, first, last) {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	h.Rest()
	if _, n, sum := h.Upstreams().Any.Waited.Snapshot(); n != 3 || sum <= 0 {
		t.Errorf("%d have waited, for %v s", n, sum)
	}
	if s := h.Shedding(); s.InFlight != 0 || s.Waiting != 0 || s.Shed[shedding.Default] != 1 {
		t.Errorf("%+v", s)
	}
}

// A client that has closed one direction waits for a place as others do, and as long.
func TestHalfClosedClientsWaitForASlot(t *testing.T) {
	h := edgetest.StartHolder(t, ranks)
	h.Registry().HalfClosed = 0
	for range 8 {
		h.Hold("/")
	}
	half := h.Wait(t, "/wait/half", 1)
	_ = half.Conn.(*net.TCPConn).CloseWrite()
	edgetest.Reset(h.Wait(t, "/wait/gone", 2).Conn) // when that is seen, the other has been looked at as well
	edgetest.Until(t, "who has gone leaves", func() bool { return h.Shedding().Waiting < 2 })
	if n := h.Shedding().Waiting; n != 1 {
		t.Fatalf("%d wait", n)
	}
	h.End(1)
	if got := edgetest.Receive(t, "one that waited is at the origin", h.Arrived); got != "/wait/half" {
		t.Errorf("%s gets the place", got)
	}
	h.End(8)
	for _, c := range append(h.Held, half) {
		if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}

// Who finds no place in his time is shed; there are no more waiters than the limit.
func TestWaitingEnds(t *testing.T) {
	h := edgetest.StartHolder(t, strings.Replace(ranks, "queue: 5s", "queue: 60ms", 1))
	for range 8 {
		h.Hold("/")
	}
	if resp, body := h.Get("/wait/1"); resp.StatusCode != 503 || !strings.Contains(body, `"overloaded"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	h.End(8)
	h.Rest()
	l := shedding.New(shedding.Config{Min: 3, Max: 3})
	for i := range 8 {
		entered, w := l.Enter(shedding.Critical, true, time.Now())
		if entered != (i < 3) || (w != nil) != (i >= 3 && i < 6) {
			t.Errorf("request %d: %v %v", i, entered, w)
		}
	}
}

// However a request ends, it gives its place back; a tunnel and an answer that is read slowly have none.
func TestSheddingReleasesItsSlots(t *testing.T) {
	o := edgetest.StartRecorder(t, func(n int, request string) string {
		switch {
		case strings.Contains(request, "/upgrade"):
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
		case strings.Contains(request, "/close"):
			return "\x00"
		case strings.Contains(request, "/slow"):
			return edgetest.OKHead + "Content-Length: 9\r\n\r\nabc"
		}
		return edgetest.Hello(n, "")
	})
	e := edgetest.Start(t, "", fmt.Sprintf("limits: {header_timeout: 200ms}\norigins: [{servers: [%q], shedding: {}}]", o.URL()))
	l := e.Upstreams().Any.Shedding
	for request, answered := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": true, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n": true, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n": true,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc": true, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na": true,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\na":                         false,
		"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n": true,
	} {
		c := e.Talk()
		_, _ = io.WriteString(c, request)
		if answered {
			_, _ = http.ReadResponse(c.R, nil)
		} else {
			edgetest.Until(t, "it is under way", func() bool { return e.Origins(time.Now())[0].Servers[0].Active == 1 })
			c.Close()
		}
		edgetest.Until(t, "its place is free after "+request, func() bool { return l.Status().InFlight == 0 }) // with the connection open
		c.Close()
	}
	if got := l.Status().Shed; got != ([shedding.Levels]uint64{}) {
		t.Errorf("%v", got)
	}
	// A reload keeps what is known.
	if err := e.Apply(e.Config()); err != nil || e.Upstreams().Any.Shedding != l {
		t.Errorf("after a reload it begins anew: %v", err)
	}
}

// While an origin waits for bodies it has nothing to do for them: they hold no place. Once they have come they do, as many as there are.
func TestSlowBodiesTakeNoSlot(t *testing.T) {
	h := edgetest.StartHolder(t, ranks)
	const clients, size = 15, 20_000
	for range clients {
		c := h.Talk()
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\na", size)
		<-h.Arrived
		edgetest.Until(t, "the origin waits for its body", func() bool { return h.Shedding().InFlight == 0 })
		h.Held = append(h.Held, c)
	}
	h.Hold("/low")
	for _, c := range h.Held[:clients] {
		_, _ = io.WriteString(c, strings.Repeat("b", size-1))
	}
	edgetest.Until(t, "all bodies have come", func() bool { return h.Shedding().InFlight == clients+1 })
	if resp, _ := h.Talk().Say("GET /pay HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 503 {
		t.Errorf("beside them: %d", resp.StatusCode)
	}
	h.End(clients + 1)
	for _, c := range h.Held {
		if resp, _ := c.Hear("POST"); resp.StatusCode != 200 {
			t.Errorf("one that was held: %d", resp.StatusCode)
		}
	}
	edgetest.Until(t, "all places are free", func() bool { return h.Shedding().InFlight == 0 })
}

// Errors are quick, and a long body comes as fast as its client sends it: neither tells how long an answer takes.
func TestSamplesThatSayNothingOfAnOrigin(t *testing.T) {
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], shedding: {}}]", edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/error" {
			w.WriteHeader(500)
		}
	})))
	base := func(request string) time.Duration {
		c := e.Talk()
		defer c.Close()
		for range 60 {
			c.Say(request)
		}
		return e.Upstreams().Any.Shedding.Status().Base
	}
	for _, request := range []string{"GET /error HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("x", 20_000)} {
		if got := base(request); got != 0 {
			t.Errorf("%.20q: %v", request, got)
		}
	}
	if base("GET / HTTP/1.1\r\nHost: a\r\n\r\n") <= 0 {
		t.Error("an answer says nothing either")
	}
}
