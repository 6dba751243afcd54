package mitigation

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice/counter"
)

var start = time.Unix(1_700_000_000, 0)

func bit(from, until time.Duration, by By) Bit {
	return Bit{Start: start.Add(from), End: start.Add(until), By: by}
}

func TestStartNeverShortens(t *testing.T) {
	type step struct {
		at, until time.Duration
		changed   bool
		end       time.Duration // in force afterwards until then; 0: nothing is
	}
	f := func(name string, steps ...step) {
		t.Helper()
		table := New(10, nil)
		for i, s := range steps {
			now := start.Add(s.at)
			if changed := table.Start(key(1), bit(s.at, s.until, ByEdge), now); changed != s.changed {
				t.Errorf("%s, step %d: changed = %v, want %v", name, i, changed, s.changed)
			}
			var end time.Time
			if s.end != 0 {
				end = start.Add(s.end)
			}
			if got := table.Until(key(1), now); !got.Equal(end) {
				t.Errorf("%s, step %d: in force until %v, want %v", name, i, got, end)
			}
		}
	}
	f("a second start that ends sooner changes nothing",
		step{0, 10 * time.Second, true, 10 * time.Second}, step{time.Second, 5 * time.Second, false, 10 * time.Second})
	f("one that ends later prolongs",
		step{0, 10 * time.Second, true, 10 * time.Second}, step{time.Second, 20 * time.Second, true, 20 * time.Second})
	f("the same end changes nothing",
		step{0, 10 * time.Second, true, 10 * time.Second}, step{time.Second, 10 * time.Second, false, 10 * time.Second})
	f("after its end a source can be blocked again",
		step{0, 10 * time.Second, true, 10 * time.Second}, step{10 * time.Second, 12 * time.Second, true, 12 * time.Second})
	f("what has ended does not start", step{10 * time.Second, 9 * time.Second, false, 0}, step{10 * time.Second, 10 * time.Second, false, 0})
}

func TestEndsExactly(t *testing.T) {
	table := New(10, nil)
	table.Start(key(1), bit(0, time.Second, ByEdge), start)
	if table.Until(key(1), start.Add(time.Second-1)).IsZero() {
		t.Error("not in force a nanosecond before its end")
	}
	if !table.Until(key(1), start.Add(time.Second)).IsZero() {
		t.Error("in force at its end")
	}
	if !table.Until(key(2), start).IsZero() {
		t.Error("another source is blocked")
	}
	other := key(1)
	other.Rule = 2
	if !table.Until(other, start).IsZero() {
		t.Error("the source is blocked under another rule")
	}
}

func TestProlongedBitKeepsItsStart(t *testing.T) {
	table := New(10, nil)
	table.Start(key(1), bit(0, time.Second, ByPoP), start)
	table.Start(key(1), bit(500*time.Millisecond, time.Minute, ByEdge), start.Add(500*time.Millisecond))
	b, ok := table.Get(key(1), start.Add(2*time.Second))
	if !ok || !b.Start.Equal(start) || !b.Learned.Equal(start) {
		t.Errorf("start %v, learned %v, want both %v", b.Start, b.Learned, start)
	}
}

// TestStartAfterAnEnd: a bit that has ended is not prolonged, whoever started it, and an operator's word begins when it is said.
func TestStartAfterAnEnd(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after Bit
		begins        time.Duration
		started       uint64
	}{
		{"a verdict prolonged", bit(0, 10*time.Second, ByEdge), bit(5*time.Second, time.Minute, ByEdge), 0, 1},
		{"a verdict after one", bit(0, 5*time.Second, ByEdge), bit(5*time.Second, time.Minute, ByEdge), 5 * time.Second, 2},
		{"a verdict after an operator's word", bit(0, 5*time.Second, ByAdmin), bit(5*time.Second, time.Minute, ByEdge), 5 * time.Second, 1},
		{"an operator's word in place of a verdict", bit(0, 10*time.Second, ByEdge), bit(5*time.Second, time.Minute, ByAdmin), 5 * time.Second, 1},
	} {
		table := New(10, nil)
		test.before.Memory, test.after.Memory = time.Hour, time.Hour
		table.Start(key(1), test.before, start)
		now := start.Add(5 * time.Second)
		changed := table.Start(key(1), test.after, now)
		b, _ := table.Get(key(1), now)
		if began := start.Add(test.begins); !changed || !b.Start.Equal(began) || !b.Learned.Equal(began) || !b.End.Equal(start.Add(time.Minute)) {
			t.Errorf("%s: changed %v, begun %v, learned %v, until %v", test.name, changed, b.Start.Sub(start), b.Learned.Sub(start), b.End.Sub(start))
		}
		if n := table.Started()[Started{1, test.after.By}]; n != test.started {
			t.Errorf("%s: %d started, want %d", test.name, n, test.started)
		}
	}
}

