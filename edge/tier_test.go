package edge_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/mitigation"
)

// A request waits for the tier until every answer is there, or its budget is used up.
func TestRequestWaitsForTheTierWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := edge.WithBudget(5 * time.Millisecond)
		f := func(want time.Duration, answers ...time.Duration) {
			t.Helper()
			began, replies := time.Now(), make([]<-chan struct{}, len(answers))
			for i, after := range answers {
				ch := make(chan struct{})
				replies[i] = ch
				time.AfterFunc(after, func() { close(ch) })
			}
			if s.Wait(replies); time.Since(began) != want {
				t.Errorf("answers after %v: waited %v, want %v", answers, time.Since(began), want)
			}
		}
		f(2*time.Millisecond, 2*time.Millisecond)
		f(3*time.Millisecond, 3*time.Millisecond, time.Millisecond)
		f(5*time.Millisecond, time.Millisecond, time.Hour)
	})
}

// TestOpenIsSaid: a judge learns of a request that a rule let pass because no node answers, under which rule and when.
func TestOpenIsSaid(t *testing.T) {
	c := edgetest.Parse(t, "verdict_header: true\nrules: [{name: r, limit: 1, on_store_failure: open}]")
	c.Origins = edgetest.WithoutRules(t, edgetest.StartRecorder(t, edgetest.Hello).URL()).Origins
	e := edgetest.Serve(t, edgetest.NewServer(t, c, func(o *edge.Options) { o.Tier.Up = func(counter.Source) bool { return false } }))
	for range 3 {
		resp, _ := e.Get("/")
		word, rest, _ := strings.Cut(resp.Header.Get("Sluice-Verdict"), ";at=")
		at, rest, _ := strings.Cut(rest, ";")
		if resp.StatusCode != 200 || word != "open" || len(at) != 19 || rest != `until=0;rule="r"` {
			t.Errorf("%d, %q", resp.StatusCode, resp.Header.Get("Sluice-Verdict"))
		}
	}
}

// The tier gets of every limit of every rule all that it needs of one, and of what counts by limits that proxies send.
func TestTierGetsRules(t *testing.T) {
	var registered []string
	edgetest.NewServer(t, edgetest.Parse(t, `origins: [{servers: ['http://127.0.0.1:9']}]
plans: {key: header:x-api-key, default: free, store: 'sqlite:`+t.TempDir()+`/plans.db'}
source: {ipv4_prefix: 28, ipv6_prefix: 56}
rules:
  - {name: plain, limit: 4}
  - {name: wide, limit: 4, windows: [{limit: 9, window: 1h}], prefixes: [32, 24, 64], mode: shadow, mitigation_timeout: 0}
  - {name: again, limit: 4, mitigation_timeout: 20s, escalate: [1m, 1h]}
  - {name: paid, limit: 4, key: header:x-api-key, plans: {pro: 70}, escalate: [2h]}
  - {name: kept, limit: 4, check: sync, algorithm: exact}
  - {name: asked, limit: 4, match: {descriptors: {domain: d, entries: [{key: user}]}}}`), func(o *edge.Options) {
		o.Tier.Rules = func(rules []mitigation.Rule) {
			for _, r := range rules {
				registered = append(registered, fmt.Sprintf("%s: %d in %v, timeout %v, again %v, shadow %t, further %t, variant %t, /%d and /%d, exact %t", r.Name, r.Counter.Limit,
					r.Counter.Window, r.Timeout, r.Repeat, r.Shadow, r.ExtraLimit, r.VariantOf != 0, r.V4, r.V6, r.Exact != nil))
			}
		}
	})
	if got, want := strings.Join(registered, "\n"), `asked: 1000000000 in 1s, timeout 0s, again {[] 0s}, shadow false, further true, variant false, /0 and /0, exact false
asked: 1000000000 in 1m0s, timeout 0s, again {[] 0s}, shadow false, further true, variant false, /0 and /0, exact false
asked: 1000000000 in 1h0m0s, timeout 0s, again {[] 0s}, shadow false, further true, variant false, /0 and /0, exact false
asked: 1000000000 in 24h0m0s, timeout 0s, again {[] 0s}, shadow false, further true, variant false, /0 and /0, exact false
plain: 4 in 1m0s, timeout 1m0s, again {[] 0s}, shadow false, further false, variant false, /28 and /56, exact false
wide: 4 in 1m0s, timeout 0s, again {[] 0s}, shadow true, further false, variant false, /32 and /64, exact false
wide: 9 in 1h0m0s, timeout 0s, again {[] 0s}, shadow true, further true, variant false, /32 and /64, exact false
wide: 64 in 1m0s, timeout 0s, again {[] 0s}, shadow true, further true, variant false, /24 and /-1, exact false
wide: 144 in 1h0m0s, timeout 0s, again {[] 0s}, shadow true, further true, variant false, /24 and /-1, exact false
again: 4 in 1m0s, timeout 20s, again {[1m0s 1h0m0s] 1h0m0s}, shadow false, further false, variant false, /28 and /56, exact false
paid: 4 in 1m0s, timeout 1m0s, again {[2h0m0s] 1h0m0s}, shadow false, further false, variant false, /28 and /56, exact false
paid: 70 in 1m0s, timeout 1m0s, again {[2h0m0s] 1h0m0s}, shadow false, further false, variant true, /28 and /56, exact false
kept: 4 in 1m0s, timeout 1m0s, again {[] 0s}, shadow false, further false, variant false, /28 and /56, exact true
asked: 4 in 1m0s, timeout 1m0s, again {[] 0s}, shadow false, further false, variant false, /0 and /0, exact false
*: 1 in 1s, timeout 0s, again {[] 0s}, shadow false, further false, variant false, /0 and /0, exact false
+allow: 1 in 1s, timeout 0s, again {[] 0s}, shadow false, further false, variant false, /0 and /0, exact false
+deny: 1 in 1s, timeout 0s, again {[] 0s}, shadow false, further false, variant false, /0 and /0, exact false
+maintenance: 1 in 1s, timeout 0s, again {[] 0s}, shadow false, further false, variant false, /0 and /0, exact false`; got != want {
		t.Errorf("the tier got\n%s\nwant\n%s", got, want)
	}
}

// How long requests wait for the tier is for the next start, so a rule that has them wait is not put in force by an edge that lets none wait.
func TestNoConcurrencyWithoutWait(t *testing.T) {
	const origin = "origins: [{servers: ['http://127.0.0.1:1']}]\npop: {memcached: ['127.0.0.1:1'], wait: %s}\nrules: [{name: slow, %s}]\n"
	s := edgetest.NewServer(t, edgetest.Parse(t, fmt.Sprintf(origin, "0", "limit: 5")), func(o *edge.Options) {
		o.Tier.Fetch = func(*algorithm.Spec, counter.Source) {}
	})
	for rule, want := range map[string]string{
		"limit: 6":       "",
		"concurrency: 5": "rule slow waits for the tier, and pop.wait is 0 until this edge starts again: restart it",
		"limit: 5, check: sync, algorithm: exact": "rule slow waits for the tier, and pop.wait is 0 until this edge starts again: restart it",
	} {
		err := s.Apply(edgetest.Parse(t, fmt.Sprintf(origin, "5ms", rule)))
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}
