package counter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
)

// TestEveryHitIsAccountedFor: whatever answers come, late, lost, returned or not at all, and whatever clocks and evictions do, each hit that
// was counted is confirmed, unreported or lost for one of the reasons; and what add stores is never more than what was handed out.
func TestEveryHitIsAccountedFor(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		limit := []uint32{1, 5, 100, 16_000, 16_001, 1_000_000}[rng.IntN(6)]
		r := rule(t, limit, []time.Duration{time.Second, time.Minute, time.Hour}[rng.IntN(3)], []int{1, 2, 4, 8, 12}[rng.IntN(5)], algorithm.Nearest)
		table := New(Options{Counters: 100, Tier: true})
		table.SetEdges(1 + rng.IntN(64))
		sources := uint32(1 + rng.IntN(400)) // evicts some
		handed := make(map[string]uint64)    // by counter and group: what was handed out, lane by lane
		type flight struct {
			c Counter
			p Part
		}
		var flying []flight
		var counted, confirmed uint64
		now := epoch
		evicts := sources > 90
		stepped := false
		for range 400 {
			now = now.Add(time.Duration(rng.ExpFloat64() * float64(r.Window) / float64(10+rng.IntN(300))))
			s := address(rng.Uint32N(sources))
			switch rng.IntN(10) {
			case 0, 1, 2, 3, 4:
				hits := 1 + rng.Uint32N(max(limit/5, 1))
				if ask := [1]Reservation{{Rule: r, Source: s, Hits: hits}}; table.Reserve(ask[:], now) {
					counted += uint64(hits)
				}
			case 5, 6:
				table.Reports().Sweep(now, rng.IntN(4) == 0)
				for _, c := range table.Reports().Dirty(nil, 1+rng.IntN(20)) {
					rep, _ := table.Reports().Take(c, now)
					for _, p := range rep.Parts[:rep.N] {
						flying = append(flying, flight{c, p})
						group := fmt.Sprint(c.Source, p.Group)
						handed[group] += p.Hits
						if known := handed[group]; !evicts && !stepped && r.Packing().Minus(p.Known, known) != 0 {
							t.Fatalf("seed %d: add would store %x, and %x was handed out", seed, p.Known, known)
						}
					}
				}
			case 7, 8:
				for range min(len(flying), 1+rng.IntN(10)) {
					i := rng.IntN(len(flying))
					f := flying[i]
					flying[i] = flying[len(flying)-1]
					flying = flying[:len(flying)-1]
					before := table.Stats()
					switch rng.IntN(6) {
					case 0:
						table.Reports().Lost(f.c, f.p, now)
					case 1:
						handed[fmt.Sprint(f.c.Source, f.p.Group)] -= f.p.Hits
						table.Reports().Returned(f.c, f.p, now)
					case 2:
						table.Reports().Full(f.c, f.p, now)
					default:
						table.Reports().Counted(f.c, f.p, f.p.Known, now)
						after := table.Stats()
						confirmed += before.Unreported - after.Unreported - (lost(after) - lost(before))
					}
				}
			case 9:
				if rng.IntN(8) == 0 {
					for _, f := range flying { // as the PoP does
						table.Reports().Lost(f.c, f.p, now)
					}
					flying, stepped = nil, true
					table.Adjust([]time.Duration{time.Hour, -time.Hour, 5 * time.Second, -5 * time.Second}[rng.IntN(4)], rng.IntN(2) == 0, now)
				}
			}
			if s := table.Stats(); confirmed+s.Unreported+lost(s) != counted || s.Unreported != table.Unreported() {
				t.Fatalf("seed %d: %d counted, but %d confirmed, %d unreported, %d lost (%+v)", seed, counted, confirmed, s.Unreported, lost(s), s)
			}
		}
	}
}

func lost(s Stats) uint64 {
	return s.LostUnknown + s.LostFull + s.LostExpired + s.LostBacklog + s.LostSaturated + s.LostEvicted
}

