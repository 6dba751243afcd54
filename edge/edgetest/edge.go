package edgetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/listen"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// An Edge serves on a loopback socket until the test ends.
type Edge struct {
	*edge.Server
	Caller
	done chan error
}

// OverTLS serves over TLS as well, and returns where.
func (e *Edge) OverTLS(certificates *listen.Certificates) (addr string) {
	e.T.Helper()
	ln := ListenHere(e.T)
	go func() { _ = e.ServeTLS(ln, certificates) }()
	return ln.Addr().String()
}

// DrainNow drains the edge in the background without notice; the function it returns waits for
// that.
func (e *Edge) DrainNow() (wait func() error) {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done <- e.Drain(ctx, 0)
	}()
	return func() error { return <-done }
}

// Metrics gathers the edge's metrics as "name{label=value,…}" to value, those that are zero left
// out.
func (e *Edge) Metrics() map[string]float64 {
	e.T.Helper()
	return Metrics(e.T, e.Server)
}

// Rest waits until every request received has been counted as answered or aborted, and checks the
// balance.
func (e *Edge) Rest() map[string]float64 {
	e.T.Helper()
	var m map[string]float64
	for deadline := time.Now().Add(time.Minute); ; {
		m = e.Metrics()
		answered := m["sluice_aborted_total"]
		for name, v := range m {
			if strings.HasPrefix(name, "sluice_answers_total") {
				answered += v
			}
		}
		if m["sluice_received_total"] == answered {
			return m
		}
		if time.Now().After(deadline) {
			e.T.Fatalf("the balance is off: %v received, %v answered or aborted",
				m["sluice_received_total"], answered)
		}
	}
}

// AwaitInFlight waits until so many requests hold a slot under a rule.
func (e *Edge) AwaitInFlight(rule string, want int) {
	e.T.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		n := e.Metrics()["sluice_in_flight{rule="+rule+"}"]
		if n == float64(want) {
			return
		}
		if time.Now().After(deadline) {
			e.T.Fatalf("%v in flight under %s, want %d", n, rule, want)
		}
	}
}

// Blocked are the mitigations in force: rule, the name of its limit where that is another, and
// source.
func (e *Edge) Blocked() string {
	var list []string
	for m := range e.InForce(time.Now()) {
		list = append(list, strings.Join(strings.Fields(m.Rule+" "+m.Policy+" "+m.Source), " "))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// AwaitReceived waits until so many requests have been.
func (e *Edge) AwaitReceived(n int) {
	e.T.Helper()
	Until(e.T, fmt.Sprintf("%d requests have been received", n),
		func() bool { return e.Metrics()["sluice_received_total"] >= float64(n) })
}

// Reload puts other rules in force before the same origin.
func (e *Edge) Reload(rules string) error {
	e.T.Helper()
	c, err := (config.Parser{Modules: e.Config().Modules}).Parse("reload.yaml", []byte(rules))
	if err != nil {
		return err
	}
	c.Origins = e.Config().Origins
	return e.Apply(c)
}

// Start serves a configuration before an origin. The YAML may leave the origin out.
func Start(t *testing.T, origin, yaml string, change ...func(*edge.Server)) *Edge {
	t.Helper()
	c := Parse(t, yaml)
	if len(c.Origins) == 0 {
		u, err := upstream.ParseOrigin(origin)
		Must(t, err)
		c.Origins = []upstream.Config{{Hosts: []string{"*"}, Servers: []*url.URL{u},
			Timeout: 20 * time.Second}}
	}
	return StartConfig(t, c, change...)
}

// StartUsing is Start with modules.
func StartUsing(t *testing.T, origin, yaml string, modules ...edge.Module) *Edge {
	t.Helper()
	c := Parse(t, yaml, modules...)
	c.Origins = WithoutRules(t, origin).Origins
	return Serve(t, NewServer(t, c, Using(modules...)))
}

// Using has an edge use modules.
func Using(modules ...edge.Module) func(*edge.Options) {
	return func(o *edge.Options) { o.Use = append(o.Use, modules...) }
}

// Redirecting has the edge listen at a place that sends clients to a port for https, and returns
// where.
func (e *Edge) Redirecting(port uint16) string {
	e.T.Helper()
	ln := ListenHere(e.T)
	go func() {
		_ = e.ServeEntry(ln, &listen.Entry{Field: "listen", Address: "there", Redirect: port}, nil)
	}()
	return ln.Addr().String()
}

// HalfClosed has an edge count clients that have closed one direction of their connections again
// after so long.
func HalfClosed(d time.Duration) func(*edge.Server) {
	return func(s *edge.Server) { s.Registry().HalfClosed = d }
}

// StartConfig serves a configuration.
func StartConfig(t *testing.T, c *config.Config, change ...func(*edge.Server)) *Edge {
	t.Helper()
	s := NewServer(t, c)
	for _, f := range change {
		f(s)
	}
	return Serve(t, s)
}

// StartWithEvents is an edge whose events are kept.
func StartWithEvents(t *testing.T, yaml string, change ...func(*edge.Options)) *Edge {
	t.Helper()
	c := Parse(t, yaml)
	c.Origins = WithoutRules(t, StartRecorder(t, Hello).URL()).Origins
	change = append(change, func(o *edge.Options) { o.Events = events.New(100, nil) })
	return Serve(t, NewServer(t, c, change...))
}

// Parse reads a configuration.
func Parse(t testing.TB, yaml string, modules ...edge.Module) *config.Config {
	t.Helper()
	c, err := config.Parser{Modules: edge.Modules(modules).Config()}.Parse("test.yaml", []byte(yaml))
	Must(t, err)
	return c
}

// WithoutRules is a configuration of one origin, which has 300 ms to answer, and nothing else.
func WithoutRules(t *testing.T, origin string) *config.Config {
	t.Helper()
	c := config.Default()
	u, err := upstream.ParseOrigin(origin)
	Must(t, err)
	c.Origins = []upstream.Config{{Hosts: []string{"*"}, Servers: []*url.URL{u},
		Timeout: 10 * time.Second}}
	return c
}

// NewServer is an edge that does not serve yet, with tables of its own.
func NewServer(t testing.TB, c *config.Config, change ...func(*edge.Options)) *edge.Server {
	t.Helper()
	o := edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1 << 14}),
		Blocks: mitigation.New(1<<12, nil)}
	for _, f := range change {
		f(&o)
	}
	s, err := edge.New(o)
	Must(t, err)
	return s
}

// Serve serves until the test ends.
func Serve(t *testing.T, s *edge.Server) *Edge {
	t.Helper()
	ln := ListenHere(t)
	e := &Edge{Server: s, Caller: Caller{t, ln.Addr().String()}, done: make(chan error, 1)}
	go func() { e.done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ln.Close() // nobody comes any more: Drain need not wait for those who are on their way
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Drain(ctx, time.Second)
		// Drained before it began
		if err := <-e.done; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return e
}

func Metrics(t testing.TB, s *edge.Server) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	Must(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			if v := value(m); v != 0 {
				all[f.GetName()+labels(m)] = v
			}
		}
	}
	return all
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return 0
}

func labels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.Label {
		parts = append(parts, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// OneRule is a configuration with one rule, by its limit.
const OneRule = `
verdict_header: true
rules:
  - {name: r, limit: %d, window: 1m, mitigation_timeout: 1m}
`

// SeveralLimits is one with a rule of four limits: of two windows and two prefixes.
const SeveralLimits = "verdict_header: true\nsource: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 4, window: 1h, mitigation_timeout: 1h, " +
	"windows: [{limit: 3, window: 20m}], prefixes: [32, {prefix: 24, limit: 6}]}]"
