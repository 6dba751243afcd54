package auditor

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/member"
	"sluice/edge/audit"
	"sluice/edge/audit/exactlog"
	"sluice/edge/limiter"
	"sluice/loadgen/judge"
	"sluice/mitigation"
	"sluice/pop/poptest"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// A site is edges that share nodes, and whose counters know nothing of each other.
type site struct {
	t     *testing.T
	nodes []*poptest.Node
	key   secret.Secret

	mu      sync.Mutex
	up      []bool
	running []*edge // as presence tells of them
	sent    [wire.Ops]int
}

// change changes what edges are told.
func (s *site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

type edge struct {
	*Auditor
	presence.Edge
	limiter limiter.Limiter
	cancel  context.CancelFunc
}

var client = counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)

func newRule(t *testing.T) *limiter.Rule {
	c, err := algorithm.NewSliding("r source enforce", 5, 10*time.Second, 8, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	return &limiter.Rule{Rule: mitigation.Rule{Counter: c}}
}

func (s *site) start(id uint64) *edge {
	now := time.Now()
	e := &edge{Edge: presence.Edge{ID: id, About: member.About{Started: now}}, limiter: limiter.Limiter{
		Counters: counter.New(counter.Options{Counters: 1024}), Bits: mitigation.New(16, nil)}}
	e.Auditor = &Auditor{Notes: audit.New(1, s.key.Watch, now), ID: id, Tier: &Tier{Secret: s.key,
		Do: func(_ context.Context, c wire.Command) wire.Result {
			s.change(func() { s.sent[c.Op]++ })
			return s.nodes[c.Node].Do(time.Now(), c)
		},
		Nodes: func() []string { return []string{"a", "b"}[:len(s.nodes)] },
		Up:    func() (up []bool) { s.change(func() { up = slices.Clone(s.up) }); return up },
		Edges: func() (all []presence.Edge) {
			s.change(func() {
				for _, e := range s.running {
					all = append(all, e.Edge)
				}
			})
			return all
		}}}
	s.change(func() { s.running = append(s.running, e) })
	ctx, cancel := context.WithCancel(s.t.Context())
	e.cancel = cancel
	go e.Run(ctx)
	return e
}

// stop ends an edge, which tells of its last requests if it can.
func (s *site) stop(e *edge, reported bool) {
	if reported {
		e.Leave(s.t.Context())
	}
	e.cancel()
	s.change(func() { s.running = slices.DeleteFunc(s.running, func(o *edge) bool { return o == e }) })
}

func (s *site) end() {
	for _, e := range slices.Clone(s.running) {
		s.stop(e, false)
	}
}

func newSite(t *testing.T, nodes int) *site {
	s := &site{t: t, key: secret.Of([]byte("k"))}
	for range nodes {
		s.nodes, s.up = append(s.nodes, poptest.New(0)), append(s.up, true)
	}
	return s
}

func (e *edge) ask(r *limiter.Rule) { e.decide(r, client, time.Now()) }

// decide has an edge decide by a clock of its own.
func (e *edge) decide(r *limiter.Rule, s counter.Source, now time.Time) limiter.Verdict {
	var d limiter.Decision
	d.Add(r, s)
	e.Notes.Lock()
	defer e.Notes.Unlock()
	e.limiter.Decide(&d, now)
	e.Notes.Note(&d, now)
	return d.Verdict
}

func (e *edge) incomplete() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.judge.Skipped.Incomplete
}

func (e *edge) found() exactlog.Figures {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.judge.Rules()["r"]; f != nil {
		return *f
	}
	return exactlog.Figures{}
}

// intervals lets so many of them pass, and ends a second before the next, when all is judged that was noted two before.
func intervals(n int) {
	now := time.Now()
	time.Sleep(time.Until(now.Truncate(exactlog.Interval).Add(time.Duration(n+1)*exactlog.Interval - time.Second)))
	synctest.Wait()
}

// Edges that do not know of each other's hits admit more than the limit between them, and the oldest finds that out: nobody else counts it.
func TestEdgesAreJudgedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rule := newSite(t, 2), newRule(t)
		one := s.start(9)
		time.Sleep(time.Second)
		two, three := s.start(1), s.start(2)
		intervals(5)
		for range 3 {
			for _, e := range []*edge{one, two, three} {
				e.ask(rule)
				time.Sleep(20 * time.Millisecond)
			}
		}
		intervals(2)
		f := one.found()
		if f.Decisions != 9 || f.Allowed != 4 || f.Limited != 0 || f.Uncertain != 0 {
			t.Errorf("%+v", f)
		}
		if two.found().Decisions+three.found().Decisions != 0 {
			t.Error("two edges judge the same")
		}
		var before, after [wire.Ops]int
		s.change(func() { before = s.sent })
		intervals(10)
		s.change(func() { after = s.sent })
		if sets, gets := after[wire.Set]-before[wire.Set], after[wire.Get]-before[wire.Get]; sets != 30 || gets != 10 {
			t.Errorf("%d sets and %d gets in ten intervals", sets, gets)
		}
		s.end()
	})
}

