package audit

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

var epoch = time.Unix(1_700_000_000, 0)

func second(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// A bench is a limiter with one rule, and an audit that watches everybody.
type bench struct {
	*limiter.Limiter
	*Audit
	rule     *limiter.Rule
	d        limiter.Decision
	detected []time.Duration
}

func newBench(t *testing.T, limit uint32, subWindows int, e algorithm.Estimate, tier bool) *bench {
	t.Helper()
	c, err := algorithm.NewRule("r", limit, 10*time.Second, subWindows, e)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{rule: &limiter.Rule{Counter: c}, Audit: New(1),
		Limiter: &limiter.Limiter{Counters: counter.New(counter.Options{Counters: 10_000, Tier: tier}), Bits: mitigation.New(1000, nil)}}
	b.Detected = func(d time.Duration) { b.detected = append(b.detected, d) }
	return b
}

func source(n int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32, 64)
}

func (b *bench) decide(s counter.Source, now time.Time) *limiter.Decision {
	b.d.Reset()
	b.d.Add(b.rule, s)
	if b.Watches(&b.d) {
		b.Audit.Lock()
		defer b.Audit.Unlock()
		defer b.Note(&b.d, now)
	}
	b.Decide(&b.d, now)
	return &b.d
}

// What the audit says is what an obvious twin says, who keeps everything and judges in the end.
func TestAgreesWithTheObvious(t *testing.T) {
	for _, estimate := range []algorithm.Estimate{algorithm.Nearest, algorithm.Lower, algorithm.Unrounded} {
		b, random := newBench(t, 5, 2, estimate, false), rand.New(rand.NewPCG(1, 2))
		hits := make(map[counter.Source][]time.Time)
		var judged, allowed, limited uint64
		sum, at := 0.0, 0.0
		for range recent {
			at += random.ExpFloat64() / 4
			s, now := source(random.IntN(10)), second(at)
			exact := 1
			for _, h := range hits[s] {
				if now.Sub(h) < 10*time.Second {
					exact++
				}
			}
			d := b.decide(s, now)
			ask := d.Results[0].Ask
			judged++
			sum += math.Abs(ask.Estimate-float64(exact)) / float64(exact)
			switch {
			case !ask.Over && exact > 5:
				allowed++
			case ask.Over && exact <= 5:
				limited++
			}
			if !ask.Over {
				hits[s] = append(hits[s], now)
			}
		}
		got := b.Stats()
		if got.Judged != judged || got.Allowed != allowed || got.Limited != limited || math.Abs(got.Gap-sum/float64(judged)) > 1e-9 || got.Logs != 10 {
			t.Errorf("%v: %+v, want %d, %d, %d and %v", estimate, got, judged, allowed, limited, sum/float64(judged))
		}
		if estimate == algorithm.Lower && (allowed == 0 || limited != 0) || estimate == algorithm.Unrounded && limited == 0 {
			t.Errorf("%v: %d allowed and %d limited wrongly show little", estimate, allowed, limited)
		}
	}
}

// From the crossing, as the log has it, to the first refusal.
func TestDetection(t *testing.T) {
	b := newBench(t, 3, 1, algorithm.Lower, false) // the last window is not seen: the crossing is missed at first
	begin := 10 - math.Mod(float64(epoch.Unix()), 10)
	for _, at := range []float64{9, 9.1, 9.2, 10, 10.1, 10.5, 10.75} {
		b.decide(source(1), second(begin-10+at))
	}
	if len(b.detected) != 1 || b.detected[0] != 750*time.Millisecond || b.Stats().Allowed != 3 {
		t.Errorf("detected %v, %+v", b.detected, b.Stats())
	}
}

