package counter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
)

func rule(t testing.TB, limit uint32, window time.Duration, subWindows int, e algorithm.Estimate) *algorithm.Spec {
	t.Helper()
	r, err := algorithm.NewSliding("test", limit, window, subWindows, e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func address(n uint32) Source {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return SourceOf(netip.AddrFrom4(b), 32, 64)
}

var epoch = time.Unix(1_700_000_040, 0) // a whole minute

func TestReserveSteps(t *testing.T) {
	type step struct {
		at   time.Duration
		hits uint32
		want bool
	}
	f := func(name string, r *algorithm.Spec, steps ...step) {
		t.Helper()
		table := New(Options{Counters: 100})
		for i, s := range steps {
			reservations := []Reservation{{Rule: r, Source: address(1), Hits: s.hits}}
			if got := table.Reserve(reservations, epoch.Add(s.at)); got != s.want {
				t.Errorf("%s, step %d at %v: admitted = %v, want %v (%+v)", name, i, s.at, got, s.want, reservations[0].Verdict)
			}
		}
	}
	f("a full window refuses, and forgives as it slides", rule(t, 3, time.Minute, 12, algorithm.Nearest),
		step{0, 1, true}, step{1 * time.Second, 1, true}, step{2 * time.Second, 1, true},
		step{3 * time.Second, 1, false}, step{59 * time.Second, 1, false}, step{65 * time.Second, 3, true})
	f("refused hits do not count", rule(t, 1, time.Minute, 1, algorithm.Nearest),
		step{0, 1, true}, step{1 * time.Second, 1, false}, step{2 * time.Second, 1, false}, step{119 * time.Second, 1, true})
	f("more than the limit at once never fits", rule(t, 5, time.Minute, 4, algorithm.Lower), step{0, 6, false}, step{0, 5, true})
	f("the clock steps back a little", rule(t, 2, time.Minute, 12, algorithm.Nearest),
		step{30 * time.Second, 2, true}, step{0, 1, false}, step{-5 * time.Second, 1, false}, step{31 * time.Second, 1, false})
	f("the clock steps back more than a window", rule(t, 2, time.Minute, 12, algorithm.Nearest),
		step{time.Hour, 2, true}, step{0, 1, true}, step{time.Second, 1, true}, step{2 * time.Second, 1, false})
	f("the clock steps forward", rule(t, 2, time.Minute, 12, algorithm.Nearest),
		step{0, 2, true}, step{time.Hour, 2, true}, step{time.Hour + time.Second, 1, false})
	f("a wide counter", rule(t, 1_000_000, time.Minute, 12, algorithm.Nearest),
		step{0, 600_000, true}, step{30 * time.Second, 400_000, true}, step{31 * time.Second, 1, false}, step{66 * time.Second, 600_000, true})
}

func TestRulesAreAskedTogether(t *testing.T) {
	table := New(Options{Counters: 1000})
	strict, loose := rule(t, 1, time.Minute, 12, algorithm.Nearest), rule(t, 10, time.Hour, 12, algorithm.Nearest)
	s := address(1)
	reservations := []Reservation{{Rule: loose, Source: s, Hits: 1}, {Rule: strict, Source: s, Hits: 1}}
	if !table.Reserve(reservations, epoch) {
		t.Fatalf("the first hit was refused: %+v", reservations)
	}
	for range 20 {
		if table.Reserve(reservations, epoch.Add(time.Second)) {
			t.Fatal("a hit beyond the strict rule's limit was admitted")
		}
	}
	if v, _ := table.Peek(loose, s, epoch.Add(time.Second)); v.Remaining != 9 {
		t.Errorf("the loose rule has %d left, want 9: refused hits must not count in any rule", v.Remaining)
	}
	reservations[1].Shadow = true
	if !table.Reserve(reservations, epoch.Add(time.Second)) || !reservations[1].Over {
		t.Error("a shadow rule must be over and refuse nobody")
	}
	if v, _ := table.Peek(strict, s, epoch.Add(time.Second)); v.Estimate != 1 {
		t.Errorf("the shadow rule counts %v, want 1: what it would have refused must not count", v.Estimate)
	}
	reservations[1].Shadow, reservations[1].Always = false, true
	table.Reserve(reservations, epoch.Add(time.Second))
	if v, _ := table.Peek(strict, s, epoch.Add(time.Second)); v.Estimate != 2 {
		t.Errorf("a rule that counts attempts counts %v, want 2", v.Estimate)
	}
}

func TestHoldCommitCancel(t *testing.T) {
	table := New(Options{Counters: 100})
	r := rule(t, 2, time.Minute, 12, algorithm.Nearest)
	hold := func() *Reservation {
		reservations := []Reservation{{Rule: r, Source: address(1), Hits: 1, Hold: true}}
		if !table.Reserve(reservations, epoch) {
			return nil
		}
		return &reservations[0]
	}
	a, b := hold(), hold()
	if a == nil || b == nil || hold() != nil {
		t.Fatal("two reservations must fit a limit of two, and a third must not: parallel requests see each other")
	}
	table.Cancel(a)
	table.Cancel(a) // twice is once
	if a = hold(); a == nil {
		t.Fatal("a cancelled reservation must make room")
	}
	table.Commit(a, epoch)
	table.Commit(b, epoch)
	table.Cancel(b) // after Commit it counts
	if v, _ := table.Peek(r, address(1), epoch); v.Estimate != 2 {
		t.Errorf("estimate %v after two commits, want 2", v.Estimate)
	}
	if hold() != nil {
		t.Error("two counted hits must fill a limit of two")
	}
}

// exactLog counts by keeping every timestamp: the slow, obvious twin.
type exactLog struct {
	window time.Duration
	hits   []hits
}

type hits struct {
	at time.Time
	n  int
}

func (l *exactLog) count(now time.Time) (n int) {
	for _, h := range l.hits {
		if h.at.After(now.Add(-l.window)) {
			n += h.n
		}
	}
	return n
}

// TestAgainstExactLog sends random bursts and pauses and holds every verdict against an exact log.
func TestAgainstExactLog(t *testing.T) {
	for _, sub := range []int{1, 2, 4, 8, 12} {
		for _, limit := range []uint32{1, 5, 40, 20_000} {
			for _, e := range []algorithm.Estimate{algorithm.Nearest, algorithm.Lower} {
				t.Run(fmt.Sprintf("%d/%d/%v", sub, limit, e), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(sub), uint64(limit)))
					table := New(Options{Counters: 100, Phase: func(Source) uint16 { return uint16(rng.Uint32()) }})
					r := rule(t, limit, time.Minute, sub, e)
					log := exactLog{window: r.Window}
					now := epoch
					for range 1000 {
						gap := time.Duration(rng.ExpFloat64() * float64(2*r.Window) / float64(min(limit, 200)))
						now = now.Add(gap)
						n := uint32(1 + rng.IntN(int(max(limit/100, 1))))
						reservations := []Reservation{{Rule: r, Source: address(1), Hits: n}}
						admitted := table.Reserve(reservations, now)
						exact := log.count(now) + int(n)
						if e == algorithm.Lower && !admitted && exact <= int(limit) {
							t.Fatalf("lower refused at %d hits of %d", exact, limit)
						}
						if admitted {
							log.hits = append(log.hits, hits{now, int(n)})
						} else {
							// A client that waits for its Retry-After is served, and that is not much longer than
							// needed.
							later := now.Add(reservations[0].RetryAfter)
							if v, _ := table.Peek(r, address(1), later); n == 1 && v.Over {
								t.Fatalf("still over after waiting %v", reservations[0].RetryAfter)
							}
							early := now.Add(reservations[0].RetryAfter - r.Window/1000)
							if v, _ := table.Peek(r, address(1), early); n == 1 && early.After(now) && !v.Over {
								t.Fatalf("wait of %v, but was free before", reservations[0].RetryAfter)
							}
						}
						// The estimate can be wrong by the hits of one sub-window at most.
						s := r.SubWindow()
						inner, outer := exactLog{r.Window - s, log.hits}, exactLog{r.Window + s, log.hits}
						v, _ := table.Peek(r, address(1), now)
						if lo, hi := float64(inner.count(now)), float64(outer.count(now)); v.Estimate < lo || v.Estimate > hi {
							t.Fatalf("estimate %v, but between %v and %v hits in a window a sub-window shorter or longer", v.Estimate, lo, hi)
						}
						for len(log.hits) > 0 && log.hits[0].at.Before(now.Add(-3*r.Window)) {
							log.hits = log.hits[1:]
						}
					}
				})
			}
		}
	}
}