// TestUnsent: the PoP takes this edge's verdicts here, not what it brought itself, and operators' orders in another
// way.
func TestUnsent(t *testing.T) {
	woken := 0
	table := New(10, func() { woken++ })
	table.Start(key(1), bit(0, time.Second, ByEdge), start)
	table.Start(key(2), bit(0, time.Second, ByPoP), start)
	table.Start(key(3), bit(0, time.Second, ByAdmin), start)
	table.Lift(key(2), start)
	var reported []string
	for _, n := range table.TakeUnsent(nil) {
		reported = append(reported, fmt.Sprintf("%s %s %v", n.Key.Source, n.Bit.By, n.Bit.End.IsZero()))
	}
	want := []string{"0.0.0.1 edge false"}
	if fmt.Sprint(reported) != fmt.Sprint(want) {
		t.Errorf("unsent %q, want %q", reported, want)
	}
	if len(table.TakeUnsent(nil)) != 0 {
		t.Error("the unsent were given twice")
	}
	if woken != len(want) {
		t.Errorf("woken %d times for %d unsent", woken, len(want))
	}
}

func TestLift(t *testing.T) {
	table := New(10, nil)
	table.Start(key(1), bit(0, time.Hour, ByEdge), start)
	if !table.Lift(key(1), start) || table.Lift(key(1), start) {
		t.Error("the first lift must find a mitigation, the second none")
	}
	if !table.Until(key(1), start).IsZero() {
		t.Error("still blocked after it was lifted")
	}
	if table.Start(key(1), bit(0, time.Minute, ByEdge), start) {
		t.Error("a verdict from before the lift started a mitigation")
	}
	if table.AddPeerBlock(key(1), bit(0, time.Minute, ByPeer), start) {
		t.Error("what another PoP said before the lift started a mitigation")
	}
	if !table.Start(key(1), bit(0, time.Minute, ByPoP), start) || !table.Lift(key(1), start) {
		t.Error("what the PoP says, which knows of the lift, is void")
	}
	if !table.Start(key(1), bit(1, time.Minute, ByEdge), start) {
		t.Error("a lifted source cannot be blocked again")
	}
	table.Invalidate(key(2), start)
	if table.Start(key(2), bit(0, time.Minute, ByEdge), start) || table.Start(key(1), bit(0, 2*time.Minute, ByEdge), start) {
		t.Error("a verdict from before a lift, or before it was void, started a mitigation")
	}
	table.Sweep(start.Add(30 * time.Second))
	if table.Start(key(1), bit(0, 2*time.Minute, ByEdge), start) {
		t.Error("a lift was forgotten too soon")
	}
	table.Invalidate(key(1), start)
	if table.Until(key(1), start).IsZero() {
		t.Error("a verdict of later was void")
	}
	table.Invalidate(key(1), start.Add(1))
	if !table.Until(key(1), start).IsZero() {
		t.Error("a verdict of before was not void")
	}
	table.Start(key(1), bit(1, time.Minute, ByPoP), start)
	table.Invalidate(key(1), start.Add(1))
	if table.Until(key(1), start).IsZero() {
		t.Error("what the PoP has said was void")
	}
	table.Sweep(start.Add(2 * time.Minute))
	if table.lifted.n.Load() != 0 || !table.Start(key(1), bit(0, time.Hour, ByEdge), start) {
		t.Error("a lift was not forgotten")
	}
}

// TestOperatorsOrder: it replaces what is in force, and may shorten it; a verdict does not change it.
func TestOperatorsOrder(t *testing.T) {
	table := New(10, nil)
	f := func(what string, b Bit, changed bool, end time.Duration, by By) {
		t.Helper()
		if got := table.Start(key(1), b, start); got != changed {
			t.Errorf("%s: changed = %v", what, got)
		}
		if is, _ := table.Get(key(1), start); !is.End.Equal(start.Add(end)) || is.By != by {
			t.Errorf("%s: now until %v by %s", what, is.End.Sub(start), is.By)
		}
	}
	f("a verdict", bit(0, time.Hour, ByEdge), true, time.Hour, ByEdge)
	f("a shorter block", bit(0, time.Minute, ByAdmin), true, time.Minute, ByAdmin)
	f("the same once more", bit(0, time.Minute, ByAdmin), false, time.Minute, ByAdmin)
	why := bit(0, time.Minute, ByAdmin)
	why.Reason = "a mistake"
	f("the same for another reason", why, true, time.Minute, ByAdmin)
	f("a longer verdict", bit(0, time.Hour, ByPoP), false, time.Minute, ByAdmin)
	f("a longer block", bit(0, 2*time.Minute, ByAdmin), true, 2*time.Minute, ByAdmin)
	f("a shorter one", bit(0, time.Second, ByAdmin), true, time.Second, ByAdmin)
	if n := table.Started()[Started{1, ByAdmin}]; n != 1 {
		t.Errorf("%d started by operators, want 1, which they changed", n)
	}
}

