package loadgen

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// naiveExact is exact(t) by counting them all.
func naiveExact(stamps []int64, now, window int64) (n uint32) {
	for _, at := range stamps {
		if at > now-window && at <= now {
			n++
		}
	}
	return n
}

func TestEstimatorJudgeAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := uint32(rapid.IntRange(1, 6).Draw(t, "limit"))
		window := int64(rapid.IntRange(1, 40).Draw(t, "window"))
		j := NewEstimatorJudge(JudgeOptions{Limit: limit, Window: time.Duration(window)})

		stamps := map[int32][]int64{}
		most, said := map[int32]uint32{}, map[int32]int{}
		var want Figures
		gaps, now := 0.0, int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			now += int64(rapid.IntRange(0, 12).Draw(t, "step"))
			source := int32(rapid.IntRange(0, 3).Draw(t, "source"))
			estimate := float64(rapid.IntRange(0, 80).Draw(t, "estimate")) / 8
			over := estimate > float64(limit)

			stamps[source] = append(stamps[source], now)
			exact := naiveExact(stamps[source], now, window)
			most[source] = max(most[source], exact)
			gaps += math.Abs(estimate-float64(exact)) / float64(exact)
			want.Requests++
			if over {
				want.Refused++
				said[source]++
			}
			if over && exact <= limit {
				want.WronglyLimited++
			}
			if !over && exact > limit {
				want.WronglyAllowed++
			}
			if got := j.Observe(source, now, estimate, over); got != exact {
				t.Fatalf("at %d: exact %d, want %d", now, got, exact)
			}
		}
		for source, m := range most {
			want.Sources++
			switch {
			case m > limit && said[source] == 0:
				want.FalseNegativeSources++
				want.FalseNegativeMargin = max(want.FalseNegativeMargin, float64(m)/float64(limit)-1)
			case m <= limit && said[source] > 0:
				want.FalsePositiveSources++
				want.FalsePositiveMargin = max(want.FalsePositiveMargin, 1-float64(m)/float64(limit))
				want.RefusedOfInnocent += uint64(said[source])
			}
		}
		got := j.Figures()
		if math.Abs(got.MeanGap*float64(want.Requests)-gaps) > 1e-9 {
			t.Fatalf("mean gap %v, want %v", got.MeanGap, gaps/float64(want.Requests))
		}
		compare(t, want, got)
	})
}

// compare holds the counted figures against each other.
func compare(t *rapid.T, want, got Figures) {
	type counted struct {
		Requests, Allowed, Limited, Follow, Refused, Innocent, Blocks uint64
		Sources, Negative, Positive                                   int
		Over, Under                                                   float64
	}
	pick := func(f *Figures) counted {
		return counted{f.Requests, f.WronglyAllowed, f.WronglyLimited, f.WronglyMitigated, f.Refused, f.RefusedOfInnocent, f.Blocks,
			f.Sources, f.FalseNegativeSources, f.FalsePositiveSources, f.FalseNegativeMargin, f.FalsePositiveMargin}
	}
	if diff := cmp.Diff(pick(&want), pick(&got)); diff != "" {
		t.Fatal(diff)
	}
}

// naiveDeployed is DeployedJudge for one source, over lists of all that ever happened.
type naiveDeployed struct {
	limit           uint32
	window, timeout int64
	counted         []int64
	rights, wrongs  [][2]int64 // blocks: from until before
	f               Figures
	most            uint32
	exceeded        bool
	blockUntil      int64
}

