package edge

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

	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/mitigation"
)

// apply puts other rules in force before the same origin.
func (e *edgeUnderTest) apply(rules string) error {
	e.t.Helper()
	c, err := config.Parse("reload.yaml", []byte(rules))
	if err != nil {
		return err
	}
	c.Origins = e.Config().Origins
	return e.Apply(c)
}

// What becomes of a count and of a mitigation when rules are read again.
func TestReload(t *testing.T) {
	const before = "rules: [{name: r, limit: 2, window: 1m, mitigation_timeout: 10m}, {name: other, match: {path: /x}, limit: 1}]"
	for _, test := range []struct {
		name, after string
		statuses    [2]int // of the source that had made 2 requests, and of the one that is mitigated
	}{
		{"the same", before, [2]int{429, 429}},
		{"reordered, and others edited", "rules: [{name: new, match: {path: /y}, limit: 1}, {name: r, limit: 2, window: 1m, mitigation_timeout: 10m}]", [2]int{429, 429}},
		{"tighter", "rules: [{name: r, limit: 1, window: 1m, mitigation_timeout: 10m}]", [2]int{429, 429}},
		{"a longer timeout", "rules: [{name: r, limit: 2, window: 1m, mitigation_timeout: 20m}]", [2]int{429, 429}},
		{"a longer window begins afresh", "rules: [{name: r, limit: 2, window: 2m, mitigation_timeout: 10m}]", [2]int{200, 200}},
		{"loosened lifts and keeps counts", "rules: [{name: r, limit: 3, window: 1m, mitigation_timeout: 10m}]", [2]int{200, 200}},
		{"a shorter timeout lifts", "rules: [{name: r, limit: 2, window: 1m, mitigation_timeout: 1m}]", [2]int{429, 429}},
		{"gone", "rules: [{name: other, match: {path: /x}, limit: 1}]", [2]int{200, 200}},
		{"a shadow", "rules: [{name: r, limit: 2, window: 1m, mitigation_timeout: 10m, mode: shadow}]", [2]int{200, 200}},
		{"off", "rules: [{name: r, limit: 2, mode: off}]", [2]int{200, 200}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := startEdge(t, startRecorder(t, hello).url(), "source: {trust: [127.0.0.1]}\n"+before)
			from := func(source string) int {
				resp, _ := e.get("/", "X-Forwarded-For: "+source)
				return resp.StatusCode
			}
			for range 2 {
				from("192.0.2.1")
			}
			for range 3 {
				from("192.0.2.2")
			}
			must(t, e.apply("source: {trust: [127.0.0.1]}\n"+test.after))
			if got := [2]int{from("192.0.2.1"), from("192.0.2.2")}; got != test.statuses {
				t.Errorf("%v, want %v", got, test.statuses)
			}
		})
	}
}