// What other edges count cannot be judged by this edge's log, and for a window after they are gone; that more than the limit was admitted
// here can.
func TestOthersCount(t *testing.T) {
	b := newBench(t, 5, 12, algorithm.Nearest, true)
	alone := false
	b.Alone = func() bool { return alone }
	elsewhere := func(s counter.Source, n uint64, at time.Time) {
		oldest, newest := b.Counters.Groups(b.rule.Counter, at, 0)
		b.Counters.Learn(counter.Counter{Rule: b.rule.Counter, Source: s}, newest, append([]uint64{n}, make([]uint64, newest-oldest)...), 0, at)
	}
	b.decide(source(1), epoch)
	elsewhere(source(1), 20, epoch)
	if d := b.decide(source(1), second(0.1)); !d.Results[0].Ask.Over {
		t.Fatal("the hits of others are not there")
	}
	if got := b.Stats(); got.Judged != 0 || got.Limited != 0 {
		t.Errorf("while others count: %+v", got)
	}
	alone = true
	b.decide(source(1), second(10.5))
	if got := b.Stats(); got.Judged != 0 {
		t.Errorf("within a window: %+v", got)
	}
	b.decide(source(1), second(11))
	if got := b.Stats(); got.Judged != 1 || got.Limited != 0 {
		t.Errorf("after it: %+v", got)
	}
}

// What a counter had before its log began is not judged for a window, nor what was forgotten.
func TestWholeLogs(t *testing.T) {
	b := newBench(t, 5, 12, algorithm.Nearest, false)
	for range 3 {
		b.d.Reset()
		b.d.Add(b.rule, source(1))
		b.Decide(&b.d, epoch) // as another process did
	}
	b.decide(source(1), second(1))
	b.decide(source(1), second(2))
	if got := b.Stats(); got.Judged != 0 {
		t.Errorf("%+v", got)
	}
	b.decide(source(1), second(12.5))
	if got := b.Stats(); got.Judged != 1 || got.Gap != 0 {
		t.Errorf("%+v", got)
	}
	b.Counters.Forget(b.rule.Counter, source(1))
	b.Audit.Forget(counter.Key{Source: source(1), Rule: b.rule.Counter.ID})
	if b.decide(source(1), second(13)); b.Stats().Gap != 0 || b.Stats().Judged != 2 {
		t.Errorf("after a lift: %+v", b.Stats())
	}
}

// Few are watched, and however many are, there is a bound; who has not come for a window makes room.
func TestBounds(t *testing.T) {
	b := newBench(t, 5, 12, algorithm.Nearest, false)
	for i := range 3000 {
		b.decide(source(i), epoch)
	}
	if got := b.Stats(); got.Logs != maxLogs || got.Unlogged != 3000-maxLogs {
		t.Errorf("%+v", got)
	}
	b.Sweep(second(10.1))
	b.decide(source(1), second(10.1))
	if got := b.Stats(); got.Logs != 1 || b.hits != 1 {
		t.Errorf("%+v, %d hits", got, b.hits)
	}
	few, n := New(0), 0
	for i := range 1 << 17 {
		b.d.Reset()
		b.d.Add(b.rule, source(i))
		if few.Watches(&b.d) {
			n++
		}
	}
	if n < 64 || n > 256 { // 128 are expected: less than one in 10^9 are outside
		t.Errorf("%d of %d are watched", n, 1<<17)
	}
	var nobody *Audit
	nobody.Sweep(epoch)
	nobody.Forget(counter.Key{})
	nobody.Inherits(epoch)
	if nobody.Watches(&b.d) || nobody.Stats() != (Stats{}) {
		t.Error("a nil audit watches")
	}
}

// Whether somebody is watched costs nothing but time.
func TestWatchesAllocatesNothing(t *testing.T) {
	b := newBench(t, 5, 12, algorithm.Nearest, false)
	b.Audit = New(0)
	b.d.Reset()
	b.d.Add(b.rule, source(1))
	if n := testing.AllocsPerRun(100, func() { b.Watches(&b.d) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A hit takes eight bytes, so that all of them take 8 MiB.
func TestHitSize(t *testing.T) {
	if n := reflect.TypeOf(log{}.hits).Elem().Size(); n != 8 {
		t.Errorf("%d bytes", n)
	}
}
