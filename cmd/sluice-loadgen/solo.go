package main

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/loadgen"
	"sluice/mitigation"
	"sluice/pop"
)

// sourceKey makes the i-th source of a trace one of the limiter's, in a network of its own: traces may hold several sources of
// one address.
func sourceKey(i int32) counter.Source {
	var b [16]byte
	b[0], b[1] = 0xfd, 0x51
	binary.BigEndian.PutUint32(b[4:], uint32(i))
	return counter.SourceOf(netip.AddrFrom16(b), 32, 64)
}

func sourceIndex(s counter.Source) int32 {
	p, _ := s.Prefix()
	b := p.Addr().As16()
	return int32(binary.BigEndian.Uint32(b[4:]))
}

// epoch is when a workload begins, which has no time of its own.
var epoch = time.Unix(1_700_000_000, 0)

func startOf(t *loadgen.Trace) time.Time {
	if t.Start.IsZero() {
		return epoch
	}
	return t.Start
}

// simSecret places windows and sources the same in every run.
var simSecret = pop.SecretOf([]byte("simulation"))

// solo is one edge with perfect knowledge: the tables alone.
type solo struct {
	rule     pop.Rule
	mode     loadgen.Mode
	counters *counter.Table
	bits     *mitigation.Table
	start    time.Time
	now      time.Time
	sources  []counter.Source
	asks     [1]counter.Ask
	news     []loadgen.InForce
}

func newSolo(t *loadgen.Trace, mode loadgen.Mode, rule pop.Rule) *solo {
	s := &solo{
		rule: rule, mode: mode, start: startOf(t),
		counters: counter.New(counter.Options{Counters: roomFor(t), Phase: simSecret.Phase}),
		bits:     mitigation.New(roomFor(t), nil),
		sources:  sourceKeys(t),
	}
	s.now = s.start
	return s
}

// roomFor is a table in which no source of the trace is ever in another's way, so that every run gives the same: one counter in 64 may
// have fine bins. It is no larger than an edge's.
func roomFor(t *loadgen.Trace) int { return min(64*len(t.Sources)+1000, 1_000_000) }

func sourceKeys(t *loadgen.Trace) []counter.Source {
	keys := make([]counter.Source, len(t.Sources))
	for i := range keys {
		keys[i] = sourceKey(int32(i))
	}
	return keys
}

func (s *solo) limiter() loadgen.Limiter {
	return loadgen.Limiter{
		Advance: func(at time.Duration) { s.now = s.start.Add(at) },
		Decide:  s.decide,
		News: func() []loadgen.InForce {
			news := s.news
			s.news = s.news[:0]
			return news
		},
	}
}

func (s *solo) decide(_ int, source int32) loadgen.Decision {
	s.asks[0] = counter.Ask{Rule: s.rule.Counter, Source: s.sources[source], Hits: 1, Always: s.mode == loadgen.Estimator}
	if s.mode == loadgen.Estimator {
		s.counters.Reserve(s.asks[:], s.now)
		return loadgen.Decision{Over: s.asks[0].Over, Estimate: s.asks[0].Estimate}
	}
	key := mitigation.Key{Rule: s.rule.Counter.ID, Source: s.asks[0].Source}
	if until := s.bits.Until(key, s.now); !until.IsZero() {
		return loadgen.Decision{Verdict: loadgen.Mitigated, Estimate: math.NaN(), Until: until.Sub(s.start)}
	}
	admitted := s.counters.Reserve(s.asks[:], s.now)
	d := loadgen.Decision{Estimate: s.asks[0].Estimate, Over: s.asks[0].Over}
	if !admitted {
		d.Verdict = loadgen.Limited
	}
	if end := mitigation.End(s.asks[0].Verdict, s.rule.Timeout, s.now); !end.IsZero() {
		s.bits.Start(key, mitigation.Bit{Start: s.now, End: end, By: mitigation.ByEdge}, s.now)
		d.Until = end.Sub(s.start)
		s.news = append(s.news, loadgen.InForce{Source: source, Start: s.now.Sub(s.start), At: s.now.Sub(s.start), Until: d.Until})
	}
	return d
}

// ideal is the formula with perfect knowledge of what the judged limiter counts: it says when a source crosses its limit.
func (s *solo) ideal(source int32, at time.Duration, counted bool) bool {
	now := s.start.Add(at)
	s.asks[0] = counter.Ask{Rule: s.rule.Counter, Source: s.sources[source], Hits: 1, Always: counted, Hold: !counted}
	s.counters.Reserve(s.asks[:], now)
	s.counters.Cancel(&s.asks[0])
	return s.asks[0].Over
}
