package virtual

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// SourceKey makes the i-th source of a trace one of the limiter's, in a network of its own: traces
// may hold several sources of one address.
func SourceKey(i int32) counter.Source {
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

// Epoch is when a workload begins, which has no time of its own.
var Epoch = time.Unix(1_700_000_000, 0)

// StartOf is when a trace begins: by its log, or else an instant of ours.
func StartOf(t *trace.Trace) time.Time {
	if t.Start.IsZero() {
		return Epoch
	}
	return t.Start
}

// Secret places windows and sources the same in every run.
var Secret = secret.Of([]byte("simulation"))

// TruthOf is what is exact of a rule, over a trace.
func TruthOf(t *trace.Trace, r *algorithm.Spec) judge.Truth {
	return judge.Truth{Fixed: r.Algorithm() == "fixed", Start: StartOf(t).UnixNano(),
		Interval: r.Interval(), Queue: r.Queue()}
}

// Grain is how exactly a counter knows when its source would be admitted again: its hits are
// counted in sub-windows.
func Grain(r *algorithm.Spec) time.Duration {
	return r.Window / time.Duration(max(r.SubWindows, 1))
}

// RuleOf is a rule as the limiter wants it. An estimator counts every request and refuses none.
func RuleOf(r mitigation.Rule, mode judge.Mode) limiter.Rule {
	if mode == judge.Estimator {
		return limiter.Rule{Rule: mitigation.Rule{Counter: r.Counter, Shadow: true}, Refused: true}
	}
	return limiter.Rule{Rule: r}
}

// decisionOf is what a judge must know of a decision under one rule of RuleOf.
func decisionOf(d *limiter.Decision, start time.Time) judge.Decision {
	r := &d.Results[0]
	out := judge.Decision{Estimate: math.NaN(), Delay: d.Delay}
	if r.Reservation != nil {
		out.Estimate, out.Over = r.Reservation.Estimate, r.Reservation.Over
	}
	switch d.Verdict {
	case limiter.Limited:
		out.Verdict = judge.Limited
	case limiter.Mitigated:
		out.Verdict = judge.Mitigated
	}
	if !r.Until.IsZero() {
		out.Until = r.Until.Sub(start)
	}
	return out
}

// Oracle is one edge with perfect knowledge: the limiter and its tables alone.
type Oracle struct {
	limiter  limiter.Limiter
	decision limiter.Decision
	rule     limiter.Rule
	start    time.Time
	now      time.Time
	sources  []counter.Source
	blocks   []judge.InForce
}

// NewOracle returns one for a trace that is judged in a mode.
func NewOracle(t *trace.Trace, mode judge.Mode, rule mitigation.Rule) *Oracle {
	return &Oracle{
		limiter: Alone(RoomFor(t), Secret.Phase), rule: RuleOf(rule, mode),
		start: StartOf(t), now: StartOf(t), sources: sourceKeys(t),
	}
}

// NewLiveOracle is one for a run of real edges, that began at start and met sources of these
// addresses.
func NewLiveOracle(start time.Time, addrs []netip.Addr, room int,
	phase func(counter.Source) uint16) *Oracle {
	s := &Oracle{start: start, limiter: Alone(room, phase)}
	for _, a := range addrs {
		s.sources = append(s.sources, counter.SourceOf(a, 32, 64))
	}
	return s
}

// Alone is the limiter of an edge without a tier.
func Alone(room int, phase func(counter.Source) uint16) limiter.Limiter {
	counters, bits := Tables(room, phase)
	return limiter.Limiter{Counters: counters, Blocks: bits}
}

// Tables are those of an edge without a tier, the same in every run.
func Tables(room int, phase func(counter.Source) uint16) (*counter.Table, *mitigation.Table) {
	const seed = 1
	bits := mitigation.New(room, nil)
	bits.Seed(seed)
	return counter.New(counter.Options{Counters: room, Phase: phase, Seed: seed}), bits
}

// RoomFor is a table in which hardly a source of the trace is in another's way: one counter in 64
// may have a histogram. It is no larger than an edge's.
func RoomFor(t *trace.Trace) int { return min(64*len(t.Sources)+1000, 1_000_000) }

func sourceKeys(t *trace.Trace) []counter.Source {
	keys := make([]counter.Source, len(t.Sources))
	for i := range keys {
		keys[i] = SourceKey(int32(i))
	}
	return keys
}

// Limiter is an oracle as loadgen judges it.
func (s *Oracle) Limiter() judge.Limiter {
	return judge.Limiter{
		Advance: func(at time.Duration) { s.now = s.start.Add(at) },
		Decide:  s.decide,
		InForce: func() []judge.InForce {
			blocks := s.blocks
			s.blocks = s.blocks[:0]
			return blocks
		},
	}
}

// Counters is how many counters it holds.
func (s *Oracle) Counters() uint64 { return uint64(s.limiter.Counters.Stats().Counters) }

// decideOn decides about a request under a rule.
func (s *Oracle) decideOn(rule *limiter.Rule, source int32) *limiter.Decision {
	s.decision.Reset()
	s.decision.Add(rule, s.sources[source])
	s.limiter.Decide(&s.decision, s.now)
	return &s.decision
}

func (s *Oracle) decide(_ int, source int32) judge.Decision {
	d := decisionOf(s.decideOn(&s.rule, source), s.start)
	if d.Verdict == judge.Limited && d.Until > 0 {
		at := s.now.Sub(s.start)
		s.blocks = append(s.blocks, judge.InForce{Source: source, Start: at, At: at,
			Until: d.Until})
	}
	return d
}

// Ideal is the formula with perfect knowledge of what a judged limiter counts: it says when a
// source crosses its limit.
type Ideal struct {
	*Oracle
	// One counter: it counts every request, or none, because none is answered
	counted, seen limiter.Rule
}

// IdealOf makes the formula of a rule for runs over a trace: judge.Options.Ideal.
func IdealOf(t *trace.Trace, rule mitigation.Rule) func() func(int32, time.Duration, bool) bool {
	return func() func(int32, time.Duration, bool) bool {
		return NewIdeal(NewOracle(t, judge.Deployed, rule), rule).Over
	}
}

// NewIdeal returns the formula of a rule. It keeps s for itself.
func NewIdeal(s *Oracle, rule mitigation.Rule) *Ideal {
	return &Ideal{s, RuleOf(rule, judge.Estimator),
		limiter.Rule{Rule: mitigation.Rule{Counter: rule.Counter}, Statuses: []int{200}}}
}

// Over decides about a request that the judged limiter has counted, or not.
func (s *Ideal) Over(source int32, at time.Duration, counted bool) bool {
	s.now = s.start.Add(at)
	rule := &s.seen
	if counted {
		rule = &s.counted
	}
	d := s.decideOn(rule, source)
	s.limiter.Settle(d, 0, s.now)
	r := d.Results[0].Reservation
	return r != nil && r.Over // nil: the limiter has decided nothing, which the judge shall see
}