// TestAddStoresNoPendingHits: what add stores is what was reported, with what it reports; hits that are still pending come later, and would
// be counted twice.
func TestAddStoresNoPendingHits(t *testing.T) {
	for _, limit := range []uint32{1000, 16_000, 1_000_000_000} {
		r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
		e := newReporter(t, r, nil)
		at := time.Unix(1_700_000_000/20*20, 0)
		reported := make(map[uint32]uint64)
		for i := range 50 {
			ask := [1]Reservation{{Rule: r, Source: e.c.Source, Hits: min(limit/100, 1<<25)}}
			e.table.Reserve(ask[:], at)
			e.table.Reports().Sweep(at, true)
			for _, c := range e.table.Reports().Dirty(nil, 1) {
				rep, _ := e.table.Reports().Take(c, at)
				if i%3 == 0 { // further hits while it flies
					e.table.Reserve(ask[:], at)
				}
				for _, p := range rep.Parts[:rep.N] {
					reported[p.Group] += p.Hits
					if p.Known != reported[p.Group] {
						t.Fatalf("limit %d: %x would be stored, want the %x that were reported", limit, p.Known, reported[p.Group])
					}
					e.table.Reports().Counted(c, p, p.Known, at)
				}
			}
			at = at.Add(700 * time.Millisecond)
		}
	}
}

// TestSaturatedLanes: 64 tables that report all at once, each as much as it has, fill a lane of the tier and do not carry into the next. What
// they cannot report they say is lost, and all of them refuse.
func TestSaturatedLanes(t *testing.T) {
	for _, limit := range []uint32{lanes.NarrowMax, algorithm.MaxLimit} {
		r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
		at := time.Unix(1_700_000_000/20*20+7, 0)
		var edges [MaxEdges]*reporter
		for i := range edges {
			edges[i] = newReporter(t, r, nil)
			edges[i].table.SetEdges(len(edges))
			ask := [1]Reservation{{Rule: r, Source: edges[i].c.Source, Hits: limit}}
			if !edges[i].table.Reserve(ask[:], at) {
				t.Fatal("a limit was refused")
			}
		}
		var tier, reported uint64
		for range 200 {
			var parts [MaxEdges]Part
			for i, e := range edges { // all at once, none knowing of the others' in this round
				e.table.Reports().Sweep(at, true)
				parts[i] = Part{}
				for _, c := range e.table.Reports().Dirty(nil, 1) {
					rep, _ := e.table.Reports().Take(c, at)
					parts[i] = rep.Parts[0]
				}
			}
			for i, e := range edges {
				if p := parts[i]; p.Hits != 0 {
					tier += p.Hits // one of them adds what it knows, which is no more
					reported += r.Packing().Sum(p.Hits)
					if r.Packing().Clamp(tier) != tier {
						t.Fatalf("limit %d: the tier has %x: a lane is beyond what it holds", limit, tier)
					}
					e.table.Reports().Counted(e.c, p, tier, at)
				}
			}
		}
		if r.Packing().Sum(tier) != reported {
			t.Errorf("limit %d: %d hits were reported, the tier has %d: %x", limit, reported, r.Packing().Sum(tier), tier)
		}
		var losses uint64
		for _, e := range edges {
			s := e.table.Stats()
			losses += s.LostSaturated
			if v, _ := e.table.Peek(r, e.c.Source, at); !v.Over || s.Unreported != 0 {
				t.Errorf("limit %d: %+v, %+v", limit, v, s)
			}
		}
		if reported+losses != uint64(limit)*MaxEdges {
			t.Errorf("limit %d: %d reported and %d lost, want %d together", limit, reported, losses, uint64(limit)*MaxEdges)
		}
	}
}

