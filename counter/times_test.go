package counter

import (
	"math"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
)

// TestTimesOfOthersHits: a table that is near its limit requests once when others' hits came, gets the answer once, and
// from then on knows them in the cut sub-window as finely as its own.
func TestTimesOfOthersHits(t *testing.T) {
	begin := time.Unix(1_700_000_000/60*60, 0)
	hit := func(table *Table, c Counter, n int, at time.Time) {
		for range n {
			table.Reserve([]Reservation{{Rule: c.Rule, Source: c.Source, Hits: 1}}, at)
		}
	}
	// Half of the first sub-window of 5 s has left the window. b has 24 hits in it for certain, a had 10 in that sub-window.
	now := begin.Add(time.Minute + 2500*time.Millisecond)
	f := func(e algorithm.Estimate, at time.Duration, before, after float64) {
		t.Helper()
		c := Counter{Rule: rule(t, 30, time.Minute, 12, e), Source: address(1)}
		a, b := New(Options{Counters: 100, Tier: true}), New(Options{Counters: 100, Tier: true})
		hit(a, c, 1, begin) // from the second on, times are noted
		hit(a, c, 9, begin.Add(at))
		hit(b, c, 24, begin.Add(50*time.Second))
		var newest uint32
		var groups []uint64
		for copied := range a.All([]*algorithm.Spec{c.Rule}, begin.Add(50*time.Second)) {
			newest, groups = copied.Newest, copied.Groups
		}
		b.Reports().Apply(c, newest, groups, 0, begin.Add(50*time.Second))
		estimate := func(want float64) {
			t.Helper()
			if v, _ := b.Peek(c.Rule, c.Source, now); v.Estimate < want-0.01 || v.Estimate > want+0.01 {
				t.Errorf("%v, hits at %v: %.2f, want %.2f", e, at, v.Estimate, want)
			}
		}
		estimate(before)
		if !b.Reports().Read(c, newest, 0, now).WantTimes {
			t.Errorf("%v, hits at %v: no question of when they came", e, at)
		}
		if b.Reports().Read(c, newest, 0, now).WantTimes {
			t.Errorf("%v, hits at %v: asked twice", e, at)
		}
		exported := a.Reports().ExportTimes(c, now, nil)
		if len(exported) != 1 || len(a.Reports().ExportTimes(c, now, nil)) != 0 {
			t.Fatalf("%v, hits at %v: sent %v, want one sub-window, once", e, at, exported)
		}
		b.Reports().MergeTimes(c, exported[0], now)
		estimate(after)
		for _, own := range b.Reports().ExportTimes(c, now, nil) {
			if own.SubWindow == exported[0].SubWindow {
				t.Errorf("what was received is sent as one's own: %v", own)
			}
		}
	}
	f(algorithm.Nearest, 100*time.Millisecond, 29, 24+0.5) // the half is of the hit whose time is not known
	f(algorithm.Nearest, 4900*time.Millisecond, 29, 24+9.5)
	f(algorithm.Lower, 100*time.Millisecond, 24, 24)
	f(algorithm.Lower, 4900*time.Millisecond, 24, 24+9)
}

// sendTimes has a table send what it is about to, and another take it in.
func sendTimes(from, to *Table, c Counter, now time.Time) {
	for _, times := range from.Reports().ExportTimes(c, now, nil) {
		to.Reports().MergeTimes(c, times, now)
	}
}

// TestTimesOfLaterHits: what a table counts after it has sent its times is sent the next time, before the window's beginning comes there.
// So a source with an even pace just below its limit, at one of two edges for the first part of each sub-window, is refused by neither.
func TestTimesOfLaterHits(t *testing.T) {
	const limit, first = 600, 1500 * time.Millisecond
	const gap = time.Minute * 1000 / (limit * 997)
	begin := time.Unix(1_700_000_000/60*60, 0)
	r, tier := rule(t, limit, time.Minute, 12, algorithm.Nearest), map[uint32]uint64{}
	edges := [...]*reporter{newReporter(t, r, tier), newReporter(t, r, tier)}
	exchanges := 0
	for i := range 4 * limit {
		now := begin.Add(time.Duration(i) * gap)
		edge, other := edges[0], edges[1]
		if now.Sub(begin)%r.SubWindow() > first {
			edge, other = other, edge
		}
		if !edge.table.Reserve([]Reservation{{Rule: r, Source: edge.c.Source, Hits: 1}}, now) {
			t.Fatalf("request %d, after %v, was refused", i, now.Sub(begin))
		}
		now = now.Add(time.Millisecond)
		edge.report(now, true)
		for group, total := range tier {
			other.table.Reports().Read(other.c, group, total, now)
		}
		if edge.reply.WantTimes {
			exchanges++
			sent := edge.table.Reports().ExportTimes(edge.c, now, nil)
			sendTimes(other.table, edge.table, edge.c, now)
			for _, times := range sent {
				other.table.Reports().MergeTimes(other.c, times, now)
			}
		}
	}
	if exchanges < 3 || exchanges > 5 {
		t.Errorf("times were exchanged %d times in four windows", exchanges)
	}
}

