package counter

import (
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
)

// rankedEdge is an edge whose commands wait to be carried out, one after the other.
type rankedEdge struct {
	*Table
	ahead        time.Duration // its clock
	rule         *algorithm.Spec
	commands     []func()
	reservations []*Reservation
}

// rankedTier is edges with skewed clocks, and the groups that their tier has.
type rankedTier struct {
	groups map[uint32]uint64
	edges  []*rankedEdge
	now    time.Time
}

func (w *rankedTier) clock(e *rankedEdge) time.Time { return w.now.Add(e.ahead) }

// ask has the edge count a request that waits, and reports whether it does.
func (w *rankedTier) ask(e *rankedEdge) bool {
	reservations := []Reservation{{Rule: e.rule, Source: address(1), Hits: 1, Ticket: new(Ticket)}}
	if !e.Reserve(reservations, w.clock(e)) {
		return false
	}
	e.reservations = append(e.reservations, &reservations[0])
	return true
}

// report has the edge queue what it has to report, as pop does.
func (w *rankedTier) report(e *rankedEdge) {
	for _, c := range e.Reports().Dirty(nil, 1) {
		rep, ok := e.Reports().Take(c, w.clock(e))
		if !ok {
			continue
		}
		for _, p := range rep.Parts[:rep.N] {
			add := func(value uint64) bool {
				if _, there := w.groups[p.Group]; there {
					return false
				}
				w.groups[p.Group] = value
				return true
			}
			incr := func() {
				w.groups[p.Group] += p.Hits
				e.Reports().Counted(c, p, w.groups[p.Group], w.clock(e))
			}
			switch {
			case p.There:
				e.commands = append(e.commands, incr)
			case rep.WriteFirst:
				e.commands = append(e.commands, func() { add(p.Known - p.Hits) }, incr)
			default:
				e.commands = append(e.commands, func() {
					if add(p.Known) {
						e.Reports().Counted(c, p, p.Known, w.clock(e))
					} else {
						e.commands = append(e.commands, incr)
					}
				})
			}
		}
		if rep.Past {
			e.commands = append(e.commands, func() {
				var groups []uint64
				for g := rep.Newest - 1; ; g-- {
					if groups = append(groups, w.groups[g]); g == rep.Oldest {
						break
					}
				}
				e.Reports().Learn(c, rep.Newest-1, groups, 0, w.clock(e))
			})
		}
	}
	for _, b := range e.Reports().TakeBacks(nil) {
		e.commands = append(e.commands, func() { w.groups[b.Group] -= b.Hits })
	}
}

// Requests that come at once over edges whose clocks are up to two seconds apart are admitted no more often than the limit, in whatever order
// the tier carries out what it is asked, also where a group of sub-windows begins meanwhile; and exactly so often where none does. What is
// refused does not stay in the tier, nor what is cancelled because it has waited too long.
func TestRanksOfParallelRequests(t *testing.T) {
	for _, impatient := range []bool{false, true} {
		ranksOfParallelRequests(t, impatient)
	}
}

func ranksOfParallelRequests(t *testing.T, impatient bool) {
	const limit = 10
	boundary := time.Unix(1_700_000_000, 0) // of groups of 20 s
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := &rankedTier{groups: make(map[uint32]uint64)}
		settled := seed%2 == 0
		if w.now = boundary.Add(-time.Duration(rng.IntN(1000)) * time.Millisecond); settled {
			w.now = boundary.Add(10 * time.Second)
		}
		rule, err := algorithm.NewSliding("r", limit, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		rule.Sync = true
		for range 4 {
			e := &rankedEdge{Table: New(Options{Counters: 100, Tier: true}), rule: rule, ahead: time.Duration(rng.IntN(2000)) * time.Millisecond}
			w.edges = append(w.edges, e)
		}
		admitted, left := 0, 40
		for steps := 0; left > 0 || w.busy(); steps++ {
			if steps > 10_000 {
				t.Fatalf("seed %d: it does not end", seed)
			}
			e := w.edges[rng.IntN(len(w.edges))]
			switch w.now = w.now.Add(time.Duration(rng.IntN(10)) * time.Millisecond); {
			case left > 0 && rng.IntN(3) == 0:
				w.ask(e)
				left--
			case impatient && len(e.reservations) > 0 && rng.IntN(3) == 0:
				e.Order(e.reservations[0], w.clock(e)) // the edge has settled all that are answered
				e.Cancel(e.reservations[0])
				e.reservations = e.reservations[1:]
			case len(e.commands) > 0:
				c := e.commands[0]
				e.commands = e.commands[1:]
				c()
			default:
				w.report(e)
			}
			admitted += w.settle(e)
		}
		stay := uint64(0)
		for _, g := range w.groups {
			stay += rule.Lanes().Sum(g)
		}
		if admitted > limit || settled && !impatient && admitted != limit || stay != uint64(admitted) {
			t.Fatalf("seed %d, impatient %v: %d admitted of a limit of %d, and %d stay in the tier", seed, impatient, admitted, limit, stay)
		}
	}
}

