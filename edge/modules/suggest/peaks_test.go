package suggest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"sluice/counter"
	"sluice/edge/honest"
)

var start = time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)

var client = counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)

func sampleOf(t testing.TB, b *Registry, window time.Duration) *Sample {
	t.Helper()
	return b.Set([]Rule{{Name: "a", Version: 7, Window: window}}, start)[0]
}

// answer has a source look honest, or not.
func answer(s *Source, good bool) {
	for range honest.Answers {
		s.Answered(map[bool]int{true: 200, false: 401}[good])
	}
}

// below is the probability that of n sources at most k have peaks under a quantile above which a share of num in den lies: exactly, in whole numbers.
func below(n, k int, num, den int64) *big.Rat {
	sum := new(big.Int)
	for i := 0; i <= k; i++ {
		term := new(big.Int).Binomial(int64(n), int64(i))
		term.Mul(term, new(big.Int).Exp(big.NewInt(den-num), big.NewInt(int64(i)), nil))
		sum.Add(sum, term.Mul(term, new(big.Int).Exp(big.NewInt(num), big.NewInt(int64(n-i)), nil)))
	}
	return new(big.Rat).SetFrac(sum, new(big.Int).Exp(big.NewInt(den), big.NewInt(int64(n)), nil))
}

// The ranks are those of an exact computation, and Want is the first number of sources that has any.
func TestRanks(t *testing.T) {
	tail := big.NewRat(1, 40)
	rest := new(big.Rat).Sub(big.NewRat(1, 1), tail)
	for _, test := range []struct {
		n        int
		num, den int64
	}{{368, 1, 100}, {369, 1, 100}, {700, 1, 100}, {1024, 1, 100}, {1024, 1, 250}, {921, 1, 250}, {72, 1, 20}, {100, 1, 4}, {6, 1, 2}, {300, 1, 2}} {
		low, high := ranks(test.n, float64(test.num)/float64(test.den))
		at := func(k int) *big.Rat { return below(test.n, k, test.num, test.den) }
		if at(low-1).Cmp(tail) > 0 || at(low).Cmp(tail) <= 0 {
			t.Errorf("%v: low %d", test, low)
		}
		if at(high-1).Cmp(rest) < 0 || at(high-2).Cmp(rest) >= 0 {
			t.Errorf("%v: high %d", test, high)
		}
	}
	for _, test := range []struct {
		num, den int64
		want     int
	}{{1, 100, 368}, {1, 50, 183}, {1, 20, 72}, {1, 2, 6}, {1, 250, 921}} {
		share := float64(test.num) / float64(test.den)
		want := Want(share)
		enough := func(n int) bool { return below(n, n-1, test.num, test.den).Cmp(rest) >= 0 }
		if want != test.want || !enough(want) || enough(want-1) {
			t.Errorf("%d/%d: want %d, is %d", test.num, test.den, test.want, want)
		}
		if got := ShareOf(want); got > share+1e-9 || Want(got) > want || got > LeastShare && Want(got-0.001) <= want {
			t.Errorf("%d sources say something of %v, is %v", want, share, got)
		}
	}
}

// Of draws from a known distribution the interval has the true quantile in at least 95 of 100 cases, less four standard errors.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const rounds, n = 2000, 500
	low, high := ranks(n, 0.05)
	in := 0
	for range rounds {
		x := make([]int, n)
		for i := range x {
			x[i] = 1 + rng.IntN(1000)
		}
		slices.Sort(x)
		if x[low-1] <= 950 && 950 <= x[high-1] {
			in++
		}
	}
	if least := 0.95 - 4*math.Sqrt(0.95*0.05/rounds); float64(in)/rounds < least {
		t.Errorf("in %d of %d", in, rounds)
	}
}