// TestStrangersPushOutNobodyWhoMatters: ten tables of strangers, each with three hits of a limit of five, push out nobody who has one left.
func TestStrangersPushOutNobodyWhoMatters(t *testing.T) {
	for _, tier := range []bool{false, true} {
		const counters, hot = 2000, 1000
		table := New(Options{Counters: counters, Tier: tier})
		r := rule(t, 5, time.Minute, 12, algorithm.Lower)
		hit := func(s Source, at time.Time) {
			ask := [1]Reservation{{Rule: r, Source: s, Hits: 1}}
			table.Reserve(ask[:], at)
		}
		at := epoch
		for i := range uint32(hot) {
			for range 4 {
				hit(address(i), at)
			}
		}
		for i := range uint32(10 * counters) {
			at = at.Add(time.Millisecond)
			for range 3 {
				hit(address(hot+i), at)
			}
			if tier && i%50 == 0 {
				table.Reports().Sweep(at, false)
				for _, c := range table.Reports().Dirty(nil, 1<<20) {
					rep, _ := table.Reports().Take(c, at)
					for _, p := range rep.Parts[:rep.N] {
						table.Reports().Counted(c, p, p.Known, at)
					}
				}
			}
		}
		if s := table.Stats(); s.Evicted < 8*counters {
			t.Fatalf("tier %v: %d evicted, and the test shows nothing", tier, s.Evicted)
		}
		gone := 0
		for i := range uint32(hot) {
			if v, there := table.Peek(r, address(i), at); !there || v.Estimate != 4 {
				gone++
			}
		}
		if gone > 0 {
			t.Errorf("tier %v: %d of %d who were one below their limit are forgotten", tier, gone, hot)
		}
	}
}

// TestReservationsFindRoom: strangers whose hits nobody reports hold all entries that hits may have, and yet a
// reservation holds its hits.
func TestReservationsFindRoom(t *testing.T) {
	const counters, limit = 4000, 5
	table := New(Options{Counters: counters, Tier: true})
	r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
	for i := range uint32(counters) {
		ask := [1]Reservation{{Rule: r, Source: address(i), Hits: 1}}
		table.Reserve(ask[:], epoch)
	}
	if table.Stats().LostBacklog == 0 {
		t.Fatal("there is room for more hits, and the test shows nothing")
	}
	for i := range uint32(200) {
		s := address(counters + i)
		var reservations []*Reservation
		for n := range limit + 2 {
			ask := []Reservation{{Rule: r, Source: s, Hits: 1, Hold: true}}
			if ok := table.Reserve(ask, epoch.Add(time.Second)); ok != (n < limit) {
				t.Fatalf("reservation %d of source %d with a limit of %d: %v", n+1, i, limit, ok)
			} else if ok {
				reservations = append(reservations, &ask[0])
			}
		}
		for _, a := range reservations {
			table.Cancel(a)
		}
		if v, _ := table.Peek(r, s, epoch.Add(time.Second)); v.Estimate != 0 {
			t.Fatalf("source %d has %v hits when all its reservations are given back", i, v.Estimate)
		}
	}
}