// TestUnsentIsBounded: while nobody takes the unsent, no more of them wait than there is room for. The bits are in force all the same.
func TestUnsentIsBounded(t *testing.T) {
	table := New(0, func() {})
	for n := range uint32(maxUnsent + 100) {
		table.Start(key(n), bit(0, time.Minute, ByEdge), start)
	}
	if n := len(table.TakeUnsent(nil)); n != maxUnsent {
		t.Errorf("%d wait unsent, want %d", n, maxUnsent)
	}
	if table.Until(key(maxUnsent+99), start).IsZero() {
		t.Error("a bit that does not wait to be sent is not in force")
	}
}

// TestFullTableKeepsTheWorthier: in a table without room a bit takes the place of one that is worth as much or less, and of no other.
func TestFullTableKeepsTheWorthier(t *testing.T) {
	shadow := bit(0, time.Hour, ByEdge)
	shadow.Shadow = true
	kinds := []struct {
		name  string
		worth int
		bit   Bit
	}{{"shadow", 0, shadow}, {"verdict", 1, bit(0, time.Hour, ByEdge)}, {"PoP", 1, bit(0, time.Hour, ByPoP)}, {"peer", 1, bit(0, time.Hour, ByPeer)}, {"operator", 2, bit(0, time.Hour, ByAdmin)}}
	for _, there := range kinds {
		for _, comes := range kinds {
			table := New(64, nil) // one to a shard
			a, b := twoOfAShard(table)
			table.Start(a, there.bit, start)
			changed, want := table.Start(b, comes.bit, start), comes.worth >= there.worth
			if changed != want || table.Until(a, start).IsZero() != want || table.Until(b, start).IsZero() == want || table.Evicted() != map[bool]uint64{true: 1}[want] {
				t.Errorf("%s after %s: changed %v, %d evicted, want %v", comes.name, there.name, changed, table.Evicted(), want)
			}
			if table.Lift(b, start) != want {
				t.Errorf("%s after %s: lifted %v, want %v", comes.name, there.name, !want, want)
			}
		}
	}
}

// An operator's word takes the place of a verdict with the same end.
func TestOperatorsOrderOverAVerdict(t *testing.T) {
	table := New(10, nil)
	table.Start(key(1), bit(0, time.Hour, ByEdge), start)
	if changed := table.Start(key(1), bit(0, time.Hour, ByAdmin), start); !changed || table.UntilOrdered(key(1), start).IsZero() {
		t.Errorf("changed %v, and operators have said nothing", changed)
	}
}

// What another PoP says changes something on this one, and can be lifted as a whole; what anybody else says stays.
func TestPeers(t *testing.T) {
	table, observed := New(0, func() {}), 0
	table.Observe = func(Key, Bit) { observed++ }
	for n, by := range []By{ByEdge, ByPoP, ByAdmin} {
		table.Start(key(uint32(n)), bit(0, time.Minute, by), start)
	}
	table.TakeUnsent(nil)
	for n := range uint32(200) {
		if !table.AddPeerBlock(key(100+n), bit(0, time.Minute, ByEdge), start) || table.AddPeerBlock(key(100+n), bit(0, time.Minute, ByEdge), start) {
			t.Error("what another PoP says changes nothing, or is again")
		}
	}
	if table.AddPeerBlock(key(2), bit(0, time.Hour, ByEdge), start) {
		t.Error("what another PoP says is in place of an operator's word")
	}
	for _, n := range table.TakeUnsent(nil) {
		if observed--; n.Bit.By != ByPeer {
			t.Errorf("unsent, of %s", n.Bit.By)
		}
	}
	if observed != 3 {
		t.Errorf("%d were observed besides, want 3", observed)
	}
	table.LiftPeers()
	n := 0
	for _, b := range table.All(start) {
		if n++; b.By == ByPeer {
			t.Error("not lifted")
		}
	}
	if n != 3 || !table.Lift(key(0), start) {
		t.Errorf("%d are left, want 3", n)
	}
}