// Under the limit that is suggested at most the share is refused, and under the next smaller one more: counted one by one. Sources that do not look honest
// do not matter, and what was refused makes it "at least" where it rests on it.
func TestSuggest(t *testing.T) {
	for _, test := range []struct {
		name         string
		honest, cut  int // cut: of the honest the highest, at 900
		refuse       float64
		atLeast, end bool // end: there is an upper end
	}{
		{"all seen", 600, 0, 0.01, false, true},
		{"one was refused", 600, 1, 0.01, false, true},
		{"as many as may be", 600, 6, 0.01, false, false},
		{"more than that", 600, 7, 0.01, true, false},
		{"half", 100, 3, 0.5, false, true},
	} {
		var b Registry
		s := sampleOf(t, &b, time.Minute)
		var peaks []int
		for i := range test.honest + 200 {
			source := s.Of(uint64(i+1)<<40, &client, start)
			n := 1 + i*i%701
			if i >= test.honest-test.cut && i < test.honest {
				n = 900
			}
			if i >= test.honest {
				n = 5000
			}
			answer(source, i < test.honest)
			source.Hits(float64(n))
			source.Hits(float64(n) / 2)
			if n == 900 {
				source.Cut()
				source.Answered(500) // what comes later does not matter
			}
			if i < test.honest {
				peaks = append(peaks, n)
			}
		}
		over := func(limit uint64) (n int) {
			for _, p := range peaks {
				if uint64(p) > limit {
					n++
				}
			}
			return n
		}
		got := Suggest([]*Part{s.Part(start)}, time.Minute, test.refuse, start.Add(time.Hour))
		may := int(test.refuse * float64(test.honest))
		if got.Limit == 0 || over(got.Limit) > may || over(got.Limit-1) <= may || got.AtLeast != test.atLeast || (got.High > 0) != test.end {
			t.Errorf("%s: %+v: %d over, %d under one less", test.name, got, over(got.Limit), over(got.Limit-1))
		}
		if got.Low > got.Limit || test.end && got.High < got.Limit || got.Honest != test.honest || got.Refused != test.cut || got.Sources != uint64(test.honest+200) || got.Windows != 60 {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// What is not enough is said.
func TestNotEnough(t *testing.T) {
	var b Registry
	s := sampleOf(t, &b, time.Minute)
	for i := range 368 {
		source := s.Of(uint64(i), &client, start)
		source.Hits(3)
		answer(source, i != 0)
	}
	later := start.Add(time.Hour)
	got := Suggest([]*Part{s.Part(later)}, time.Minute, 0.01, later)
	if got.Limit != 0 || got.Missing != "sources: 367 look honest, want 368" {
		t.Errorf("%+v", got)
	}
	answer(s.Of(0, &client, later), true) // 3 of 6
	if got = Suggest([]*Part{s.Part(later)}, time.Minute, 0.01, later); got.Limit != 0 {
		t.Errorf("%+v", got)
	}
	one := s.Of(999, &client, later)
	answer(one, true)
	if got = Suggest([]*Part{s.Part(later)}, time.Minute, 0.01, later); got.Limit != 3 || got.Low != 3 || got.High != 3 || got.Missing != "" {
		t.Errorf("%+v", got)
	}
	if got = Suggest([]*Part{s.Part(start)}, time.Minute, 0.01, start.Add(59*time.Second)); got.Limit != 0 || got.Missing == "" {
		t.Errorf("%+v", got)
	}
	if got = Suggest(nil, time.Minute, 0.01, later); got.Limit != 0 || got.Sources != 0 {
		t.Errorf("%+v", got)
	}
	for _, share := range []float64{0, -1, 0.003, 0.51, math.NaN(), math.Inf(1)} {
		if CheckShare(share) == nil {
			t.Error(share)
		}
	}
}

// Edges that see some of the sources each join their samples to that of one edge that sees all: the smallest tags, with the highest peak of each.
func TestEdges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{100, 5000, 40000} {
		boards := make([]Registry, 3)
		var samples []*Sample
		for i := range boards {
			samples = append(samples, sampleOf(t, &boards[i], time.Minute))
		}
		peak := make(map[uint64]uint64)
		var tags []uint64
		for range n {
			tag := rng.Uint64()
			tags = append(tags, tag)
			for i := range 1 + rng.IntN(3) {
				hits := 1 + rng.Uint64N(50)
				peak[tag] = max(peak[tag], hits)
				if source := samples[i].Of(tag, &client, start); source != nil {
					source.Hits(float64(hits))
				}
			}
		}
		slices.Sort(tags)
		parts := []*Part{samples[0].Part(start), samples[1].Part(start), samples[2].Part(start)}
		parts[1].cut(Kept / 2)
		bound := min(parts[0].Bound, parts[1].Bound, parts[2].Bound)
		all := join(parts, bound)
		for i, p := range all {
			if p[0] != tags[i] || p[1] != peak[p[0]] {
				t.Fatalf("%d: the %d. is %v, want %d with %d", n, i, p, tags[i], peak[tags[i]])
			}
		}
		if len(all) < min(n, Kept/2) || len(all) < n && tags[len(all)] <= bound {
			t.Errorf("%d: %d up to %d", n, len(all), bound)
		}
		got := Suggest(parts, time.Minute, 0.01, start.Add(time.Hour))
		if off := math.Abs(float64(got.Sources) - float64(n)); n == 100 && off > 0 || off > 4*float64(n)/math.Sqrt(Kept/2) {
			t.Errorf("about %d sources, want %d", got.Sources, n)
		}
	}
}

// A sample forgets what is older than two halves, is bounded, and begins anew when its rule changes.
func TestForgets(t *testing.T) {
	var b Registry
	s := sampleOf(t, &b, time.Minute)
	n := func(now time.Time) int { return len(s.Part(now).Sample) }
	s.Of(1, &client, start).Hits(5)
	second := start.Add(Period)
	s.Of(1, &client, second).Hits(3)
	s.Of(2, &client, second).Hits(2)
	p := s.Part(second)
	if len(p.Sample) != 2 || p.Sample[0][1] != 5 || !p.Since.Equal(start) {
		t.Errorf("%+v", p)
	}
	third := second.Add(Period)
	s.Of(3, &client, third)
	if p = s.Part(third); len(p.Sample) != 3 || p.Sample[0][1] != 3 || !p.Since.Equal(second) {
		t.Errorf("%+v", p)
	}
	last := third.Add(10 * Period)
	s.Of(4, &client, last)
	if n(last) != 1 || b.used.Load() != 1 {
		t.Errorf("%d, %d used", n(last), b.used.Load())
	}
	again := b.Set([]Rule{s.Rule}, last)[0]
	if again != s {
		t.Error("it began anew")
	}
	other := s.Rule
	other.Version++
	if b.Set([]Rule{other}, last)[0] == s || b.used.Load() != 0 || s.Of(5, &client, last) != nil {
		t.Error("it goes on")
	}
	if b.Set(nil, last); b.Sample("a") != nil {
		t.Error("it is there still")
	}
	if long := newHalf(90*Period, start); !long.until.Equal(start.Add(180 * Period)) {
		t.Errorf("until %v", long.until)
	}
}

// All samples together take no more room than there is. One that finds none has what it has got, and says of fewer sources.
func TestRoom(t *testing.T) {
	var b Registry
	var list []Rule
	for i := range 2*Room/Kept + 1 {
		list = append(list, Rule{Name: string(rune('a' + i)), Window: time.Second})
	}
	rng := rand.New(rand.NewPCG(5, 6))
	samples, total, fewer := b.Set(list, start), 0, 0
	for range 2 * Kept {
		tag := rng.Uint64()
		for _, s := range samples {
			s.Of(tag, &client, start)
		}
	}
	for _, s := range samples {
		p := s.Part(start)
		total += len(p.Sample)
		if len(p.Sample) < Kept {
			fewer++
		}
		if about := distinct(len(p.Sample), p.Bound); len(p.Sample) > 100 && (about < Kept*3/2 || about > Kept*5/2) {
			t.Errorf("about %d sources of %d", about, 2*Kept)
		}
	}
	if n := unsafe.Sizeof(Source{}); n > 48 { // and 16 in lists
		t.Errorf("a source takes %d bytes", n)
	}
	if total != Room || fewer == 0 {
		t.Errorf("%d sources, %d samples have fewer", total, fewer)
	}
	b.Set(nil, start)
	if b.used.Load() != 0 {
		t.Errorf("%d are used still", b.used.Load())
	}
}

// Requests at the same time lose no peak and no source.
func TestAtOnce(t *testing.T) {
	var b Registry
	s := sampleOf(t, &b, time.Minute)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				source := s.Of(uint64(i), &client, start)
				source.Hits(float64(10*i + g))
				source.Answered(200)
			}
		})
	}
	all.Wait()
	p := s.Part(start)
	for i, peak := range p.Sample {
		if peak != (Peak{uint64(i), uint64(10*i + 3), 0, 4, 4}) {
			t.Errorf("%v", peak)
		}
	}
	if len(p.Sample) != 500 {
		t.Errorf("%d sources", len(p.Sample))
	}
}