// Who judges may end: the oldest of the others goes on, and judges nothing that it does not know all of.
func TestAnotherJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rule := newSite(t, 1), newRule(t)
		one := s.start(1)
		time.Sleep(time.Second)
		two, three := s.start(2), s.start(3)
		intervals(5)
		s.stop(one, true)
		intervals(1)
		two.ask(rule)
		intervals(2)
		if f := two.found(); f.Decisions != 0 || two.incomplete() != 1 {
			t.Errorf("%+v, %d", f, two.incomplete())
		}
		intervals(3)
		two.ask(rule)
		three.ask(rule)
		intervals(2)
		if f := two.found(); f.Decisions != 2 {
			t.Errorf("%+v", f)
		}
		s.end()
	})
}

// An edge that ends and one that starts leave no hits out; one that dies does, and for a window nothing is judged.
func TestEdgesComeAndGo(t *testing.T) {
	for _, reported := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, rule := newSite(t, 1), newRule(t)
			one := s.start(1)
			time.Sleep(time.Second)
			two := s.start(2)
			intervals(5)
			for range 5 {
				two.ask(rule)
			}
			s.stop(two, reported)
			three := s.start(3)
			time.Sleep(20 * time.Millisecond)
			three.ask(rule) // the sixth
			time.Sleep(20 * time.Millisecond)
			one.ask(rule) // the seventh
			intervals(2)
			f := one.found()
			if reported && (f.Decisions != 7 || f.Allowed != 2) || !reported && (f.Decisions != 0 || one.incomplete() != 2) {
				t.Errorf("told %v: %+v, %d", reported, f, one.incomplete())
			}
			intervals(4)
			three.ask(rule)
			if intervals(2); one.found().Decisions != f.Decisions+1 {
				t.Errorf("told %v, a window later: %+v", reported, one.found())
			}
			s.end()
		})
	}
}

// A node that is lost loses what is in it; then another has the items, and so it has where edges do not agree on which are up.
func TestNodesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rule := newSite(t, 2), newRule(t)
		one := s.start(1)
		intervals(5)
		one.ask(rule)
		s.nodes[0].Kill()
		intervals(2) // nobody has noticed yet that the node is down
		if f := one.found(); f.Decisions != 1 {
			t.Errorf("%+v", f)
		}
		s.change(func() { s.up[0] = false })
		one.ask(rule)
		if intervals(2); one.found().Decisions != 2 {
			t.Errorf("%+v", one.found())
		}
		s.change(func() { s.up[1] = false })
		one.ask(rule)
		intervals(2)
		if f := one.found(); f.Decisions != 2 {
			t.Errorf("%+v", f)
		}
		s.end()
	})
}

// Whoever writes into the tier without the secret is not believed.
func TestForgedBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		one := s.start(1)
		intervals(3)
		number := exactlog.NumberOf(time.Now())
		forged := &exactlog.Batch{Edge: 1, Number: number, Groups: []exactlog.Group{{Rule: exactlog.RuleRef{Name: "r", Limit: 1, Window: time.Second}, Entries: make([]exactlog.Entry, 9)}}}
		for what, item := range map[string][]byte{
			"no secret":      secret.Of([]byte("another")).Seal(secret.Audit, forged.Append(nil)),
			"another use":    s.key.Seal(secret.Presence, forged.Append(nil)),
			"another number": s.key.Seal(secret.Audit, (&exactlog.Batch{Edge: 1, Number: number + 1}).Append(nil)),
			"another's":      s.key.Seal(secret.Audit, (&exactlog.Batch{Edge: 2, Number: number}).Append(nil)),
			"nothing":        nil,
		} {
			if b := one.open(item, 1, number); b != nil {
				t.Errorf("%s: believed", what)
			}
		}
		if b := one.open(s.key.Seal(secret.Audit, forged.Append(nil)), 1, number); b == nil {
			t.Error("what is authentic is not believed")
		}
		s.end()
	})
}