// TestForget: what is counted of rules that are gone is forgotten.
func TestForget(t *testing.T) {
	table := New(0, nil)
	for rule := range uint32(4) {
		table.Start(Key{Rule: rule, Source: key(1).Source}, bit(0, time.Minute, ByEdge), start)
	}
	table.Forget(func(rule uint32) bool { return rule%2 == 0 })
	got := table.Started()
	if len(got) != 2 || got[Started{0, ByEdge}] != 1 || got[Started{2, ByEdge}] != 1 {
		t.Errorf("left: %v", got)
	}
}

// TestFloodDropsNoOperatorsOrder: an attack that fills the table drops verdicts.
func TestFloodDropsNoOperatorsOrder(t *testing.T) {
	const room = 64 * 32
	table := New(room, nil)
	for n := range uint32(100) {
		table.Start(key(n), bit(0, time.Minute, ByAdmin), start)
	}
	for n := range uint32(20 * room) {
		table.Start(key(1000+n), bit(0, time.Hour, ByEdge), start)
	}
	for n := range uint32(100) {
		if table.Until(key(n), start).IsZero() {
			t.Errorf("block %d was dropped", n)
		}
	}
}

// TestShadowsTakeNobodysPlace: however many bits there are by which nobody is refused, who is refused stays so; and they make room.
func TestShadowsTakeNobodysPlace(t *testing.T) {
	const room, blocked = 64 * 64, 1000
	table := New(room, nil)
	shadows := func(from uint32) {
		for n := range uint32(5 * room) {
			b := bit(0, time.Hour, ByEdge)
			b.Shadow = true
			table.Start(key(from+n), b, start)
		}
	}
	shadows(1 << 20)
	for n := range uint32(blocked) {
		table.Start(key(n), bit(0, time.Minute, ByPoP), start)
	}
	shadows(1 << 22)
	lost := 0
	for n := range uint32(blocked) {
		if table.Until(key(n), start).IsZero() {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d who were refused are not", lost, blocked)
	}
	n := 0
	for range table.All(start) {
		n++
	}
	if n > room || n < room*9/10 {
		t.Errorf("%d bits in a table for %d", n, room)
	}
}

// TestFullTableDropsWhatEndsFirst: it stays within its size, and those blocked for longest mostly stay.
func TestFullTableDropsWhatEndsFirst(t *testing.T) {
	const room = 64 * 32
	table := New(room, nil)
	for n := range uint32(10 * room) {
		until := time.Minute
		if n < room/4 {
			until = time.Hour
		}
		table.Start(key(n), bit(0, until, ByPoP), start)
	}
	short, long := 0, 0
	for _, b := range table.All(start) {
		if b.End.Sub(start) == time.Hour {
			long++
		} else {
			short++
		}
	}
	if short+long > room {
		t.Errorf("%d bits in a table for %d", short+long, room)
	}
	if got, want := table.Evicted(), uint64(10*room-short-long); got != want {
		t.Errorf("%d bits evicted, want %d", got, want)
	}
	if long < room/4*9/10 {
		t.Errorf("%d of %d long blocks are left", long, room/4)
	}
}

func TestSweep(t *testing.T) {
	table := New(10_000, nil)
	for n := range uint32(50) {
		table.Start(key(n), bit(0, time.Duration(n+1)*time.Second, ByEdge), start)
	}
	table.Sweep(start.Add(20 * time.Second))
	for n := range uint32(50) {
		if got, want := !table.Until(key(n), start).IsZero(), n >= 20; got != want {
			t.Errorf("bit %d there = %v, want %v", n, got, want)
		}
	}
	if n := table.Started()[Started{1, ByEdge}]; n != 50 {
		t.Errorf("%d started, want 50: sweeping does not undo", n)
	}
}

func TestCapacity(t *testing.T) {
	for capacity, want := range map[int]int{0: 1_000_000, 1: 64, 6400: 6400} {
		if got := New(capacity, nil).Capacity(); got != want {
			t.Errorf("room for %d, want %d", got, want)
		}
	}
}

// Entries are laid out anew when a quarter of their slots is left, and not again before as many have come.
func TestSlotsAreLaidOutSeldom(t *testing.T) {
	table := New(0, nil)
	s, laidOut, before := &table.shards[0], 0, (*[]slot)(nil)
	for n := range uint32(1000) {
		b := bit(0, time.Hour, ByPoP)
		s.put(n*2654435761|1, table.entry(key(n), &b, start))
		if now := s.slots.Load(); now != before {
			before, laidOut = now, laidOut+1
		}
	}
	if laidOut > 8 {
		t.Errorf("laid out %d times for 1000 entries", laidOut)
	}
}

func TestEnd(t *testing.T) {
	f := func(over bool, retry, timeout, want time.Duration) {
		t.Helper()
		end := End(counter.Verdict{Over: over, Committed: over, RetryAfter: retry}, timeout, start)
		if want == 0 && !end.IsZero() || want != 0 && !end.Equal(start.Add(want)) {
			t.Errorf("End(over %v, retry %v, timeout %v) = %v, want %v", over, retry, timeout, end, want)
		}
	}
	f(true, 10*time.Second, time.Minute, time.Minute)
	f(true, 2*time.Minute, time.Minute, 2*time.Minute) // or an honest retry would be refused
	f(true, 10*time.Second, 0, 0)                      // a throttle has no mitigation
	f(false, 0, time.Minute, 0)
}

// TestAgainstMap starts, prolongs, lifts and sweeps at random and holds all that the table says against a map.
func TestAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table, want := New(0, nil), make(map[Key]time.Time)
	now := start
	for step := range 20_000 {
		now = now.Add(time.Duration(1+rng.IntN(20)) * time.Millisecond)
		k := key(uint32(rng.IntN(2000)))
		k.Rule = uint32(rng.IntN(2))
		switch rng.IntN(10) {
		case 0, 1:
			if got := table.Lift(k, now); now.Before(want[k]) && !got {
				t.Fatalf("step %d: %v was mitigated, and Lift found nothing", step, k)
			}
			delete(want, k)
		case 2:
			if step%10 == 0 {
				table.Sweep(now)
			}
		default:
			if end := now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond); end.After(want[k]) {
				table.Start(k, Bit{Start: now, End: end}, now)
				want[k] = end
			}
		}
		k = key(uint32(rng.IntN(2000)))
		if got := table.Until(k, now); now.Before(want[k]) && !got.Equal(want[k]) || !now.Before(want[k]) && !got.IsZero() {
			t.Fatalf("step %d: %v is mitigated until %v, want %v at %v", step, k, got, want[k], now)
		}
	}
	there := 0
	for k, b := range table.All(now) {
		if there++; !b.End.Equal(want[k]) {
			t.Errorf("%v ends at %v, want %v", k, b.End, want[k])
		}
	}
	for _, end := range want {
		if now.Before(end) {
			there--
		}
	}
	if there != 0 {
		t.Errorf("%d bits too many", there)
	}
	for table.Sweep(now.Add(time.Hour)) {
	}
	if n := table.some.Load(); n != 0 {
		t.Errorf("%d shards believe that somebody is mitigated when everything has ended", n)
	}
}

