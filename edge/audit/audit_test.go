package audit

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/audit/exactlog"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

var epoch = time.Unix(1_700_000_000, 0)

func second(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// A bench is a limiter with one rule, and an audit that watches one source in some.
type bench struct {
	*limiter.Limiter
	*Audit
	rule *limiter.Rule
	d    limiter.Decision
}

func newBench(t *testing.T, limit uint32, share int) *bench {
	t.Helper()
	c, err := algorithm.NewSliding("r source enforce", limit, 10*time.Second, 8, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{rule: &limiter.Rule{Rule: mitigation.Rule{Counter: c}}, Audit: New(share, nil, epoch),
		Limiter: &limiter.Limiter{Counters: counter.New(counter.Options{Counters: 10_000}), Bits: mitigation.New(1000, nil)}}
	b.Audit.Blocks = b.Bits.Get
	return b
}

func source(n int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32, 64)
}

func (b *bench) decide(s counter.Source, now time.Time) {
	b.d.Reset()
	b.d.Add(b.rule, s)
	if b.Watches(&b.d) {
		b.Audit.Lock()
		defer b.Audit.Unlock()
		defer b.Note(&b.d, now)
	}
	b.Decide(&b.d, now)
}

func kinds(b *exactlog.Batch) (all []exactlog.Kind) {
	for _, g := range b.Groups {
		for _, e := range g.Entries {
			all = append(all, e.Kind)
		}
	}
	return all
}

func same(a []exactlog.Kind, b ...exactlog.Kind) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Decisions are noted in their order, with the rule and the estimate.
func TestNotes(t *testing.T) {
	b := newBench(t, 2, 1)
	for i := range 4 {
		b.decide(source(1), second(float64(i)))
	}
	b.decide(source(1), second(2.5)) // its clock was read earlier, and it was counted later
	got := b.Take(5, second(4))
	if !same(kinds(got), exactlog.Counted, exactlog.Counted, exactlog.Refused, exactlog.Refused, exactlog.Refused) {
		t.Fatalf("%+v", got)
	}
	g := got.Groups[0]
	if g.Rule.Name != "r" || g.Rule.Limit != 2 || g.Rule.Window != 10*time.Second || g.Entries[1].At != second(1).UnixMicro() || g.Entries[1].Estimate != 2 || g.Entries[4].At != g.Entries[3].At {
		t.Errorf("%+v", g)
	}
	if got.Number != 5 || got.Began != epoch.UnixMicro() {
		t.Errorf("%+v", got)
	}
	if again := b.Take(6, second(4)); len(again.Groups) != 0 {
		t.Errorf("noted twice: %+v", again)
	}
}

// Of refusals under a block the first on an edge is noted, unless operators block.
func TestNotesBlocksOnce(t *testing.T) {
	b := newBench(t, 2, 1)
	key := mitigation.Key{Rule: b.rule.Counter.ID, Source: source(1)}
	b.Bits.Start(key, mitigation.Bit{Start: second(0), End: second(60), By: mitigation.ByPoP, Terms: b.rule.Terms()}, second(0))
	for i := range 10 {
		b.decide(source(1), second(float64(i)))
	}
	got := b.Take(0, second(10))
	if !same(kinds(got), exactlog.Blocked) || got.Groups[0].Entries[0].Start != second(0).UnixMicro() {
		t.Errorf("%+v", got)
	}
	b.decide(source(1), second(11)) // in another interval
	b.Bits.Start(mitigation.Key{Rule: key.Rule, Source: source(2)}, mitigation.Bit{Start: second(0), End: second(60), By: mitigation.ByAdmin}, second(0))
	b.decide(source(2), second(12))
	if got := b.Take(1, second(13)); len(got.Groups) != 0 {
		t.Errorf("%+v", got)
	}
}

// A lift is noted.
func TestNotesLifts(t *testing.T) {
	b := newBench(t, 2, 1)
	b.Forget(b.rule.Counter, source(1), second(1))
	if got := b.Take(0, second(2)); !same(kinds(got), exactlog.Lifted) {
		t.Errorf("%+v", got)
	}
	var nobody *Audit
	nobody.Forget(b.rule.Counter, source(1), second(1))
}

// What cannot be judged is not noted.
func TestNotesNoOtherRules(t *testing.T) {
	for what, change := range map[string]func(*limiter.Rule){
		"refusals count":       func(r *limiter.Rule) { r.Refused = true },
		"requests cost":        func(r *limiter.Rule) { r.Costs = true },
		"the status decides":   func(r *limiter.Rule) { r.Statuses = []int{401} },
		"the limit is too big": func(r *limiter.Rule) { r.Counter.Limit = maxLimit + 1 },
	} {
		b := newBench(t, 2, 1)
		change(b.rule)
		b.decide(source(1), second(0))
		if got := b.Take(0, second(1)); len(got.Groups) != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// One source in so many is watched, by the hash; whoever has the same one watches the same.
func TestWatchesSome(t *testing.T) {
	b := newBench(t, 2, 16)
	b.hash = func(s counter.Source) uint64 { p, _ := s.Prefix(); a := p.Addr().As4(); return uint64(a[3]) }
	for n := range 64 {
		b.decide(source(n), second(0))
	}
	if got := b.Take(0, second(1)); len(got.Groups) != 4 {
		t.Errorf("%d of 64 are watched", len(got.Groups))
	}
}

// However much a source does, a batch has a bound; refusals leave room for what counts, and what has no room is told of.
func TestNotesAreBounded(t *testing.T) {
	b := newBench(t, 2, 1)
	for range 2 * exactlog.MaxEntries {
		b.decide(source(1), second(0))
	}
	for n := range exactlog.MaxGroups + 10 {
		b.decide(source(n+2), second(0))
	}
	got := b.Take(0, second(1))
	if n := len(kinds(got)); n > exactlog.MaxEntries-roomForHits+exactlog.MaxGroups || len(got.Groups) != exactlog.MaxGroups || !got.Gap || b.Dropped() == 0 {
		t.Errorf("%d entries, %d groups, gap %v, %d dropped", n, len(got.Groups), got.Gap, b.Dropped())
	}
	if next := b.Take(1, second(2)); next.Gap || len(next.Groups) != 0 {
		t.Errorf("%+v", next)
	}
	b = newBench(t, maxLimit, 1)
	for n := range 3 * maxLimit {
		b.decide(source(n%3), second(0))
	}
	if got := b.Take(0, second(1)); got.Gap || !got.Groups[0].Gap && !got.Groups[1].Gap && !got.Groups[2].Gap {
		t.Error("nobody tells of hits for which there was no room")
	}
}