func TestBadReloadChangesNothing(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "rules: [{name: r, limit: 1}]")
	c := *e.Config()
	c.Origins = nil
	if err := e.Apply(&c); err == nil {
		t.Fatal("a configuration without origins was accepted")
	}
	e.get("/")
	if resp, _ := e.get("/"); resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
	m := e.metrics()
	if m["sluice_reloads_total{result=failed}"] != 1 || m["sluice_rules_generation"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// Reloads under load: no request fails, and each is judged by exactly one version.
func TestReloadUnderLoad(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "rules: [{name: r, limit: 1000000}]")
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			c := e.talk()
			for range 300 {
				resp, body := c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				policy, limit := resp.Header.Get("RateLimit-Policy"), resp.Header.Get("X-Ratelimit-Limit")
				if resp.StatusCode != 200 || body != "hello" || !strings.Contains(policy, ";q="+limit+";") {
					t.Errorf("%d %q %q %q", resp.StatusCode, body, policy, limit)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { load.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			e.rest()
			return
		default:
			must(t, e.apply(fmt.Sprintf("rules: [{name: r, limit: %d}]", 1_000_000+i%2)))
		}
	}
}

func TestOperatorsBlockAndLift(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), `
rules:
  - {name: r, limit: 3, window: 1m, mitigation_timeout: 1m}
  - {name: k, match: {path: /k}, key: "header:K", limit: 1}
`)
	now := time.Now()
	m, err := e.Block("r", "127.0.0.1", 10*time.Minute, "because", control.Operator{}, now)
	if err != nil || m.By != "admin" || m.Reason != "because" || m.End.Sub(now) != 10*time.Minute {
		t.Fatalf("%+v, %v", m, err)
	}
	if resp, _ := e.get("/"); resp.StatusCode != 429 {
		t.Errorf("blocked: %d", resp.StatusCode)
	}
	if list := e.Mitigations(time.Now()); len(list) != 1 || list[0].Source != "127.0.0.1" || list[0].Rule != "r" {
		t.Errorf("%+v", list)
	}
	if lifted, err := e.Lift("r", "127.0.0.1", control.Operator{}, time.Now()); !lifted.Lifted || lifted.Edges != nil || err != nil {
		t.Errorf("%+v, %v", lifted, err)
	}
	for i := range 3 { // counts are forgotten too
		if resp, _ := e.get("/"); resp.StatusCode != 200 {
			t.Errorf("request %d after the lift: %d", i, resp.StatusCode)
		}
	}
	if st := e.Look(t.Context(), netip.MustParseAddr("127.0.0.1")).Rules; len(st) != 1 || st[0].Estimate != 3 || st[0].Remaining != 0 || st[0].Until != nil {
		t.Errorf("%+v", st)
	}
	for _, bad := range []struct{ rule, source string }{{"none", "1.2.3.4"}, {"r", "1.2.3"}, {"r", "10.0.0.0/7"}, {"k", "1.2.3.4"}} {
		if _, err := e.Block(bad.rule, bad.source, time.Minute, "", control.Operator{}, now); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for _, d := range []time.Duration{0, -1, mitigation.MaxBlock + 1} {
		if _, err := e.Block("r", "1.2.3.4", d, "", control.Operator{}, now); err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

// What an operator has blocked stays blocked by him, whatever becomes of the rule's limits.
func TestOperatorsBlockSurvivesReload(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "rules: [{name: r, limit: 2, mitigation_timeout: 10m}]")
	if _, err := e.Block("r", "127.0.0.1", 5*time.Minute, "because", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, after := range []string{
		"rules: [{name: r, limit: 3, mitigation_timeout: 10m}]",
		"rules: [{name: r, limit: 3, mitigation_timeout: 1m}]",
		"rules: [{name: r, limit: 3, window: 2m, mitigation_timeout: 1m}]",
		"rules: [{name: r, limit: 300, window: 1m, mitigation_timeout: 1m, mode: shadow}]",
		"rules: [{name: r, limit: 2, mitigation_timeout: 10m}]",
	} {
		must(t, e.apply(after))
		list := e.Mitigations(time.Now())
		if len(list) != 1 || list[0].By != "admin" || list[0].Reason != "because" {
			t.Errorf("%s: %+v", after, list)
		}
	}
	if resp, _ := e.get("/"); resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
	must(t, e.apply("rules: [{name: other, limit: 2}]"))
	if list := e.Mitigations(time.Now()); len(list) != 0 {
		t.Errorf("of a rule that is gone: %+v", list)
	}
}

// Of a server that a reload took away no connection is kept: one with a request under way is closed after its answer.
func TestReloadClosesConnectionsOfRemovedServers(t *testing.T) {
	ln := listenHere(t)
	arrived, leave := make(chan bool), make(chan bool)
	var open atomic.Int64
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-leave
		_, _ = io.WriteString(w, "hello")
	}), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}}
	go func() { _ = old.Serve(ln) }()
	at := func(origin string) *config.Config {
		c, err := config.Parse("", []byte("origins: [{servers: ['"+origin+"'], timeout: 9s}]"))
		must(t, err)
		return c
	}
	e := startConfig(t, at("http://"+ln.Addr().String()))
	c := e.talk()
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
	<-arrived
	must(t, e.Apply(at(startRecorder(t, hello).url())))
	close(leave)
	c.hear("GET")
	for range 100 {
		e.Sweep(time.Now().Add(time.Hour)) // whatever is idle is too old
	}
	until(t, "no connection is kept", func() bool { return open.Load() == 0 })
}