func (w *rankedTier) busy() bool {
	for _, e := range w.edges {
		if len(e.commands)+len(e.reservations) > 0 {
			return true
		}
		w.report(e)
		if len(e.commands) > 0 {
			return true
		}
	}
	return false
}

// settle ends the requests of an edge that have their rank, and says how many are admitted.
func (w *rankedTier) settle(e *rankedEdge) (admitted int) {
	var waiting []*Reservation
	for _, a := range e.reservations {
		select {
		case <-a.Ticket.Reply:
			switch e.Order(a, w.clock(e)) {
			case Within:
				e.Commit(a, w.clock(e))
				admitted++
			case Silent:
				panic("a report was given up")
			}
		default:
			waiting = append(waiting, a)
		}
	}
	e.reservations = waiting
	return admitted
}

// Requests whose answers come later, and may not count, are refused only where the tier has seen the limit used up since they asked: by what
// counts, by others under way, or by what is on its way back. What counts and what is under way is never more than the limit, and the tier
// ends with what counts.
func TestRanksOfRequestsThatMayNotCount(t *testing.T) {
	const limit = 6
	type request struct {
		e     *rankedEdge
		a     *Reservation
		since int // the most that was in use since it asked
	}
	refused := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := &rankedTier{groups: make(map[uint32]uint64), now: time.Unix(1_700_000_010, 0)}
		rule, err := algorithm.NewSliding("r", limit, time.Minute, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		rule.Sync = true
		for range 1 + seed%3 {
			w.edges = append(w.edges, &rankedEdge{Table: New(Options{Counters: 100, Tier: true}), rule: rule})
		}
		var waiting, held []*request
		used, counted := 0, 0
		for left := 60; left > 0 || len(waiting)+len(held) > 0 || w.busy(); {
			e := w.edges[rng.IntN(len(w.edges))]
			switch w.now = w.now.Add(time.Duration(rng.IntN(10)) * time.Millisecond); {
			case left > 0 && rng.IntN(3) == 0:
				left--
				reservations := []Reservation{{Rule: rule, Source: address(1), Hits: 1, Hold: true, Ticket: new(Ticket)}}
				if !e.Reserve(reservations, w.now) {
					break
				}
				used++
				waiting = append(waiting, &request{e, &reservations[0], 0})
			case len(held) > 0 && rng.IntN(3) == 0:
				i := rng.IntN(len(held))
				r := held[i]
				held = append(held[:i], held[i+1:]...)
				if rng.IntN(6) == 0 {
					counted++
					r.e.Commit(r.a, w.now)
				} else {
					r.e.Cancel(r.a)
				}
			case len(e.commands) > 0:
				c := e.commands[0]
				e.commands = e.commands[1:]
				c()
			default:
				backs := e.Reports().TakeBacks(nil)
				for _, b := range backs {
					e.commands = append(e.commands, func() {
						w.groups[b.Group] -= b.Hits
						used -= int(rule.Lanes().Sum(b.Hits))
					})
				}
				w.report(e)
			}
			for _, r := range waiting {
				r.since = max(r.since, used)
			}
			for i := 0; i < len(waiting); i++ {
				r := waiting[i]
				select {
				case <-r.a.Ticket.Reply:
				default:
					continue
				}
				switch r.e.Order(r.a, w.now) {
				case Within:
					held = append(held, r)
				case Beyond:
					refused++
					if r.since <= limit {
						t.Fatalf("seed %d: refused although %d were in use at most", seed, r.since)
					}
					if r.a.Committed && counted < limit && len(w.edges) == 1 { // others' slots are unknown to it
						t.Fatalf("seed %d: blocks with %d counted and %d under way", seed, counted, len(held))
					}
				}
				waiting = append(waiting[:i], waiting[i+1:]...)
				i--
			}
			if counted+len(held) > limit {
				t.Fatalf("seed %d: %d count and %d are under way", seed, counted, len(held))
			}
		}
		stay := uint64(0)
		for _, g := range w.groups {
			stay += rule.Lanes().Sum(g)
		}
		if stay != uint64(counted) {
			t.Fatalf("seed %d: %d stay in the tier, and %d count", seed, stay, counted)
		}
		for i, e := range w.edges {
			if n := e.rounds(); n != 0 {
				t.Fatalf("seed %d: edge %d keeps %d rounds", seed, i, n)
			}
		}
	}
	t.Log(refused, "refused")
}