func TestLanesDoNotCarry(t *testing.T) {
	for _, limit := range []uint32{1, lanes.NarrowMax, lanes.NarrowMax + 1, algorithm.MaxLimit} {
		r := rule(t, limit, time.Minute, 12, algorithm.Nearest)
		for i := range r.Packing().Count() {
			g := r.Packing().Add(0, i, 1<<40)
			g = r.Packing().Add(g, i, 1<<40)
			for j := range r.Packing().Count() {
				want := uint64(0)
				if j == i {
					want = r.Packing().Max()
				}
				if got := r.Packing().Lane(g, j); got != want {
					t.Errorf("limit %d: lane %d of %d filled: lane %d holds %d, want %d", limit, i, r.Packing().Count(), j, got, want)
				}
			}
			if g >= 1<<63 {
				t.Errorf("limit %d: the group reaches 2^63", limit)
			}
		}
		// All edges report at once to a lane that was just below where they stop.
		if most := (r.Packing().ReportMax() - 1) + MaxEdges*(r.Packing().ReportMax()/MaxEdges); most > r.Packing().Max() {
			t.Errorf("limit %d: reports can fill a lane to %d, more than %d", limit, most, r.Packing().Max())
		}
	}
}

func TestFullTableKeepsWhoMatters(t *testing.T) {
	table := New(Options{Counters: 1000})
	r := rule(t, 10, time.Minute, 12, algorithm.Nearest)
	hot := address(0)
	for range 9 {
		table.Reserve([]Reservation{{Rule: r, Source: hot, Hits: 1}}, epoch)
	}
	for i := range uint32(100_000) {
		table.Reserve([]Reservation{{Rule: r, Source: address(i + 1), Hits: 1}}, epoch.Add(time.Second))
	}
	st := table.Stats()
	if st.Counters > 1140 || st.Counters < 990 {
		t.Errorf("%d counters in a table of 1000", st.Counters)
	}
	if st.Evicted != 100_001-uint64(st.Counters) {
		t.Errorf("%d evicted, %d there: they must make 100,001", st.Evicted, st.Counters)
	}
	if v, _ := table.Peek(r, hot, epoch.Add(2*time.Second)); v.Estimate != 9 {
		t.Errorf("the source near its limit has %v hits after a flood of strangers, want 9", v.Estimate)
	}
}

