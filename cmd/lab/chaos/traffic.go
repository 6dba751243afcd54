package chaos

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/loadgen/trace"
)

// Traffic is what the sources of a story send: steady ones evenly, at their share of the limit, so
// that no window ever holds more; attackers far above it, the first at once and each other a little
// later, so that somebody goes over the limit again and again whatever happens just then.
func (s *Scenario) Traffic(seed uint64) *trace.Trace {
	t := &trace.Trace{Name: s.Story, Seed: seed}
	rng := rand.New(rand.NewPCG(seed, 0xc4a05))
	source := func(role trace.Role, first string, i int) int32 {
		addr := trace.AddrPlus(netip.MustParseAddr(first), uint32(i+1))
		t.Sources = append(t.Sources, trace.Source{Name: addr.String(), Addr: addr, Role: role})
		return int32(len(t.Sources) - 1)
	}
	even := func(source int32, rate float64, from time.Duration) {
		step := time.Duration(float64(time.Second) / rate)
		for at := from; at < s.For; at += step {
			t.Requests = append(t.Requests, trace.Request{
				At: at + time.Duration(rng.Int64N(int64(step)/2+1)), Source: source, Method: "GET",
				Host: "demo.test", Path: "/",
			})
		}
	}
	for i := range s.Steady {
		step := float64(s.Window) / (s.Share * float64(s.Limit))
		even(source(trace.Good, "198.18.0.0", i), float64(time.Second)/step,
			time.Duration(rng.Float64()*step))
	}
	for i := range s.Attackers {
		even(source(trace.Abuser, "198.19.0.0", i), s.Rate,
			s.Block*time.Duration(i)/time.Duration(s.Attackers))
	}
	trace.Sort(t)
	return t
}
