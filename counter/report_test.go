package counter

import (
	"maps"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// reporter is a counter of a table with a tier, and the tier's numbers of it by group.
type reporter struct {
	t     *testing.T
	table *Table
	c     Counter
	tier  map[uint32]uint64

	reply Reply // after the last answer
}

func newReporter(t *testing.T, r *algorithm.Spec, tier map[uint32]uint64) *reporter {
	return &reporter{t: t, table: New(Options{Counters: 100, Tier: true}), c: Counter{Rule: r, Source: address(1)}, tier: tier}
}

func (r *reporter) hit(at time.Time) {
	ask := [1]Reservation{{Rule: r.c.Rule, Source: r.c.Source, Hits: 1}}
	r.table.Reserve(ask[:], at)
}

// report answers what there is to report, after a Sweep, and says how many commands that took and how many hits it brought.
func (r *reporter) report(at time.Time, all bool) (commands int, hits uint64) {
	r.table.Reports().Sweep(at, all)
	for _, c := range r.table.Reports().Dirty(nil, 1) {
		rep, _ := r.table.Reports().Take(c, at)
		for _, p := range rep.Parts[:rep.N] {
			if _, there := r.tier[p.Group]; there == p.There {
				commands++ // incr of what is there, or add of what is not
			} else {
				commands += 2
			}
			r.tier[p.Group] += p.Hits
			hits += c.Rule.Packing().Sum(p.Hits)
			r.reply = r.table.Reports().Counted(c, p, r.tier[p.Group], at)
		}
	}
	return commands, hits
}

// TestHitsWaitForASecond: far from its limit a source costs each edge one command a second, besides one for each group that begins, and no
// hit waits for longer than that and a Sweep. Under a rule with shorter sub-windows it is a sub-window.
func TestHitsWaitForASecond(t *testing.T) {
	const tick = 100 * time.Millisecond
	f := func(window, wait time.Duration) {
		t.Helper()
		r := rule(t, 10_000, window, 12, algorithm.Nearest)
		tier := make(map[uint32]uint64)
		edges := []*reporter{newReporter(t, r, tier), newReporter(t, r, tier), newReporter(t, r, tier)}
		begin := time.Unix(1_700_000_000/20*20, 0)
		const length = 2 * time.Minute
		waiting := make([][]time.Time, len(edges)) // since when hits do
		commands, longest := 0, time.Duration(0)
		for at := begin; at.Sub(begin) < length; at = at.Add(tick) {
			for i, e := range edges {
				e.table.SetEdges(len(edges))
				if (int(at.Sub(begin)/tick)+i)%2 == 0 {
					e.hit(at)
					waiting[i] = append(waiting[i], at)
				}
				n, hits := e.report(at, false)
				commands += n
				for _, since := range waiting[i][:hits] {
					longest = max(longest, at.Sub(since))
				}
				waiting[i] = waiting[i][hits:]
			}
		}
		if most := int(length/wait+length/r.Group()+2) * len(edges); commands > most {
			t.Errorf("window %v: %d commands in %v, want at most %d", window, commands, length, most)
		}
		// What the tier has answered is known to a 64 ms, and Sweep is called once a tick.
		if longest > wait+recency+tick {
			t.Errorf("window %v: a hit waits for %v, want %v", window, longest, wait)
		}
		for i, e := range edges {
			if s := e.table.Stats(); s.Unreported != uint64(len(waiting[i])) || lost(s) != 0 {
				t.Errorf("window %v: %+v, while %d hits wait", window, s, len(waiting[i]))
			}
		}
	}
	f(time.Minute, time.Second)
	f(6*time.Second, 500*time.Millisecond)
}

// TestGivenOutOnce: however many hits come, a counter that waits to be taken waits once.
func TestGivenOutOnce(t *testing.T) {
	e := newReporter(t, rule(t, 100, time.Minute, 12, algorithm.Nearest), nil)
	at := time.Unix(1_700_000_000, 0)
	given := 0
	for range 50 {
		e.hit(at)
		e.table.Reports().Sweep(at, false)
		given += len(e.table.Reports().Dirty(nil, 1))
	}
	if given != 1 {
		t.Errorf("given out %d times before it was taken, want once", given)
	}
	if rep, ok := e.table.Reports().Take(e.c, at); !ok || e.c.Rule.Packing().Sum(rep.Parts[0].Hits) != 50 {
		t.Errorf("took %+v, want 50 hits", rep)
	}
}

// TestBusyCountersAreRead: about once a minute, so that memcached keeps them; others are not.
func TestBusyCountersAreRead(t *testing.T) {
	f := func(window, every time.Duration, used, least, most int) {
		t.Helper()
		e := newReporter(t, rule(t, 1000, window, 12, algorithm.Nearest), make(map[uint32]uint64))
		at, reads := time.Unix(1_700_000_000, 0), 0
		for range used {
			e.hit(at)
		}
		for end := at.Add(20 * time.Minute); at.Before(end); at = at.Add(every) {
			e.hit(at)
			e.table.Reports().Sweep(at, true)
			for _, c := range e.table.Reports().Dirty(nil, 1) {
				rep, _ := e.table.Reports().Take(c, at)
				newest, _ := e.table.Reports().Snapshot(c, at)
				if rep.Past && rep.Newest == newest+1 {
					reads++
				}
				for _, p := range rep.Parts[:rep.N] {
					e.tier[p.Group] += p.Hits
					e.table.Reports().Counted(c, p, e.tier[p.Group], at)
				}
			}
		}
		if reads < least || reads > most {
			t.Errorf("a window of %v, %d hits and one every %v: read %d times in 20 minutes, want %d to %d", window, used, every, reads, least, most)
		}
	}
	f(time.Hour, 10*time.Second, 600, 16, 20)
	f(24*time.Hour, 10*time.Second, 600, 16, 20)
	f(time.Hour, 10*time.Second, 0, 0, 0)
	f(time.Minute, time.Second, 600, 0, 0) // its numbers do not live long enough
}

// TestLargeReportsCountOnce: hits that take more than one command are stored once, though the first command stores all that is known.
func TestLargeReportsCountOnce(t *testing.T) {
	const hits = 3000
	r := newReporter(t, rule(t, 10_000, time.Minute, 12, algorithm.Nearest), make(map[uint32]uint64))
	at := time.Unix(1_700_000_000, 0)
	ask := [1]Reservation{{Rule: r.c.Rule, Source: r.c.Source, Hits: hits}}
	r.table.Reserve(ask[:], at)
	for range hits {
		r.table.Reports().Sweep(at, true)
		for _, c := range r.table.Reports().Dirty(nil, 1) {
			rep, _ := r.table.Reports().Take(c, at)
			for _, p := range rep.Parts[:rep.N] {
				if _, there := r.tier[p.Group]; there {
					r.tier[p.Group] += p.Hits
				} else {
					r.tier[p.Group] = p.Known
				}
				r.table.Reports().Counted(c, p, r.tier[p.Group], at)
			}
		}
	}
	var sum uint64
	for _, g := range r.tier {
		sum += r.c.Rule.Packing().Sum(g)
	}
	if v, _ := r.table.Peek(r.c.Rule, r.c.Source, at); sum != hits || v.Estimate != hits {
		t.Errorf("the tier has %d hits, the table %v, want %d", sum, v.Estimate, hits)
	}
}

// TestReadOfWhatOnlyOthersCounted: a table that has counted nothing itself takes in what the tier has of a counter that
// was announced.
func TestReadOfWhatOnlyOthersCounted(t *testing.T) {
	r := newReporter(t, rule(t, 100, time.Minute, 12, algorithm.Nearest), nil)
	_, newest := r.table.Reports().Groups(r.c.Rule, epoch, 0)
	r.table.Reports().Announced(r.c, newest, []uint64{3}, epoch)
	r.table.Reports().Read(r.c, newest, 5, epoch)
	if v, _ := r.table.Peek(r.c.Rule, r.c.Source, epoch); v.Estimate != 5 {
		t.Errorf("estimate %v, want 5", v.Estimate)
	}
}

// TestAnswerAfterEviction: an answer to a report of a counter that has been pushed out says nothing about a report that it has sent since it
// came back.
func TestAnswerAfterEviction(t *testing.T) {
	r := rule(t, 100, time.Minute, 12, algorithm.Nearest)
	e := newReporter(t, r, nil)
	take := func(hits uint32) Part {
		ask := [1]Reservation{{Rule: r, Source: e.c.Source, Hits: hits}}
		e.table.Reserve(ask[:], epoch)
		e.table.Reports().Sweep(epoch, true)
		rep, _ := e.table.Reports().Take(e.c, epoch)
		return rep.Parts[0]
	}
	first := take(7)
	e.table.Forget(r, e.c.Source) // as a full table does
	second := take(4)
	e.table.Reports().Lost(e.c, first, epoch)
	if s := e.table.Stats(); s.Unreported != 4 || lost(s) != 7 {
		t.Errorf("after the answer to the first report: %d unreported, %d lost, want 4 and 7", s.Unreported, lost(s))
	}
	e.table.Reports().Counted(e.c, second, 4, epoch)
	if s := e.table.Stats(); s.Unreported != 0 || lost(s) != 7 {
		t.Errorf("after the answer to the second: %d unreported, %d lost, want 0 and 7", s.Unreported, lost(s))
	}
}

// TestUnknownCountersAreReadAfterTheirReport: who knows nothing of older groups waits for the answer about the newest, and reads them if nobody
// else may have, or if nothing is announced of so small a limit.
func TestUnknownCountersAreReadAfterTheirReport(t *testing.T) {
	f := func(limit uint32, met bool, others, hits int, want bool) {
		t.Helper()
		e := newReporter(t, rule(t, limit, time.Minute, 12, algorithm.Nearest), make(map[uint32]uint64))
		at := time.Unix(1_700_000_000, 0)
		if met {
			e.hit(at)
			e.report(at, true)
			at = at.Add(2 * time.Minute)
		}
		for range hits {
			e.hit(at)
		}
		e.table.Reports().Sweep(at, true)
		e.table.Reports().Dirty(nil, 1)
		rep, ok := e.table.Reports().Take(e.c, at)
		if !ok || rep.N != 1 || rep.Past {
			t.Fatalf("limit %d: took %+v, want one part, nothing read with it", limit, rep)
		}
		p := rep.Parts[0]
		if got := e.table.Reports().Counted(e.c, p, p.Hits*uint64(1+others/hits), at).Past; got != want {
			t.Errorf("limit %d, met before: %v, %d hits after %d of others: read %v, want %v", limit, met, hits, others, got, want)
		}
	}
	f(100, false, 0, 1, true)   // it is the first in its group, and the source may be mitigated
	f(100, false, 10, 1, false) // another was
	f(100, false, 48, 1, false) // announced to all edges on the way to the limit
	f(100, false, 300, 1, false)
	f(3, false, 1, 1, true) // of so small a limit nothing is announced before it is full
	f(3, false, 2, 1, false)
	f(100, true, 0, 1, false)
	f(100, true, 24, 1, false)
	f(3, true, 0, 1, true)
	f(1, true, 0, 1, false)
}

// TestHitsOfSeveralGroupsAreReportedOnce: hits that waited while groups began are reported under the group in which they came, once, unless that has left the
// window; and who comes next reports none of them.
func TestHitsOfSeveralGroupsAreReportedOnce(t *testing.T) {
	for _, limit := range []uint32{100, 100_000} {
		r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
		table := New(Options{Counters: 100, Tier: true})
		begin := time.Unix(1_700_000_000/60*60, 0)
		hit := func(source uint32, hits ...uint32) (c Counter, at time.Time) { // in one group after another
			for g, n := range hits {
				at = begin.Add(time.Duration(g) * r.Group())
				if n > 0 {
					table.Reserve([]Reservation{{Rule: r, Source: address(source), Hits: n}}, at)
				}
			}
			return Counter{Rule: r, Source: address(source)}, at
		}
		f := func(source uint32, hits ...uint32) {
			t.Helper()
			c, at := hit(source, hits...)
			want := make(map[uint32]uint64)
			oldest, newest := table.Reports().Groups(r, at, 0)
			for g := oldest; g != newest+1; g++ {
				if i := len(hits) - 1 - int(newest-g); i >= 0 && hits[i] > 0 {
					want[g] = uint64(hits[i])
				}
			}
			rep, _ := table.Reports().Take(c, at)
			got := make(map[uint32]uint64)
			for _, p := range rep.Parts[:rep.N] {
				got[p.Group] += r.Packing().Sum(p.Hits)
				table.Reports().Counted(c, p, p.Known, at)
			}
			if !maps.Equal(got, want) {
				t.Errorf("limit %d, hits %v: reported %v by group, want %v", limit, hits, got, want)
			}
			if left := table.Stats().Unreported; left != 0 {
				t.Errorf("limit %d: %d hits still unreported after %v", limit, left, hits)
			}
		}
		f(1, 2, 3, 4)
		f(2, 1, 5)
		c, _ := hit(3, 8, 9, 10)
		table.Forget(r, c.Source)
		f(4, 1, 5)
		f(5, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 6)
		f(6, 7)
	}
}