// TestGoingToAndFroIsAnnouncedOnce: a source whose estimate goes up and down over the border of a stage has itself announced once, not with
// each crossing.
func TestGoingToAndFroIsAnnouncedOnce(t *testing.T) {
	f := func(name string, low, high float64, want map[algorithm.Stage]int) {
		t.Helper()
		r := rule(t, 60, time.Minute, 12, algorithm.Nearest)
		e := newReporter(t, r, make(map[uint32]uint64))
		got, at, crossings, was := make(map[algorithm.Stage]int), epoch, 0, algorithm.Far
		for at.Before(epoch.Add(40 * time.Minute)) {
			rate := low
			if at.Sub(epoch)/(90*time.Second)%2 == 0 {
				rate = high
			}
			at = at.Add(time.Duration(float64(time.Minute) / (60 * rate)))
			e.hit(at)
			v, _ := e.table.Peek(r, e.c.Source, at)
			if is := r.Stage(v.Estimate); is != was {
				was, crossings = is, crossings+1
			}
			e.table.Reports().Sweep(at, true)
			for _, c := range e.table.Reports().Dirty(nil, 1) {
				rep, _ := e.table.Reports().Take(c, at)
				for _, p := range rep.Parts[:rep.N] {
					e.tier[p.Group] += p.Hits
					if s := e.table.Reports().Counted(c, p, e.tier[p.Group], at); s.Stage != algorithm.Far {
						got[s.Stage]++
					}
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: announced %v, want %v; %d crossings of stages", name, got, want, crossings)
		}
	}
	once := func(stages ...algorithm.Stage) map[algorithm.Stage]int {
		all := make(map[algorithm.Stage]int)
		for _, s := range stages {
			all[s] = 1
		}
		return all
	}
	f("over the border of half its limit", 0.4, 0.6, once(algorithm.Eighth, algorithm.Quarter, algorithm.Half))
	f("over the border of its limit", 0.8, 1.3, once(algorithm.Eighth, algorithm.Quarter, algorithm.Half, algorithm.Full))
	f("far down and up again", 0.1, 0.9, map[algorithm.Stage]int{algorithm.Eighth: 1, algorithm.Quarter: 14, algorithm.Half: 14}) // each time, but no more
}

// TestAdjustKeepsAges: when the wall clock steps, what was counted leaves the window when it would have, to half a sub-window, and what
// is still to be reported is reported.
func TestAdjustKeepsAges(t *testing.T) {
	for _, limit := range []uint32{1000, 1_000_000} {
		for _, sub := range []int{1, 2, 4, 8, 12} {
			for _, step := range []time.Duration{
				time.Hour, -time.Hour, 5 * time.Second, -5 * time.Second, 1234 * time.Millisecond, -1234 * time.Millisecond,
				time.Hour + 7*time.Second, -time.Hour - 13*time.Second, 100 * time.Hour, -100 * time.Hour,
			} {
				r := rule(t, limit, time.Minute, sub, algorithm.Lower)
				table := New(Options{Counters: 100, Tier: true, Phase: func(Source) uint16 { return uint16(limit + 77*uint32(sub)) }})
				table.SetEdges(1)
				log := exactLog{window: r.Window}
				at := epoch.Add(3 * time.Second)
				for range 100 {
					at = at.Add(413 * time.Millisecond)
					ask := [1]Reservation{{Rule: r, Source: address(1), Hits: 3}}
					if !table.Reserve(ask[:], at) {
						t.Fatal("refused")
					}
					log.hits = append(log.hits, hits{at, 3})
				}
				before := table.Stats()
				table.Adjust(step, false, at)
				if s := table.Stats(); s.Unreported != before.Unreported || s.LostExpired != before.LostExpired {
					t.Fatalf("limit %d, %d sub-windows, step %v: %d hits to report, and %d before (%+v)", limit, sub, step, s.Unreported, before.Unreported, s)
				}
				var reported uint64
				table.Reports().Sweep(at, true)
				for range 100 {
					for _, c := range table.Reports().Dirty(nil, 1) {
						rep, _ := table.Reports().Take(c, at)
						for _, p := range rep.Parts[:rep.N] {
							reported += r.Packing().Sum(p.Hits)
							table.Reports().Counted(c, p, p.Known, at)
						}
					}
					table.Reports().Sweep(at, true)
				}
				if reported != before.Unreported {
					t.Errorf("limit %d, %d sub-windows, step %v: %d hits reported of %d", limit, sub, step, reported, before.Unreported)
				}
				half := r.SubWindow()/2 + time.Millisecond
				for end := at.Add(2 * r.Window); at.Before(end); at = at.Add(701 * time.Millisecond) {
					v, _ := table.Peek(r, address(1), at)
					least, most := exactLog{r.Window - r.SubWindow() - half, log.hits}, exactLog{r.Window + half, log.hits}
					if lo, hi := float64(least.count(at)), float64(most.count(at)); v.Estimate < lo || v.Estimate > hi {
						t.Fatalf("limit %d, %d sub-windows, step %v: %v after the step's last hit it counts %v, want %v to %v",
							limit, sub, step, at.Sub(log.hits[99].at), v.Estimate, lo, hi)
					}
				}
			}
		}
	}
}