// rounds is how many counters have rounds, or places.
func (e *rankedEdge) rounds() (n int) {
	for i := range e.shards {
		n += len(e.shards[i].ranks)
	}
	return n
}

// More requests at once than one report may say are ranked all the same, and those that are beyond do not count.
func TestMoreThanAReportIsRanked(t *testing.T) {
	rule, err := algorithm.NewSliding("r", 10, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	rule.Sync = true
	w := &rankedTier{groups: make(map[uint32]uint64), now: time.Unix(1_700_000_010, 0)}
	e := &rankedEdge{Table: New(Options{Counters: 100, Tier: true}), rule: rule}
	w.edges = append(w.edges, e)
	for range 1000 {
		w.ask(e)
	}
	admitted := 0
	for len(e.reservations) > 0 {
		w.report(e)
		for len(e.commands) > 0 {
			c := e.commands[0]
			e.commands = e.commands[1:]
			c()
		}
		admitted += w.settle(e)
	}
	w.report(e)
	for _, c := range e.commands {
		c()
	}
	stay := uint64(0)
	for _, g := range w.groups {
		stay += rule.Lanes().Sum(g)
	}
	if v, _ := e.Peek(rule, address(1), w.now); admitted != 10 || stay != 10 || v.Estimate != 10 {
		t.Errorf("%d admitted, %d stay in the tier, %v here", admitted, stay, v.Estimate)
	}
}

// A request that has waited in vain, and is refused, counts nowhere once the tier's answer is there, however the cancellation and the answer
// fall. Only if nobody can tell whether the tier has counted it, it does.
func TestWaitedInVain(t *testing.T) {
	rule, err := algorithm.NewSliding("r", 10, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	rule.Sync = true
	now := time.Unix(1_700_000_010, 0)
	for _, test := range []struct {
		name         string
		steps        string // s: the report is sent, and carried out; r: it is answered; n: it did not reach the tier, x: nobody knows; w: waited in vain, c: cancelled
		here         float64
		there, backs uint64
	}{
		{"not sent", "wc", 0, 0, 0},
		{"answered after it", "swcr", 0, 1, 1},
		{"answered meanwhile", "swrc", 0, 1, 1},
		{"not reached, after it", "swcn", 0, 0, 0},
		{"not reached, meanwhile", "swnc", 0, 0, 0},
		{"nobody knows", "swcx", 1, 0, 0},
		{"nobody knows, meanwhile", "swxc", 1, 0, 0},
	} {
		c := New(Options{Counters: 100, Tier: true})
		ask := func() *Reservation {
			reservations := []Reservation{{Rule: rule, Source: address(1), Hits: 1, Ticket: new(Ticket)}}
			if !c.Reserve(reservations, now) {
				t.Fatal("refused")
			}
			return &reservations[0]
		}
		var who Counter
		var rep Report
		there := uint64(0)
		answer := func() {
			c.Reports().Counted(who, rep.Parts[0], there, now)
			if rep.Past {
				c.Reports().Learn(who, rep.Newest-1, make([]uint64, rep.Newest-rep.Oldest), 0, now)
			}
		}
		a := ask()
		for _, step := range test.steps {
			switch step {
			case 's':
				who = c.Reports().Dirty(nil, 1)[0]
				rep, _ = c.Reports().Take(who, now)
				there = rep.Parts[0].Hits
			case 'r':
				answer()
			case 'n':
				there = 0
				c.Reports().Returned(who, rep.Parts[0], now)
			case 'x':
				there = 0
				c.Reports().Lost(who, rep.Parts[0], now)
			case 'w':
				if rank := c.Order(a, now); rank != Silent {
					t.Errorf("%s: rank %d", test.name, rank)
				}
			case 'c':
				c.Cancel(a)
			}
		}
		backs := uint64(0)
		for _, b := range c.Reports().TakeBacks(nil) {
			backs += rule.Lanes().Sum(b.Hits)
		}
		v, _ := c.Peek(rule, address(1), now)
		if v.Estimate != test.here || rule.Lanes().Sum(there) != test.there || backs != test.backs {
			t.Errorf("%s: %v here, %d in the tier, %d taken back; want %+v", test.name, v.Estimate, rule.Lanes().Sum(there), backs, test)
		}
	}
}

// Requests that were cancelled under way are nothing to block a source for, and take no room from those that wait.
func TestWaitedInVainTakesNoRoom(t *testing.T) {
	rule, err := algorithm.NewSliding("r", 2, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	rule.Sync = true
	w := &rankedTier{groups: make(map[uint32]uint64), now: time.Unix(1_700_000_010, 0)}
	e := &rankedEdge{Table: New(Options{Counters: 100, Tier: true}), rule: rule}
	answer := func() {
		for w.report(e); len(e.commands) > 0; w.report(e) {
			for _, c := range e.commands {
				e.commands = e.commands[1:]
				c()
			}
		}
	}
	for range 4 {
		w.ask(e)
	}
	w.report(e)
	for _, a := range e.reservations[:3] {
		e.Order(a, w.now)
		e.Cancel(a)
	}
	e.reservations = e.reservations[3:]
	if v, _ := e.Peek(rule, address(1), w.now); !v.Over || v.Committed {
		t.Errorf("%+v with one that waits and three that were cancelled", v)
	}
	answer()
	if n := w.settle(e); n != 1 {
		t.Error("who still waited was refused")
	}
	answer()
	for range 2 {
		w.ask(e)
	}
	answer()
	if n := w.settle(e); n != 1 {
		t.Errorf("%d of two more are within a limit of two", n)
	}
}

// TestTakenBackIsInNoHistogram: of requests whose answers say that they do not count, nothing stays: neither in the
// lanes nor in the bins that say when hits came, which others receive.
func TestTakenBackIsInNoHistogram(t *testing.T) {
	w := &rankedTier{groups: make(map[uint32]uint64), now: time.Unix(1_700_000_010, 0)}
	r := rule(t, 40, time.Minute, 12, algorithm.Nearest)
	r.Sync = true
	e := &rankedEdge{Table: New(Options{Counters: 100, Tier: true}), rule: r}
	w.edges = []*rankedEdge{e}
	var held []*Reservation
	for range 12 {
		reservations := []Reservation{{Rule: r, Source: address(1), Hits: 1, Hold: true, Ticket: new(Ticket)}}
		if !e.Reserve(reservations, w.now) {
			t.Fatal("refused within the limit")
		}
		held = append(held, &reservations[0])
		for w.busy() {
			c := e.commands[0]
			e.commands = e.commands[1:]
			c()
		}
		if got := e.Order(held[len(held)-1], w.now); got != Within {
			t.Fatalf("rank %v", got)
		}
		w.now = w.now.Add(300 * time.Millisecond)
	}
	bins := func() (hits int) {
		e.at(Counter{Rule: r, Source: address(1)}, func(s *shard, st *store, i int) {
			for n := r.Number(s.advance(st, i, r, e.ns(w.now))); n > 0 && hits < 100; n-- {
				if b := s.histograms.Bins(s.own(st, i).Get(), n); b.Known() {
					hits += int(b.Sum(0))
				} else {
					break
				}
			}
		})
		return hits
	}
	if bins() == 0 {
		t.Fatal("the counter has no histogram")
	}
	for _, a := range held {
		e.Cancel(a)
	}
	if v, _ := e.Peek(r, address(1), w.now); v.Estimate != 0 || bins() != 0 {
		t.Errorf("estimate %v, and %d hits in bins", v.Estimate, bins())
	}
}