// An edge that counts alone judges itself, from the start on.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, rule := time.Now(), newRule(t)
		e := &edge{Auditor: &Auditor{Notes: audit.New(1, nil, now)}, limiter: limiter.Limiter{
			Counters: counter.New(counter.Options{Counters: 1024}), Bits: mitigation.New(16, nil)}}
		ctx, cancel := context.WithCancel(t.Context())
		go e.Run(ctx)
		for range 7 {
			e.ask(rule)
		}
		intervals(2)
		if f := e.found(); f.Decisions != 7 || f.Allowed+f.Limited != 0 {
			t.Errorf("%+v", f)
		}
		f := e.found()
		if _, n, sum := f.Lags.Snapshot(); n != 1 || sum != 0 {
			t.Errorf("%d crossings, %v s", n, sum)
		}
		e.Inherits(time.Now())
		e.ask(rule)
		if intervals(2); e.found().Decisions != 7 {
			t.Errorf("%+v", e.found())
		}
		cancel()
	})
}

// An edge that presence tells of, and that notes nothing or watches other sources: what one counted then is not complete. One that started after
// the interval has no batch, and nothing is missing.
func TestEdgeThatNotesNothing(t *testing.T) {
	for _, c := range []struct {
		what     string
		notes    bool
		oneIn    int
		began    time.Duration
		complete bool
	}{
		{"no batch", false, 1, 0, false},
		{"other sources", true, 1 << 40, 0, false},
		{"the same", true, 1, 0, true},
		{"not there yet", false, 1, time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, rule := newSite(t, 1), newRule(t)
			one := s.start(1)
			time.Sleep(time.Second)
			two := s.start(2)
			two.Notes = audit.New(c.oneIn, s.key.Watch, time.Now())
			s.change(func() { two.Edge.Started = time.Now().Add(c.began) })
			if !c.notes {
				two.cancel()
			}
			intervals(6)
			for range 5 {
				one.ask(rule)
				time.Sleep(20 * time.Millisecond)
			}
			intervals(3)
			if f := one.found(); (f.Decisions == 5) != c.complete || (one.incomplete() == 0) != c.complete {
				t.Errorf("%s: %+v, %d incomplete", c.what, f, one.incomplete())
			}
			s.end()
		})
	}
}

// What three edges find of their own decisions is what a judge finds who sees every answer by one clock: the same where their clocks agree, and as
// far as what they call uncertain where those are apart. Half of the sources go from edge to edge, whose counters
// know nothing of each other's.
func TestAgreesWithTheJudge(t *testing.T) {
	for _, apart := range []time.Duration{0, 2 * time.Millisecond} { // of one edge and the next, so that the first and the last stay within the tolerance
		synctest.Test(t, func(t *testing.T) {
			s, rule := newSite(t, 2), newRule(t)
			var edges []*edge
			for id := range uint64(3) {
				edges = append(edges, s.start(id+1))
				time.Sleep(time.Second)
			}
			intervals(5)
			random, began := rand.New(rand.NewPCG(1, 2)), time.Now()
			var seen []judge.Decision
			for time.Since(began) < 10*time.Minute {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(60*time.Millisecond)))
				n, at := int32(random.IntN(20)), random.IntN(3)
				if n < 10 { // stays with its edge, which errs by the formula alone
					at = int(n) % 3
				}
				d := judge.Decision{At: time.Since(began), Source: n, Edge: int16(at), Estimate: math.NaN()}
				source := counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32, 64)
				if edges[at].decide(rule, source, time.Now().Add(time.Duration(at)*apart)) == limiter.Limited {
					d.Verdict = judge.Limited
				}
				seen = append(seen, d)
			}
			intervals(3)
			want := judge.Judge(judge.Deployed, judge.Options{Limit: rule.Counter.Limit, Window: rule.Counter.Window, Edges: len(edges)}, seen, nil)
			got := edges[0].found()
			if got.Decisions != uint64(len(seen)) || want.Decisions != got.Decisions || got.Allowed == 0 || got.Limited == 0 {
				t.Errorf("%v apart: %d decisions, the edges judged %+v and the judge %d", apart, len(seen), got, want.Decisions)
			}
			differ := max(got.Allowed, want.WronglyAllowed) - min(got.Allowed, want.WronglyAllowed) + max(got.Limited, want.WronglyLimited) - min(got.Limited, want.WronglyLimited)
			if differ > got.Uncertain || apart == 0 && differ > 0 || apart > 0 && (got.Uncertain == 0 || got.Uncertain > got.Decisions/100) {
				t.Errorf("%v apart: the edges %+v, the judge %d allowed and %d limited", apart, got, want.WronglyAllowed, want.WronglyLimited)
			}
			s.end()
		})
	}
}