func (n *naiveDeployed) decide(d Decision) {
	now := int64(d.At)
	exact := naiveExact(n.counted, now, n.window) + 1
	over := exact > n.limit
	within := func(blocks [][2]int64) bool {
		for _, b := range blocks {
			if now >= b[0] && now < b[1] {
				return true
			}
		}
		return false
	}
	n.f.Requests++
	if d.Verdict != Mitigated {
		n.most = max(n.most, exact)
		n.exceeded = n.exceeded || over
	}
	if d.Verdict == Admitted {
		n.counted = append(n.counted, now)
		if over {
			n.f.WronglyAllowed++
		}
		return
	}
	n.f.Refused++
	if now >= n.blockUntil {
		n.f.Blocks++
	}
	n.blockUntil = max(n.blockUntil, int64(d.Until), now+1)

	proper := now // when one more would be within the limit
	for naiveExact(n.counted, proper, n.window) >= n.limit {
		proper++
	}
	proper = max(proper, now+n.timeout)
	switch {
	case d.Verdict == Limited && over:
		n.rights = append(n.rights, [2]int64{now, proper})
	case within(n.rights):
	case d.Verdict == Limited:
		n.f.WronglyLimited++
		n.wrongs = append(n.wrongs, [2]int64{now, max(int64(d.Until), now+n.timeout)})
	case within(n.wrongs):
		n.f.WronglyMitigated++
	case int64(d.Until) == now+n.timeout && naiveExact(n.counted, now, n.window) > n.limit:
		n.exceeded = true
		n.most = max(n.most, n.limit+1)
		n.rights = append(n.rights, [2]int64{now, proper})
	default:
		n.f.WronglyLimited++
		if int64(d.Until) == now+n.timeout {
			n.wrongs = append(n.wrongs, [2]int64{now, int64(d.Until)})
		}
	}
}

func TestDeployedJudgeAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := uint32(rapid.IntRange(1, 4).Draw(t, "limit"))
		window := int64(rapid.IntRange(5, 40).Draw(t, "window"))
		timeout := int64(rapid.IntRange(1, 60).Draw(t, "timeout"))
		j := NewDeployedJudge(JudgeOptions{Limit: limit, Window: time.Duration(window), Timeout: time.Duration(timeout), Edges: 2})
		n := naiveDeployed{limit: limit, window: window, timeout: timeout, blockUntil: -1}
		now, until := int64(0), int64(0) // until: end of the block that the limiter itself believes in
		var story []string
		for range rapid.IntRange(1, 120).Draw(t, "n") {
			now += int64(rapid.IntRange(0, 8).Draw(t, "step"))
			d := Decision{At: time.Duration(now), Estimate: math.NaN()}
			switch rapid.IntRange(0, 9).Draw(t, "verdict") {
			case 0, 1:
				d.Verdict, until = Limited, max(until, now+timeout)
				d.Until = time.Duration(until)
			case 2, 3:
				d.Verdict = Mitigated
				if now >= until { // nobody has said that one began
					until = now + timeout
				}
				d.Until = time.Duration(until)
			}
			story = append(story, fmt.Sprintf("%d %d until %d", now, d.Verdict, d.Until))
			j.Decide(&d)
			n.decide(d)
		}
		want := n.f
		want.Sources = 1
		switch {
		case n.exceeded && want.Refused == 0:
			want.FalseNegativeSources, want.FalseNegativeMargin = 1, float64(n.most)/float64(limit)-1
		case !n.exceeded && want.Refused > 0:
			want.FalsePositiveSources, want.FalsePositiveMargin = 1, 1-float64(n.most)/float64(limit)
			want.RefusedOfInnocent = want.Refused
		}
		t.Log(strings.Join(story, "\n"))
		compare(t, want, j.Figures())
	})
}

// step is one line of a story about one source.
type step struct {
	at      int // ms
	edge    int16
	verdict Verdict
	until   int
}

