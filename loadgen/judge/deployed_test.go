package judge

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/loadgen/trace"
)

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

	due, before    int64 // earliest proper end of the block under way, and the latest of what was before
	told           int64 // the latest end that was told of it
	held, admitted bool  // the block is in force, and a request was admitted nevertheless
}

// right notes a block that is right from then on.
func (n *naiveDeployed) right(at, proper int64) {
	if at < n.due {
		n.due = min(n.due, proper)
	} else {
		n.due, n.before, n.told, n.held, n.admitted = proper, n.told, 0, false, false
		for _, b := range append(n.rights, n.wrongs...) {
			n.before = max(n.before, b[1])
		}
	}
	n.rights = append(n.rights, [2]int64{at, proper})
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
		early := n.held && now < n.due
		if over || early && !n.admitted {
			n.f.WronglyAllowed++
		}
		n.admitted = n.admitted || early
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
		n.right(now, proper)
		n.held, n.told = true, max(n.told, int64(d.Until))
	case within(n.rights):
		n.told = max(n.told, int64(d.Until))
		n.held = n.held || d.Verdict == Limited || now >= n.before
	case d.Verdict == Limited:
		n.f.WronglyLimited++
		n.wrongs = append(n.wrongs, [2]int64{now, max(int64(d.Until), now+n.timeout)})
	case within(n.wrongs):
		n.f.WronglyMitigated++
	case int64(d.Until) == now+n.timeout && naiveExact(n.counted, now, n.window) > n.limit:
		n.exceeded = true
		n.most = max(n.most, n.limit+1)
		n.right(now, proper)
		n.held, n.told = true, max(n.told, int64(d.Until))
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
		j := NewDeployedJudge(Options{Limit: limit, Window: time.Duration(window), Timeout: time.Duration(timeout), Edges: 2})
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
	f := func(name string, o Options, steps []step, news []InForce, want func(*Figures) string) {
		t.Helper()
		o.Window = time.Second
		var ds []Decision
		for _, s := range steps {
			ds = append(ds, Decision{Since: time.Duration(s.at) * time.Millisecond, At: time.Duration(s.at) * time.Millisecond, Edge: s.edge, Verdict: s.verdict,
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
	block := Options{Limit: 2, Timeout: time.Second, Edges: 1}
	two := Options{Limit: 2, Timeout: time.Second, Edges: 2}

	f("a perfect limiter", block,
		[]step{{0, 0, Admitted, 0}, {100, 0, Admitted, 0}, {200, 0, Limited, 1200}, {900, 0, Mitigated, 1200}, {1200, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("wrong", f.Wrong, 0, "blocks", f.Blocks, 1, "admitted", f.Admitted, 3, "refused", f.Refused, 2,
				"overshoot", f.Overshoot.Max, 0, "first edge", f.TimeToBlock.FirstEdge, Quantiles{1, 0, 0, 0}, "ideal", *f.FreeRunningIdeal, Ideal{3, 2, 1})
		})
	f("with its connection: by an edge, then by the kernel, until the block's end, and once beyond it", block,
		[]step{{0, 0, Admitted, 0}, {10, 0, Admitted, 0}, {20, 0, Limited, 1020}, {30, 0, Shed, 0}, {50, 0, Walled, 0}, {1019, 0, Walled, 0}, {1021, 0, Walled, 0}, {1100, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 1, "allowed", f.WronglyAllowed, 0, "shed", f.Shed, 1, "walled", f.Walled, 3, "mitigated", f.Mitigated, 4, "blocks", f.Blocks, 1,
				"kernel", f.TimeToBlock.Kernel, Quantiles{1, 0.03, 0.03, 0.03})
		})
	f("the kernel refuses a source within its limit", block, []step{{0, 0, Admitted, 0}, {10, 0, Walled, 0}}, nil,
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 1, "innocent", f.RefusedOfInnocent, 1, "kernel", f.TimeToBlock.Kernel.N, 0)
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
	f("the other edge hears when the window is over in which the limit was crossed", Options{Limit: 2, Timeout: 5 * time.Second, Edges: 2},
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 5020}, {1100, 1, Admitted, 0}, {1300, 1, Mitigated, 5020}},
		[]InForce{{Source: 0, Edge: 0, Start: 20 * ms, At: 20 * ms}, {Source: 0, Edge: 1, Start: 20 * ms, At: 1200 * ms}},
		func(f *Figures) string {
			return is("first", f.TimeToBlock.FirstEdge.Max, 0, "every", f.TimeToBlock.EveryEdge, Quantiles{1, 1.18, 1.18, 1.18}, "partly", f.TimeToBlock.Partly, 0)
		})
	pops := Options{Limit: 2, Timeout: time.Second, Edges: 4, Reach: func(_ int32, at time.Duration) uint64 {
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
	f("throttled: each refusal stands for itself", Options{Limit: 2},
		[]step{{0, 0, Admitted, 0}, {10, 0, Admitted, 0}, {20, 0, Limited, 0}, {999, 0, Limited, 0}, {1000, 0, Limited, 0}, {1010, 0, Admitted, 0}, {1011, 0, Admitted, 0}}, nil,
		func(f *Figures) string {
			return is("allowed", f.WronglyAllowed, 0, "limited", f.WronglyLimited, 1, "blocks", f.Blocks, 1)
		})
	f("throttled: times to block are from the crossing to the first refusal on each edge", Options{Limit: 2, Edges: 2},
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Admitted, 0}, {30, 1, Limited, 0}, {40, 0, Admitted, 0}, {50, 0, Limited, 0}}, nil,
		func(f *Figures) string {
			return is("allowed", f.WronglyAllowed, 2, "first", f.TimeToBlockExact.FirstEdge, Quantiles{1, 0.01, 0.01, 0.01}, "every", f.TimeToBlockExact.EveryEdge, Quantiles{1, 0.03, 0.03, 0.03})
		})
	f("a refusal under a block shows that its edge knows of it, though nobody told", two,
		[]step{{0, 0, Admitted, 0}, {10, 1, Admitted, 0}, {20, 0, Limited, 1020}, {50, 1, Mitigated, 1020}}, nil,
		func(f *Figures) string { return is("every", f.TimeToBlock.EveryEdge, Quantiles{1, 0.03, 0.03, 0.03}) })
	sustained := []step{{0, 0, Admitted, 0}, {300, 0, Admitted, 0}, {600, 0, Limited, 0}, {900, 0, Limited, 0}, {1200, 0, Limited, 0}, {1500, 0, Admitted, 0}}
	f("refused requests are not counted", Options{Limit: 2}, sustained, nil,
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 1, "allowed", f.WronglyAllowed, 0, "window", f.WorstWindow, 2)
		})
	f("they are counted: who goes on is rightly refused, and wrongly let pass", Options{Limit: 2, Refused: true}, sustained, nil,
		func(f *Figures) string {
			return is("limited", f.WronglyLimited, 0, "allowed", f.WronglyAllowed, 1, "window", f.WorstWindow, 2)
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

// TestTwoRatios: a refusal under a block is a request and no decision, unless it is wrong by itself.
func TestTwoRatios(t *testing.T) {
	ms := time.Millisecond
	var ds []Decision
	for _, s := range []step{
		{0, 0, Admitted, 0}, {1, 0, Admitted, 0}, {2, 0, Admitted, 0}, // one too many
		{3, 0, Limited, 103}, {4, 0, Mitigated, 103}, {5, 0, Mitigated, 103},
		{1200, 0, Admitted, 0}, {1201, 0, Limited, 1301}, {1202, 0, Mitigated, 1301}, // a wrong start, and what follows
		{2500, 0, Failed, 0},
	} {
		ds = append(ds, Decision{At: time.Duration(s.at) * ms, Verdict: s.verdict, Until: time.Duration(s.until) * ms, Estimate: math.NaN()})
	}
	f := Judge(Deployed, Options{Limit: 2, Window: time.Second, Timeout: 100 * ms}, ds, nil)
	if f.Requests != 10 || f.Decisions != 6 || f.Wrong != 2 {
		t.Errorf("%d requests, %d decisions, %d wrong; want 10, 6, 2", f.Requests, f.Decisions, f.Wrong)
	}
	if f.WrongRatio != 2.0/10 || f.WrongPerDecision != 2.0/6 || f.WrongAnswersRatio != 3.0/10 {
		t.Errorf("wrong of requests %v, of decisions %v, answers %v; want 0.2, 0.333, 0.3", f.WrongRatio, f.WrongPerDecision, f.WrongAnswersRatio)
	}
	late := Judge(Deployed, Options{Limit: 1, Window: 10 * ms, Timeout: 10 * ms}, []Decision{{At: 0}, {At: ms, Verdict: Limited, Until: 11 * ms}, {At: 12 * ms, Verdict: Mitigated, Until: 20 * ms}}, nil)
	if late.Wrong != 1 || late.Decisions != 3 {
		t.Errorf("a refusal past the block's end: %d wrong of %d decisions; want 1 of 3", late.Wrong, late.Decisions)
	}
	open := Judge(Estimator, Options{Limit: 1, Window: time.Second}, []Decision{{At: 0, Over: true}, {At: ms, Over: true}, {At: 2 * ms, Verdict: Failed}}, nil)
	if open.Requests != 3 || open.Decisions != 2 || open.WrongPerDecision != 0.5 || open.Admitted != 0 {
		t.Errorf("estimator: %d requests, %d decisions, %v of them wrong, %d admitted; want 3, 2, 0.5, 0", open.Requests, open.Decisions, open.WrongPerDecision, open.Admitted)
	}
}

// TestTwoClocks: one block, timed from where the formula sees the crossing and from where the exact log does; and a limiter and
// two counters are timed by the same.
func TestTwoClocks(t *testing.T) {
	ms := time.Millisecond
	made := 0
	lags := func() func(int32, time.Duration, bool) bool { // the formula finds the source over 30 ms after the log does
		made++
		return func(_ int32, at time.Duration, _ bool) bool { return at >= 50*ms }
	}
	ds := []Decision{{At: 0}, {At: 10 * ms}, {At: 20 * ms}, {At: 50 * ms}, {At: 60 * ms, Verdict: Limited, Until: time.Second}}
	f := Judge(Deployed, Options{Limit: 2, Window: time.Second, Timeout: time.Second, Ideal: lags}, ds, nil)
	if got, exact := f.TimeToBlock.FirstEdge, f.TimeToBlockExact.FirstEdge; got.N != 1 || got.Max != 0.01 || exact.N != 1 || exact.Max != 0.04 {
		t.Errorf("by the formula %+v, by the log %+v; want 0.01 and 0.04 s", got, exact)
	}
	if f.TimeToBlock.EveryEdge != f.TimeToBlock.FirstEdge || f.TimeToBlockExact.EveryEdge != f.TimeToBlockExact.FirstEdge {
		t.Errorf("with one edge, the first is every edge: %+v, %+v", f.TimeToBlock, f.TimeToBlockExact)
	}
	traffic := &trace.Trace{Sources: make([]trace.Source, 1)}
	for i := range 8 {
		traffic.Requests = append(traffic.Requests, trace.Request{At: time.Duration(i) * 10 * ms})
	}
	base, _ := Baseline(traffic, Deployed, Options{Limit: 2, Window: time.Second, Timeout: time.Second, Ideal: lags})
	if got, exact := base.TimeToBlock.FirstEdge, base.TimeToBlockExact.FirstEdge; got.N != 1 || exact.N != 1 || made != 2 {
		t.Errorf("two counters by the formula %+v, by the log %+v; %d formulas made, want one for each run", got, exact, made)
	}
}

func TestCollateral(t *testing.T) {
	j := NewDeployedJudge(Options{Limit: 2, Window: time.Second, Timeout: time.Second})
	for i, s := range []struct {
		source  int32
		verdict Verdict
		role    trace.Role
	}{{0, Admitted, trace.Good}, {0, Admitted, trace.Abuser}, {0, Limited, trace.Abuser}, {0, Mitigated, trace.Good}, {1, Limited, trace.Good}} {
		j.Decide(&Decision{At: time.Duration(i), Source: s.source, Verdict: s.verdict, Role: s.role, Estimate: math.NaN()})
	}
	if f := j.Figures(); f.RefusedGood != 2 || f.Collateral != 1 {
		t.Errorf("refused of good clients %d, collateral %d; want 2 and 1", f.RefusedGood, f.Collateral)
	}
}