// BenchmarkOf is what a request costs a sample: of a source that is in it, and of one that is not.
func BenchmarkOf(b *testing.B) {
	for _, test := range []struct {
		name string
		tag  uint64
	}{{"sampled", 1}, {"not sampled", math.MaxUint64}} {
		b.Run(test.name, func(b *testing.B) {
			var board Registry
			s := sampleOf(b, &board, time.Minute)
			for i := range 2 * Kept {
				s.Of(1+uint64(i)<<30, &client, start)
			}
			b.ReportAllocs()
			for b.Loop() {
				if source := s.Of(test.tag, &client, start); source != nil {
					source.Hits(1)
					source.Answered(200)
				}
			}
		})
	}
}

// A counter learns later of what other edges have counted: the peak is that, also if the source never comes again. Who has been away for a window is
// not looked at.
func TestSweep(t *testing.T) {
	var b Registry
	s := b.Set([]Rule{{Name: "a", Window: time.Minute}}, start)[0]
	source := s.Of(1, &client, start)
	source.Hits(3)
	asked := 0
	for i := range 100 {
		s.Sweep(start.Add(time.Duration(i)*time.Second), func(of counter.Source) (float64, bool) {
			if asked++; of != client {
				t.Errorf("asked of %v", of)
			}
			return []float64{2, 3, 9, 4}[min(asked-1, 3)], true
		})
	}
	if p := s.Part(start).Sample; p[0][1] != 9 || asked != looks+1 {
		t.Errorf("%v, looked %d times", p, asked)
	}
}
