package design

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/loadgen/judge"
)

// TestFloor follows one source over three edges that hear of each other after 100 ms: what is said at so many milliseconds on an
// edge, with the number of hits that it knows of, and the end of a block.
func TestFloor(t *testing.T) {
	f := func(timeout time.Duration, story string) {
		t.Helper()
		l, _ := Floor(Options{Mode: judge.Deployed, Limit: 3, Window: time.Second, Timeout: timeout, Edges: 3, RoundTrip: 100 * time.Millisecond}).Start()
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(story), "\n") {
			var ms, edge int
			fmt.Sscanf(line, "%d edge %d", &ms, &edge)
			l.Advance(time.Duration(ms) * time.Millisecond)
			received := ""
			for _, news := range l.InForce() {
				received += fmt.Sprintf("; edge %d heard at %v", news.Edge, news.At)
			}
			d := l.Decide(edge, 0)
			said := fmt.Sprintf("%d edge %d: ", ms, edge)
			switch d.Verdict {
			case judge.Admitted:
				said += fmt.Sprintf("pass %v", d.Estimate)
			case judge.Limited:
				said += fmt.Sprintf("limited %v until %v", d.Estimate, d.Until)
			default:
				said += fmt.Sprintf("blocked until %v", d.Until)
			}
			got = append(got, said+received)
		}
		if diff := cmp.Diff(strings.TrimSpace(story), strings.Join(got, "\n")); diff != "" {
			t.Errorf("timeout %v:\n%s", timeout, diff)
		}
	}
	f(2*time.Second, `
0 edge 0: pass 1
50 edge 0: pass 2
60 edge 1: pass 1
99 edge 1: pass 2
100 edge 1: limited 4 until 2.1s
110 edge 1: blocked until 2.1s
149 edge 2: pass 2
159 edge 0: pass 3
160 edge 0: limited 5 until 2.16s
198 edge 2: limited 5 until 2.198s
200 edge 2: blocked until 2.198s; edge 0 heard at 200ms; edge 2 heard at 200ms
259 edge 1: blocked until 2.1s
260 edge 1: blocked until 2.16s; edge 1 heard at 260ms; edge 2 heard at 260ms
2160 edge 0: blocked until 2.198s; edge 0 heard at 298ms; edge 1 heard at 298ms
2198 edge 0: pass 1
`)
	f(0, `
0 edge 0: pass 1
0 edge 0: pass 2
0 edge 0: pass 3
1 edge 0: limited 4 until 0s
2 edge 1: pass 1
100 edge 1: limited 5 until 0s
1000 edge 1: pass 2
`)
}

// TestFloorIsExact: with no way to go, or with one edge however far it is from anything, it is the sliding log in one place.
func TestFloorIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trace, o := someTraffic(rt), drawnRule(rt)
		far := time.Duration(rapid.IntRange(1, 5000).Draw(rt, "round trip")) * time.Millisecond
		for _, mode := range []judge.Mode{judge.Estimator, judge.Deployed} {
			d := drawnOptions(o, trace, mode)
			want := runDesign(t, All(d), "sliding log", trace, mode, o)
			for _, c := range []struct {
				edges     int
				roundTrip time.Duration
			}{{3, 0}, {1, far}} {
				d.Edges, d.RoundTrip = c.edges, c.roundTrip
				r, err := Floor(d).Run(context.Background(), trace, mode, o, judge.VirtualOptions{Edges: c.edges, PerConnection: 2, Seed: 1})
				if err != nil {
					rt.Fatal(err)
				}
				got := r.Figures
				if got.Wrong != 0 || got.MeanGap != 0 || got.Admitted != want.Admitted || got.Blocks != want.Blocks {
					rt.Fatalf("%v, %+v: %+v, a sliding log %+v", mode, c, got, want)
				}
			}
		}
	})
}

// TestFloorOfARun: over any edges and distance it limits nobody wrongly, knows blocks on every edge one round trip after they begin (those that
// are not over by then), and a recorded run gives the floor that virtual time gives for the same requests on the same edges.
func TestFloorOfARun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		traffic, o := someTraffic(rt), drawnRule(rt)
		d := drawnOptions(o, traffic, judge.Deployed)
		d.RoundTrip = time.Duration(rapid.IntRange(0, 900).Draw(rt, "round trip")) * time.Millisecond
		limiter, _ := Floor(d).Start()
		var decisions []judge.Decision
		decide := limiter.Decide
		limiter.Decide = func(edge int, source int32) judge.Decision {
			r := &traffic.Requests[len(decisions)]
			decisions = append(decisions, judge.Decision{At: r.At, Source: source, Edge: int16(edge)})
			return decide(edge, source)
		}
		want, err := judge.Simulate(context.Background(), traffic, judge.Deployed, o, judge.VirtualOptions{Edges: 3, PerConnection: 2, Seed: 1}, limiter)
		if err != nil {
			rt.Fatal(err)
		}
		got := FloorOf(d, o, decisions)
		if diff := cmp.Diff(counted(want), counted(got)); diff != "" {
			rt.Fatal(diff)
		}
		if want.WronglyLimited != 0 || want.WronglyMitigated != 0 || want.FalsePositiveSources != 0 {
			rt.Fatalf("somebody was limited wrongly: %+v", want)
		}
		if every := want.TimeToBlock.EveryEdge; o.Timeout > d.RoundTrip && every.Max > want.TimeToBlock.FirstEdge.Max+d.RoundTrip.Seconds()+1e-9 {
			rt.Fatalf("in force on the first edge %+v, on every edge %+v", want.TimeToBlock.FirstEdge, every)
		}
	})
	decisions := []judge.Decision{{At: 0}, {At: 1, Verdict: judge.Failed}, {At: 2}}
	f := FloorOf(Options{Mode: judge.Deployed, Limit: 1, Window: time.Second, Edges: 2}, judge.Options{Limit: 1, Window: time.Second}, decisions)
	if f.Failed != 1 || f.Admitted != 1 || f.Refused != 1 {
		t.Errorf("a request without a verdict: %+v", f)
	}
}

func counted(f judge.Figures) []any {
	return []any{f.Requests, f.Wrong, f.WronglyAllowed, f.Admitted, f.Refused, f.Mitigated, f.Blocks, f.Overshoot, f.TimeToBlock.FirstEdge, f.TimeToBlock.EveryEdge}
}
