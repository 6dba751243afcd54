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
		news      bool
		end       time.Duration // in force afterwards until then; 0: nothing is
	}
	f := func(name string, steps ...step) {
		t.Helper()
		table := New(10, nil)
		for i, s := range steps {
			now := start.Add(s.at)
			if news := table.Start(key(1), bit(s.at, s.until, ByEdge), now); news != s.news {
				t.Errorf("%s, step %d: news = %v, want %v", name, i, news, s.news)
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
	f("the same end is no news",
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

// TestNews: the PoP hears of this edge's verdicts here, not of what it told itself, and of operators in another way.
func TestNews(t *testing.T) {
	woken := 0
	table := New(10, func() { woken++ })
	table.Start(key(1), bit(0, time.Second, ByEdge), start)
	table.Start(key(2), bit(0, time.Second, ByPoP), start)
	table.Start(key(3), bit(0, time.Second, ByAdmin), start)
	table.Lift(key(2), start)
	var told []string
	for _, n := range table.News(nil) {
		told = append(told, fmt.Sprintf("%s %s %v", n.Key.Source, n.Bit.By, n.Bit.End.IsZero()))
	}
	want := []string{"0.0.0.1 edge false"}
	if fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("news %q, want %q", told, want)
	}
	if len(table.News(nil)) != 0 {
		t.Error("news was given twice")
	}
	if woken != len(want) {
		t.Errorf("woken %d times for %d news", woken, len(want))
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
	if !table.Start(key(1), bit(1, time.Minute, ByEdge), start) {
		t.Error("a lifted source cannot be blocked again")
	}
	table.Void(key(1), start)
	if table.Until(key(1), start).IsZero() {
		t.Error("a verdict of later was void")
	}
	table.Void(key(1), start.Add(1))
	if !table.Until(key(1), start).IsZero() {
		t.Error("a verdict of before was not void")
	}
	table.Start(key(1), bit(1, time.Minute, ByPoP), start)
	table.Void(key(1), start.Add(1))
	if table.Until(key(1), start).IsZero() {
		t.Error("what the PoP has said was void")
	}
	table.Sweep(start.Add(2 * time.Minute))
	if table.lifted.n.Load() != 0 || !table.Start(key(1), bit(0, time.Hour, ByEdge), start) {
		t.Error("a lift was not forgotten")
	}
}

// TestOperatorsWord: it replaces what is in force, and may shorten it; a verdict does not change it.
func TestOperatorsWord(t *testing.T) {
	table := New(10, nil)
	f := func(what string, b Bit, news bool, end time.Duration, by By) {
		t.Helper()
		if got := table.Start(key(1), b, start); got != news {
			t.Errorf("%s: news = %v", what, got)
		}
		if is, _ := table.Get(key(1), start); !is.End.Equal(start.Add(end)) || is.By != by {
			t.Errorf("%s: now until %v by %s", what, is.End.Sub(start), is.By)
		}
	}
	f("a verdict", bit(0, time.Hour, ByEdge), true, time.Hour, ByEdge)
	f("a shorter block", bit(0, time.Minute, ByAdmin), true, time.Minute, ByAdmin)
	f("the same once more", bit(0, time.Minute, ByAdmin), false, time.Minute, ByAdmin)
	f("a longer verdict", bit(0, time.Hour, ByPoP), false, time.Minute, ByAdmin)
	f("a longer block", bit(0, 2*time.Minute, ByAdmin), true, 2*time.Minute, ByAdmin)
	f("a shorter one", bit(0, time.Second, ByAdmin), true, time.Second, ByAdmin)
	if n := table.Started()[Started{1, ByAdmin}]; n != 1 {
		t.Errorf("%d started by operators, want 1, which they changed", n)
	}
}

// TestFloodDropsNoOperatorsWord: an attack that fills the table drops verdicts.
func TestFloodDropsNoOperatorsWord(t *testing.T) {
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
	table.Sweep(now.Add(time.Hour))
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