// TestReadersSeeWhoStays: while others come and go, whoever is mitigated all the time is found by everybody, each time, and
// who never was is not.
func TestReadersSeeWhoStays(t *testing.T) {
	table := New(0, nil)
	const stay = 200
	for n := range uint32(stay) {
		table.Start(key(n), bit(0, time.Hour, ByPoP), start)
	}
	var readers, writers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for n := uint32(0); ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if table.Until(key(n%stay), start).IsZero() {
					t.Errorf("source %d was not found", n%stay)
					return
				}
				if !table.Until(key(1<<30+n), start).IsZero() {
					t.Errorf("source %d was never mitigated", 1<<30+n)
					return
				}
			}
		})
	}
	for w := range uint32(2) {
		writers.Go(func() {
			for n := range uint32(5_000) {
				k := key(stay + w<<20 + n)
				table.Start(k, bit(0, time.Minute, ByPoP), start)
				table.Start(key(n%stay), bit(0, time.Hour+time.Duration(n), ByPoP), start) // prolonged
				if n%3 > 0 {
					table.Lift(k, start)
				}
			}
			table.Sweep(start.Add(time.Minute))
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// A request is noted once, and wakes whoever waits for the first.
func TestAsked(t *testing.T) {
	now, woken := time.Now(), 0
	table := New(0, func() { woken++ })
	for i, step := range []struct {
		renew, await, asks bool
		asked              bool
		woken              int
	}{
		{false, false, false, false, 0},
		{false, false, true, true, 0}, // nobody waits for it
		{true, true, false, false, 0},
		{false, false, true, true, 1},
		{false, false, true, true, 1},
		{true, false, true, true, 1},
		{true, true, true, true, 2},
	} {
		if step.renew {
			table.Renew(step.await)
		}
		if step.asks {
			table.Until(key(1), now)
		}
		if table.Asked() != step.asked || woken != step.woken {
			t.Errorf("step %d: asked %v, woken %d times", i, table.Asked(), woken)
		}
	}
	New(0, nil).Until(key(1), now) // an edge alone has nobody to wake
}