func TestReserveAllocatesNothing(t *testing.T) {
	table := New(Options{Counters: 1000})
	rules := []*algorithm.Spec{rule(t, 1e6, time.Minute, 12, algorithm.Nearest), rule(t, 100, time.Hour, 8, algorithm.Lower), rule(t, 5, time.Second, 1, algorithm.Nearest)}
	reservations := make([]Reservation, len(rules))
	now := epoch
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(10 * time.Millisecond)
		for i, r := range rules {
			reservations[i] = Reservation{Rule: r, Source: address(7), Hits: 1}
		}
		table.Reserve(reservations, now)
	}); n != 0 {
		t.Errorf("a decision for a known source allocates %v times", n)
	}
}

// TestAnnouncedEachTime: a source that comes near its limit is announced, and again the next time, also if this table first meets it
// when it is near already; but not by going to and fro over the border.
func TestAnnouncedEachTime(t *testing.T) {
	r := rule(t, 60, time.Minute, 12, algorithm.Nearest)
	e := newReporter(t, r, make(map[uint32]uint64))
	for round := range 3 {
		now := epoch.Add(time.Duration(round) * 5 * time.Minute)
		e.hit(now)
		e.report(now, true)
		_, newest := e.table.Reports().Groups(r, now, 0)
		f := func(total uint64, want algorithm.Stage) {
			t.Helper()
			if s := e.table.Reports().Apply(e.c, newest, []uint64{total}, 0, now); s.Stage != want {
				t.Errorf("round %d: the tier has %d: stage %d, want %d", round, total, s.Stage, want)
			}
		}
		f(7, algorithm.Far)
		f(14, algorithm.Eighth)
		f(49, algorithm.Half)
		f(52, algorithm.Far)
		e.hit(now)
		f(59, algorithm.Far) // with a hit that cannot be reported yet
		e.report(now, true)
		if e.reply.Stage != algorithm.Full {
			t.Errorf("round %d: the limit is reached, and others do not learn of it", round)
		}
		f(60, algorithm.Far)
		now = now.Add(r.Window + r.SubWindow()) // the hits of the first sub-window have left
		for range 7 {
			e.hit(now)
		}
		e.report(now, true)
		if e.reply.Stage != algorithm.Far {
			t.Errorf("round %d: 7 of 60 are at stage %d", round, e.reply.Stage)
		}
		_, newest = e.table.Reports().Groups(r, now, 0)
		f(4, algorithm.Eighth) // in another sub-window than the 7
	}
}

