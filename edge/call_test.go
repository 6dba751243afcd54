package edge_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/rules/descriptors"
)

const aboutUsers = `
check_path: /check
rules:
- {name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 1000000000, window: 1h}
- {name: address, match: {descriptors: {domain: web, entries: [{key: remote_address}]}}, limit: 1, window: 1h, mitigation_timeout: 24h}
`

func descriptor(key, value string) descriptors.Descriptor {
	return descriptors.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: value}}, Hits: 1}
}

// A call costs no memory, whether it passes or is refused.
func TestCallsDoNotAllocate(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.Parse(t, aboutUsers))
	for name, list := range map[string][]descriptors.Descriptor{
		"passes":  {descriptor("user", "a"), descriptor("user", "b")},
		"refused": {descriptor("remote_address", "192.0.2.1"), descriptor("user", "a")},
	} {
		c, now := s.NewCall(), time.Now()
		got := testing.AllocsPerRun(100, func() {
			edgetest.Must(t, c.Judge("web", list, now))
			for i := range list {
				c.State(i)
			}
			c.End()
		})
		if got > 0 {
			t.Errorf("a call that %s allocates %v times", name, got)
		}
	}
}

// What is asked about descriptors is no request of HTTP, and the other way round.
func TestRulesAboutDescriptorsAreAboutNothingElse(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), aboutUsers+"- {name: http, limit: 1, window: 1h}\n")
	for i, want := range []int{200, 429} {
		if resp, _ := e.Get("/"); resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	c := e.NewCall()
	list := []descriptors.Descriptor{descriptor("remote_address", "127.0.0.1")}
	if err := c.Judge("web", list, time.Now()); err != nil || c.Refused() {
		t.Errorf("the same client by descriptors: %v, refused %t", err, c.Refused())
	}
	c.End()
	if m := e.Rest(); m["sluice_requests_total{rule=address,verdict=pass}"] != 1 || m["sluice_requests_total{rule=http,verdict=pass}"] != 1 || m["sluice_received_total"] != 2 {
		t.Errorf("%v", m)
	}
}

// A fault is one call's.
func TestFaultInACall(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.Parse(t, aboutUsers))
	c := s.NewCall()
	bits := s.Limiter().Blocks
	s.Limiter().Blocks = nil
	err := c.Judge("web", []descriptors.Descriptor{descriptor("user", "a")}, time.Now())
	s.Limiter().Blocks = bits
	if n := edgetest.Metrics(t, s)["sluice_panics_total"]; err == nil || n != 1 {
		t.Errorf("%v, %v faults", err, n)
	}
}

// BenchmarkCall is one call about a user, beside a decision without descriptors in BenchmarkHandle; two descriptors; and one with a limit of its own.
func BenchmarkCall(b *testing.B) {
	s := edgetest.NewServer(b, edgetest.Parse(b, aboutUsers))
	own := descriptor("user", "a")
	own.Limit, own.Window = 1_000_000_000, time.Hour
	for _, list := range [][]descriptors.Descriptor{{descriptor("user", "a")}, {descriptor("user", "a"), descriptor("user", "b")}, {own}, {descriptor("nothing", "a")}} {
		b.Run(fmt.Sprintf("%d descriptors %s %t", len(list), list[0].Entries[0].Key, list[0].Limit > 0), func(b *testing.B) {
			b.ReportAllocs()
			c := s.NewCall()
			for now := time.Now(); b.Loop(); {
				_ = c.Judge("web", list, now)
				c.End()
			}
		})
	}
}