// TestTimesAreNotMixed: a table that counted hits in a sub-window itself, and has not sent them, takes in nothing that
// it could then take for its own; nor anything of a sub-window in the middle of the window, of which it may still count
// hits.
func TestTimesAreNotMixed(t *testing.T) {
	begin := time.Unix(1_700_000_000/60*60, 0)
	c := Counter{Rule: rule(t, 30, time.Minute, 12, algorithm.Nearest), Source: address(1)}
	table := New(Options{Counters: 100, Tier: true})
	for range 3 {
		table.Reserve([]Reservation{{Rule: c.Rule, Source: c.Source, Hits: 1}}, begin)
	}
	now := begin.Add(time.Minute + time.Second)
	cut := c.Rule.Cut(c.Rule.Position(now.UnixNano(), 0))
	table.Reports().MergeTimes(c, Times{cut, [histogram.Size]uint16{20: 7}}, now)
	table.Reports().MergeTimes(c, Times{cut + 3, [histogram.Size]uint16{20: 7}}, now)
	if exported := table.Reports().ExportTimes(c, now, nil); len(exported) != 1 || exported[0].Hits != [histogram.Size]uint16{0: 2} {
		t.Errorf("sent %v, want the two hits that it noted", exported)
	}
	if exported := table.Reports().ExportTimes(c, now, nil); len(exported) != 0 {
		t.Errorf("sent %v of a sub-window without hits", exported)
	}
}

// TestOverAfterABlock: a source that was blocked passes for one that was over its limit until a window after the block's end, as far as a
// counter has room for that.
func TestOverAfterABlock(t *testing.T) {
	begin := time.Unix(1_700_000_000/60*60, 0)
	r := rule(t, 20, time.Minute, 12, algorithm.Nearest)
	for lasts, until := range map[time.Duration]time.Duration{ // to the group of 20 s that begins then
		5 * time.Second: 80 * time.Second, 20 * time.Second: 100 * time.Second, time.Minute: 140 * time.Second, time.Hour: 140 * time.Second,
	} {
		e := newReporter(t, r, map[uint32]uint64{})
		e.hit(begin)
		e.table.Blocked(e.c, begin, begin.Add(lasts), begin)
		for at := time.Duration(0); at < 3*time.Minute; at += 10 * time.Second {
			now, over := begin.Add(at), false
			e.table.at(e.c, func(s *shard, st *store, i int) {
				s.advance(st, i, r, e.table.ns(now))
				over = st.head(i).over() > 0
			})
			if over != (at < until) {
				t.Errorf("a block of %v: after %v it passes for one that was over: %t", lasts, at, over)
			}
		}
	}
}

// TestBlockedTakesNoMoreHits: of a sub-window in which a source was blocked, to its end at least, others' hits came before the block.
func TestBlockedTakesNoMoreHits(t *testing.T) {
	begin := time.Unix(1_700_000_000/60*60, 0)
	for _, test := range []struct {
		start, lasts time.Duration // of the block
		at           time.Duration // in the sub-window that the window's beginning cuts
		want         float64
	}{
		{0, 0, 2500 * time.Millisecond, 32}, // none: half of 64 are taken to be left
		{2500 * time.Millisecond, time.Minute, 2500 * time.Millisecond, 64. / 17},
		{2500 * time.Millisecond, time.Minute, 2700 * time.Millisecond, 0},
		{2500 * time.Millisecond, time.Minute, 1250 * time.Millisecond, 64 * 9. / 17},
		{2500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 32}, // others may have come afterwards
		{4999 * time.Millisecond, time.Minute, 2500 * time.Millisecond, 32},
		{0, time.Minute, 160 * time.Millisecond, 0},
	} {
		c := Counter{Rule: rule(t, 1000, time.Minute, 12, algorithm.Nearest), Source: address(1)}
		a, b := New(Options{Counters: 100, Tier: true}), New(Options{Counters: 100, Tier: true})
		a.Reserve([]Reservation{{Rule: c.Rule, Source: c.Source, Hits: 64}}, begin)
		for copied := range a.All([]*algorithm.Spec{c.Rule}, begin) {
			b.Reports().Apply(c, copied.Newest, copied.Groups, 0, begin)
		}
		if start := begin.Add(test.start); test.lasts > 0 {
			b.Blocked(c, start, start.Add(test.lasts), start)
		}
		if v, _ := b.Peek(c.Rule, c.Source, begin.Add(time.Minute+test.at)); math.Abs(v.Estimate-test.want) > 0.01 {
			t.Errorf("blocked after %v for %v: after a minute and %v the estimate is %.2f, want %.2f", test.start, test.lasts, test.at, v.Estimate, test.want)
		}
		if len(b.Reports().ExportTimes(c, begin.Add(time.Minute), nil)) > 0 {
			t.Error("others' hits are sent as one's own")
		}
	}
}