// FuzzTable holds a table against an exact log for hits at any times, the clock running backwards included.
func FuzzTable(f *testing.F) {
	f.Add(uint8(4), uint16(20), []byte{0, 1, 2, 3, 250, 9})
	f.Add(uint8(0), uint16(20_000), []byte{200, 200, 1, 1})
	f.Fuzz(func(t *testing.T, sub uint8, limit uint16, gaps []byte) {
		r, err := algorithm.NewSliding("fuzz", uint32(limit)+1, time.Minute, []int{1, 2, 4, 8, 12}[sub%5], algorithm.Lower)
		if err != nil {
			t.Fatal(err)
		}
		table := New(Options{Counters: 10, Tier: limit%2 == 0})
		log := exactLog{window: r.Window}
		now, latest := epoch, epoch
		for _, g := range gaps {
			now = now.Add(time.Duration(int(g)-64) * 300 * time.Millisecond) // a quarter of the steps go back
			reservations := []Reservation{{Rule: r, Source: address(1), Hits: 1}}
			admitted := table.Reserve(reservations, now)
			if latest.Sub(now) > r.Window/2 {
				return // a large step back starts anew
			}
			if !now.Before(latest) {
				latest = now
				if !admitted && log.count(now)+1 <= int(r.Limit) {
					t.Fatalf("refused at %d of %d", log.count(now)+1, r.Limit)
				}
			}
			if admitted {
				log.hits = append(log.hits, hits{latest, 1}) // a step back does not make it older than it was
			} else if reservations[0].RetryAfter <= 0 || reservations[0].RetryAfter > 2*r.Window+r.Window/3 {
				t.Fatalf("retry after %v", reservations[0].RetryAfter)
			}
		}
	})
}

// TestRulesAreForgotten: limits that come with requests are one rule, however many they are, and rules that are not in force any more are
// forgotten. Their counters make room for those of others.
func TestRulesAreForgotten(t *testing.T) {
	table := New(Options{Counters: 1000})
	known := func() (n int) {
		for range table.rules.Range {
			n++
		}
		return n
	}
	rules := manyRules(t, table, 50)
	for n := range uint32(1000) {
		table.Reserve([]Reservation{{Rule: rules[0].With(1+n, rules[0].Estimate), Source: address(1000 + n), Hits: 1}}, epoch)
	}
	if n := known(); n != len(rules) {
		t.Errorf("%d rules are known, want %d", n, len(rules))
	}
	table.Keep(func(id uint32) bool { return id == rules[0].ID })
	if n := known(); n != 1 || table.rule(rules[0].ID) == nil {
		t.Errorf("%d rules are known, want the one that is in force", n)
	}
}