func TestDeployedJudgeStories(t *testing.T) {
	f := func(name string, o JudgeOptions, steps []step, news []InForce, want func(*Figures) string) {
		t.Helper()
		o.Window = time.Second
		var ds []Decision
		for _, s := range steps {
			ds = append(ds, Decision{At: time.Duration(s.at) * time.Millisecond, Edge: s.edge, Verdict: s.verdict,
				Until: time.Duration(s.until) * time.Millisecond, Estimate: math.NaN()})
		}
		got := Judge(Deployed, o, ds, news)
		if s := want(&got); s != "" {
			t.Errorf("%s: %s\n%+v", name, s, got)
		}
	}
	is := func(checks ...any) string {
		for i := 0; i+2 < len(checks); i += 3 {
			if got, want := fmt.Sprint(checks[i+1]), fmt.Sprint(checks[i+2]); got != want {
				return fmt.Sprintf("%v is %s, want %s", checks[i], got, want)
			}
		}
		return ""
	}
	ms := time.Millisecond
	block := JudgeOptions{Limit: 2, Timeout: time.Second, Edges: 1}
	two := JudgeOptions{Limit: 2, Timeout: time.Second, Edges: 2}

	f("a perfect limiter", block,
		[]step{{0, 0, Admitted, 0}, {100, 0, Admitted, 0}, {200, 0, Limited, 1200}, {900, 0, Mitigated, 1200}, {1200, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("wrong", f.Wrong, 0, "blocks", f.Blocks, 1, "admitted", f.Admitted, 3, "refused", f.Refused, 2,
				"overshoot", f.Overshoot.Max, 0, "first edge", f.TimeToBlock.FirstEdge, Quantiles{1, 0, 0, 0}, "ideal", *f.FreeRunningIdeal, Ideal{3, 2, 1})
		})
	f("one admitted too many, then a block, then a refusal after its end", block,
		[]step{{0, 0, Admitted, 0}, {10, 0, Admitted, 0}, {20, 0, Admitted, 0}, {30, 0, Limited, 1030}, {1029, 0, Mitigated, 1030}, {1030, 0, Mitigated, 1040}}, nil,
		func(f *Figures) string {
			return is("allowed", f.WronglyAllowed, 1, "limited", f.WronglyLimited, 1, "overshoot", f.Overshoot.Max, 1,
				"first edge", f.TimeToBlock.FirstEdge.Max, 0.01, "innocent", f.RefusedOfInnocent, 0)
		})
	f("a block without reason", block,
		[]step{{0, 0, Admitted, 0}, {10, 0, Limited, 1010}, {20, 0, Mitigated, 1010}, {30, 0, Mitigated, 1010}}, nil,
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 1, "mitigated", f.WronglyMitigated, 2, "positives", f.FalsePositiveSources, 1,
				"margin", f.FalsePositiveMargin, 0, "innocent", f.RefusedOfInnocent, 3, "blocked", f.TimeToBlock.FirstEdge.N, 0)
		})
	f("another edge admits until it hears of the block", two,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 1020}, {25, 1, Admitted, 0}, {40, 1, Mitigated, 1020}},
		[]InForce{{Source: 0, Edge: 0, Start: 20 * ms, At: 20 * ms}, {Source: 0, Edge: 1, Start: 20 * ms, At: 30 * ms}},
		func(f *Figures) string {
			return is("wrong", f.Wrong, 1, "allowed", f.WronglyAllowed, 1, "blocks", f.Blocks, 1, "overshoot", f.Overshoot.Max, 1,
				"first", f.TimeToBlock.FirstEdge.Max, 0, "every", f.TimeToBlock.EveryEdge.Max, 0.01, "partly", f.TimeToBlock.Partly, 0)
		})
	f("the other edge never hears", two,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 1020}, {1100, 1, Admitted, 0}},
		[]InForce{{Source: 0, Edge: 0, Start: 20 * ms, At: 20 * ms}},
		func(f *Figures) string {
			return is("every", f.TimeToBlock.EveryEdge.N, 0, "partly", f.TimeToBlock.Partly, 1, "wrong", f.Wrong, 0)
		})
	pops := JudgeOptions{Limit: 2, Timeout: time.Second, Edges: 4, Reach: func(_ int32, at time.Duration) uint64 {
		if at < 500*ms {
			return 0b0011
		}
		return 0b1100 // its route changes to the second PoP
	}}
	f("the edges of another PoP need not hear", pops,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 1020}},
		[]InForce{{Source: 0, Edge: 0, Start: 20 * ms, At: 20 * ms}, {Source: 0, Edge: 1, Start: 20 * ms, At: 30 * ms}},
		func(f *Figures) string {
			return is("every", f.TimeToBlock.EveryEdge, Quantiles{1, 0.01, 0.01, 0.01}, "partly", f.TimeToBlock.Partly, 0)
		})
	f("and what they hear does not count", pops,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 1020}},
		[]InForce{{Source: 0, Edge: 0, Start: 20 * ms, At: 20 * ms}, {Source: 0, Edge: 3, Start: 20 * ms, At: 30 * ms}},
		func(f *Figures) string {
			return is("every", f.TimeToBlock.EveryEdge.N, 0, "partly", f.TimeToBlock.Partly, 1)
		})
	f("a source moves to edges that have heard of nothing", pops,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {490, 0, Limited, 1490}},
		[]InForce{{Source: 0, Edge: 0, Start: 490 * ms, At: 490 * ms}, {Source: 0, Edge: 1, Start: 490 * ms, At: 510 * ms}},
		func(f *Figures) string { return is("every", f.TimeToBlock.EveryEdge.N, 0) })
	f("two edges start a block each; the later end counts", two,
		[]step{{0, 0, Admitted, 0}, {0, 1, Admitted, 0}, {20, 0, Limited, 1020}, {50, 1, Limited, 1050}, {1040, 1, Mitigated, 1050}, {1060, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("wrong", f.Wrong, 0, "blocks", f.Blocks, 1, "every", f.TimeToBlock.EveryEdge.Max, 0.03)
		})
	f("the PoP's total was over, no request told", two,
		[]step{{0, 0, Admitted, 0}, {1, 1, Admitted, 0}, {2, 0, Admitted, 0}, {10, 1, Mitigated, 1005}},
		[]InForce{{Source: 0, Edge: 1, Start: 5 * ms, At: 6 * ms, Total: true}},
		func(f *Figures) string {
			return is("allowed", f.WronglyAllowed, 1, "limited", f.WronglyLimited, 0, "first", f.TimeToBlock.FirstEdge.Max, 0.004)
		})
	f("the PoP's total was at the limit, not over", two,
		[]step{{0, 0, Admitted, 0}, {1, 1, Admitted, 0}, {10, 1, Mitigated, 1005}, {11, 1, Mitigated, 1005}},
		[]InForce{{Source: 0, Edge: 1, Start: 5 * ms, At: 6 * ms, Total: true}},
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 1, "mitigated", f.WronglyMitigated, 1, "innocent", f.RefusedOfInnocent, 2)
		})
	f("throttled: each refusal stands for itself", JudgeOptions{Limit: 2},
		[]step{{0, 0, Admitted, 0}, {10, 0, Admitted, 0}, {20, 0, Limited, 0}, {999, 0, Limited, 0}, {1000, 0, Limited, 0}, {1010, 0, Admitted, 0}, {1011, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("allowed", f.WronglyAllowed, 0, "limited", f.WronglyLimited, 1, "blocks", f.Blocks, 1)
		})
	f("never blocked though over", block,
		[]step{{0, 0, Admitted, 0}, {10, 0, Admitted, 0}, {20, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("negatives", f.FalseNegativeSources, 1, "margin", f.FalseNegativeMargin, 0.5, "blocks", f.Blocks, 0)
		})
	f("what failed or closed", block,
		[]step{{0, 0, Failed, 0}, {10, 0, Closed, 0}}, nil,
		func(f *Figures) string {
			return is("failed", f.Failed, 1, "closed", f.Closed, 1, "limited", f.WronglyLimited, 1, "refused", f.Refused, 1, "admitted", f.Admitted, 0)
		})
	f("decisions come in any order", block,
		[]step{{200, 0, Limited, 1200}, {100, 0, Admitted, 0}, {0, 0, Admitted, 0}}, nil,
		func(f *Figures) string { return is("wrong", f.Wrong, 0) })
}

func TestCollateral(t *testing.T) {
	j := NewDeployedJudge(JudgeOptions{Limit: 2, Window: time.Second, Timeout: time.Second})
	for i, s := range []struct {
		source  int32
		verdict Verdict
		role    Role
	}{{0, Admitted, Good}, {0, Admitted, Abuser}, {0, Limited, Abuser}, {0, Mitigated, Good}, {1, Limited, Good}} {
		j.Decide(&Decision{At: time.Duration(i), Source: s.source, Verdict: s.verdict, Role: s.role, Estimate: math.NaN()})
	}
	if f := j.Figures(); f.RefusedGood != 2 || f.Collateral != 1 {
		t.Errorf("refused of good clients %d, collateral %d; want 2 and 1", f.RefusedGood, f.Collateral)
	}
}

// TestEstimatorJudgeInParts judges by halves, and source by source, and finds the same.
func TestEstimatorJudgeInParts(t *testing.T) {
	trace, err := Generate("distributed", WorkloadOptions{Seed: 1, Limit: 20, Window: time.Second, Duration: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := JudgeOptions{Limit: 20, Window: time.Second}
	b := NewTwoCounters(o, trace.Start)
	whole, parts := NewEstimatorJudge(o), [2]*EstimatorJudge{NewEstimatorJudge(o), NewEstimatorJudge(o)}
	for _, r := range trace.Requests {
		estimate, over := b.Estimate(r.Source, int64(r.At))
		whole.Observe(r.Source, int64(r.At), estimate, over)
		parts[r.Source%2].Observe(r.Source, int64(r.At), estimate, over)
	}
	parts[0].Add(parts[1])
	want, got := whole.Figures(), parts[0].Figures()
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(a) }) // sums in another order
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
	if want.Wrong == 0 || want.MeanGap == 0 {
		t.Error("nothing to compare")
	}
	if again := parts[0].Figures(); !cmp.Equal(got, again) {
		t.Error("figures change when asked for twice")
	}

	one := NewEstimatorJudge(o)
	b = NewTwoCounters(o, trace.Start)
	for s := range int32(len(trace.Sources)) {
		for _, r := range trace.Requests {
			if r.Source == s {
				estimate, over := b.Estimate(0, int64(r.At))
				one.Observe(0, int64(r.At), estimate, over)
			}
		}
		one.Done(0)
		b.Forget(0)
	}
	if diff := cmp.Diff(want, one.Figures(), near); diff != "" {
		t.Error(diff)
	}
	if len(one.states) > 1024 || len(one.spare) > 1 {
		t.Errorf("source by source took %d states and %d rings", len(one.states), len(one.spare))
	}
}

func TestTwoCounters(t *testing.T) {
	b := NewTwoCounters(JudgeOptions{Limit: 1000, Window: time.Minute}, time.Time{})
	estimate := 0.0
	for i := range 42 {
		estimate, _ = b.Estimate(0, int64(i)*int64(time.Second))
	}
	if estimate != 42 {
		t.Errorf("42 in the first window: %v", estimate)
	}
	for range 18 {
		estimate, _ = b.Estimate(0, int64(75*time.Second))
	}
	if want := 42*0.75 + 18; estimate != want {
		t.Errorf("estimate %v, want %v", estimate, want)
	}
	if estimate, _ = b.Estimate(0, int64(10*time.Minute)); estimate != 1 {
		t.Errorf("after a long pause %v, want 1", estimate)
	}
}

// TestSeries keeps the points around the widest gap of the sources watched.
func TestSeries(t *testing.T) {
	j := NewEstimatorJudge(JudgeOptions{Limit: 10, Window: time.Hour, Watch: []int32{3, 5, 9}})
	const n, worst = 10 * seriesHalf, 4 * seriesHalf
	for i := range n {
		estimate := float64(i + 1)
		if i == worst {
			estimate -= 7
		}
		j.Observe(3, int64(i), estimate, false)
		j.Observe(4, int64(i), estimate, false)
	}
	j.Observe(5, 0, 1, false)
	s := j.Figures().Series
	if len(s) != 2 || s[0].Source != 3 || s[1].Source != 5 || len(s[1].Points) != 1 {
		t.Fatalf("%d series", len(s))
	}
	p := s[0].Points
	if first, last := int(p[0].At), int(p[len(p)-1].At); first != worst-seriesHalf+1 || last != worst+seriesHalf {
		t.Errorf("from %d to %d, want %d on either side of %d", first, last, seriesHalf, worst)
	}
	for i := range p {
		if i > 0 && p[i].At != p[i-1].At+1 {
			t.Fatalf("a hole after %d", p[i-1].At)
		}
	}
}

func TestTimeline(t *testing.T) {
	var line Timeline
	for s := range 100 {
		line.Admitted[line.in(int64(s)*int64(time.Second))]++
	}
	sum := uint32(0)
	for _, n := range line.Admitted {
		sum += n
	}
	if sum != 100 || len(line.Admitted) > timelineSteps || len(line.Wrong) != len(line.Admitted) || line.Step != 320*time.Millisecond {
		t.Errorf("%d requests in %d steps of %v", sum, len(line.Admitted), line.Step)
	}
}

func BenchmarkEstimatorJudge(b *testing.B) {
	trace, err := Generate("mixed", WorkloadOptions{Seed: 1, Limit: 20, Window: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	j := NewEstimatorJudge(JudgeOptions{Limit: 20, Window: 10 * time.Second})
	span := trace.Duration() + time.Second
	b.ResetTimer()
	for i := range b.N {
		r := &trace.Requests[i%len(trace.Requests)]
		j.Observe(r.Source, int64(r.At)+int64(i/len(trace.Requests))*int64(span), 20, false)
	}
}
