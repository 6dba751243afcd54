package edge_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"sluice/edge/edgetest"
)

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
			e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "source: {trust: [127.0.0.1]}\n"+before)
			from := func(source string) int {
				resp, _ := e.Get("/", "X-Forwarded-For: "+source)
				return resp.StatusCode
			}
			for range 2 {
				from("192.0.2.1")
			}
			for range 3 {
				from("192.0.2.2")
			}
			edgetest.Must(t, e.Reload("source: {trust: [127.0.0.1]}\n"+test.after))
			if got := [2]int{from("192.0.2.1"), from("192.0.2.2")}; got != test.statuses {
				t.Errorf("%v, want %v", got, test.statuses)
			}
		})
	}
}

func TestBadReloadChangesNothing(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 1}]")
	c := *e.Config()
	c.Origins = nil
	if err := e.Apply(&c); err == nil {
		t.Fatal("a configuration without origins was accepted")
	}
	e.Get("/")
	if resp, _ := e.Get("/"); resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
	m := e.Metrics()
	if m["sluice_reloads_total{result=failed}"] != 1 || m["sluice_rules_generation"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// Reloads under load: no request fails, and each is judged by exactly one version.
func TestReloadUnderLoad(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 1000000}]")
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			c := e.Talk()
			for range 300 {
				resp, body := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
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
			e.Rest()
			return
		default:
			edgetest.Must(t, e.Reload(fmt.Sprintf("rules: [{name: r, limit: %d}]", 1_000_000+i%2)))
		}
	}
}

// Of a rule that is read again each limit goes on by itself: a block stays unless its limit is gone or admits more.
func TestReloadOfSeveralLimits(t *testing.T) {
	f := func(yaml, want string) {
		t.Helper()
		e := edgetest.StartWithEvents(t, edgetest.SeveralLimits)
		for _, source := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			e.Get("/", "X-Forwarded-For: "+source)
		}
		edgetest.Must(t, e.Reload(yaml))
		if got := e.Blocked(); got != want {
			t.Errorf("%s: %s, want %s", yaml, got, want)
		}
	}
	with := func(old, new string) string {
		if !strings.Contains(edgetest.SeveralLimits, old) {
			t.Fatal(old)
		}
		return strings.Replace(edgetest.SeveralLimits, old, new, 1)
	}
	f(edgetest.SeveralLimits, "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24")
	f(with("limit: 3,", "limit: 2,"), "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24")
	f(with("limit: 6", "limit: 8"), "r r/20m 192.0.2.1")
	f(with("[32, {prefix: 24, limit: 6}]", "[32, {prefix: 23, limit: 6}]"), "r r/20m 192.0.2.1")
	f(with("windows: [{limit: 3, window: 20m}], ", ""), "")
	f(with("windows: [{limit: 3, window: 20m}]", "windows: [{limit: 3, window: 10m}, {limit: 2, window: 1m}]"), "")
	f(with("limit: 4,", "limit: 5,"), "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24") // 3 x 6/5 is as many as 3 x 6/4, rounded up
	f(with("mitigation_timeout: 1h", "mitigation_timeout: 30m"), "")
}

// Requests are admitted with what servers of HTTP/2 need as soon as there are some, and as long.
func TestReloadOfOriginsThatSpeakHTTP2(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.WithoutRules(t, "h2c://192.0.2.1:80"))
	if s.Awaited() == 0 {
		t.Error("nothing is counted for a server of HTTP/2")
	}
	edgetest.Must(t, s.Apply(edgetest.WithoutRules(t, "http://192.0.2.1:80")))
	if n := s.Awaited(); n != 0 {
		t.Errorf("%d bytes are counted for servers of HTTP/1.1", n)
	}
}
