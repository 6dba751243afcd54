package edge_test

import (
	"encoding/binary"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/events"
	"sluice/edge/limiter"
	"sluice/edge/seen"
	"sluice/mitigation"
)

// scrape is what Prometheus gets, and how many lines it has.
func scrape(t *testing.T, s *edge.Server) (text string, lines int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	text = w.Body.String()
	return text, strings.Count(text, "\n")
}

// However many sources there are, counted and blocked, a scrape has as many lines as before, and stays small.
func TestMetricsDoNotGrowWithSources(t *testing.T) {
	const sources = 100_000
	s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nrules: [{name: r, limit: 1, window: 1h}]"), func(o *edge.Options) {
		o.Table, o.Blocks = counter.New(counter.Options{Counters: 2 * sources}), mitigation.New(2*sources, nil)
		o.Events = events.New(100, nil)
	})
	_, before := scrape(t, s)
	var d limiter.Decision
	r, now := &s.RuleSet().Rules[0].Rule, time.Now()
	for i := range sources {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(i))
		source := counter.SourceOf(netip.AddrFrom4(a), 32, 64)
		s.Asking().Hit(source)
		for range 2 {
			d.Reset()
			d.Add(r, source)
			s.Limiter().Decide(&d, now)
		}
	}
	text, after := scrape(t, s)
	if after != before || len(text) > 50_000 {
		t.Errorf("%d lines, %d before; %d bytes", after, before, len(text))
	}
	if n := s.Limiter().Blocks.Capacity(); n < sources {
		t.Errorf("room for %d mitigations", n)
	}
}

// Latencies are there: of requests that were answered, and of the origin's answers.
func TestLatencies(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 2, window: 1h}]")
	k := e.Talk()
	for range 3 {
		k.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	k.Close()
	e.Rest()
	_, requests, took := e.Seconds().Snapshot()
	_, asked, waited := e.Upstreams().All[0].Seconds.Snapshot()
	if requests != 3 || asked != 2 || waited <= 0 || took < waited || took > 60 {
		t.Errorf("%d requests in %v s, %d of the origin in %v s", requests, took, asked, waited)
	}
}

// Keys that have been at their limit for five minutes are counted by rule: one that is refused, one that is admitted up to its limit, and none that
// is below it.
func TestKeysAtLimit(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(),
		"rules: [{name: api, key: 'header:X-Api-Key', limit: 3, window: 10m}, {name: other, limit: 1000}]")
	for key, n := range map[string]int{"refused": 5, "exact": 3, "below": 2} {
		for range n {
			e.Get("/", "X-Api-Key: "+key)
		}
	}
	keys, err := e.TopKeys(seen.Requests, 10, "api")
	if err != nil || len(keys) != 3 {
		t.Fatal(keys, err)
	}
	const api = "sluice_keys_at_limit{rule=api}"
	if n := e.Metrics()[api]; n != 0 {
		t.Errorf("at once: %v", n)
	}
	for _, k := range keys { // what the edge has noted goes on
		source, err := counter.ParseSource(k.Source)
		edgetest.Must(t, err)
		for _, later := range []time.Duration{seen.Long / 2, seen.Long + time.Second} {
			e.AtLimit().Stay(e.RuleSet().ByName("api").Counter.ID, source, time.Now().Add(later))
		}
	}
	if m := e.Metrics(); m[api] != 2 || m["sluice_keys_at_limit{rule=other}"] != 0 {
		t.Errorf("%v keys sit at their limit, want 2", m[api])
	}
}
