package judge

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestEnds tells blocks that end when they should from those that do not, whoever decided them.
func TestEnds(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		o     func(*Options)
		steps []step
		news  []InForce
		want  string // blocks, early by, late by, wrongly allowed and limited; times in ms
	}{
		{"as long as it should", nil, []step{{200, 0, Limited, 2200}, {2199, 0, Mitigated, 2200}, {2200, 0, Admitted, 0}}, nil, "1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"a quarter", nil, []step{{200, 0, Limited, 700}, {1300, 0, Admitted, 0}, {1350, 0, Admitted, 0}}, nil, "1 early 1 by 1500 late 0 by 0 wrong 1 0"},
		{"a quarter, and nobody comes", nil, []step{{200, 0, Limited, 700}}, nil, "1 early 1 by 1500 late 0 by 0 wrong 0 0"},
		{"it says the right end, and admits", nil, []step{{200, 0, Limited, 2200}, {1300, 0, Admitted, 0}}, nil, "1 early 1 by 900 late 0 by 0 wrong 1 0"},
		{"an edge that has not learned of it admits", nil, []step{{200, 0, Limited, 2200}, {1300, 1, Admitted, 0}}, nil, "1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"one that has", nil, []step{{200, 0, Limited, 2200}, {1300, 1, Admitted, 0}}, []InForce{{Edge: 1, Start: 200 * ms, At: 203 * ms}}, "1 early 1 by 900 late 0 by 0 wrong 1 0"},
		{"one that has shown it", nil, []step{{200, 0, Limited, 2200}, {300, 1, Mitigated, 2200}, {1300, 1, Admitted, 0}}, nil, "1 early 1 by 900 late 0 by 0 wrong 1 0"},
		{"another thread was deciding", func(o *Options) { o.Grace = 5 * ms }, []step{{200, 0, Limited, 2200}, {1200, 1, Admitted, 0}}, []InForce{{Edge: 1, Start: 200 * ms, At: 1197 * ms}},
			"1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"one that has lost it", func(o *Options) { o.Lost = []Lost{{Edge: 1, At: 900 * ms}} }, []step{{200, 0, Limited, 2200}, {300, 1, Mitigated, 2200}, {1300, 1, Admitted, 0}}, nil,
			"1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"an edge tells another a short one", nil, []step{{200, 0, Limited, 2200}}, []InForce{{Edge: 1, Start: 200 * ms, At: 203 * ms, Until: 700 * ms}}, "1 early 1 by 1500 late 0 by 0 wrong 0 0"},
		{"the PoP's total began a short one", nil, []step{{150, 1, Admitted, 0}}, []InForce{{Edge: 1, Start: 200 * ms, At: 200 * ms, Until: 700 * ms, Total: true}}, "1 early 1 by 1500 late 0 by 0 wrong 1 0"},
		{"twice", nil, []step{{200, 0, Limited, 4200}, {2300, 0, Mitigated, 4200}, {2400, 0, Mitigated, 4200}}, nil, "1 early 0 by 0 late 1 by 2000 wrong 0 1"},
		{"twice, and nobody comes", nil, []step{{200, 0, Limited, 4200}}, nil, "1 early 0 by 0 late 1 by 2000 wrong 0 0"},
		{"twice, as others learn", nil, []step{{200, 0, Limited, 2200}}, []InForce{{Edge: 1, Start: 200 * ms, At: 203 * ms, Until: 4200 * ms}}, "1 early 0 by 0 late 1 by 1997 wrong 0 0"},
		{"it goes on beyond the end that it said", nil, []step{{200, 0, Limited, 2200}, {2300, 0, Mitigated, 2400}}, nil, "1 early 0 by 0 late 1 by 100 wrong 0 1"},
		{"two edges decide before they learn of each other", nil, []step{{200, 0, Limited, 2200}, {250, 1, Limited, 2250}, {2210, 0, Admitted, 0}, {2240, 1, Mitigated, 2250}}, nil,
			"1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"an old one of another edge", nil, []step{{200, 0, Limited, 2200}, {250, 1, Limited, 2250}, {2200, 0, Admitted, 0}, {2202, 0, Admitted, 0}, {2204, 0, Limited, 4204}, {2240, 1, Mitigated, 2250},
			{3300, 1, Admitted, 0}}, nil, "2 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"clocks apart", func(o *Options) { o.Clocks = 100 * ms }, []step{{200, 0, Limited, 2300}, {300, 1, Mitigated, 2300}, {2150, 0, Admitted, 0}}, nil, "1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"until the source would be admitted again", func(o *Options) { o.Timeout = 300 * ms }, []step{{200, 0, Limited, 1000}, {999, 0, Mitigated, 1000}, {1000, 0, Admitted, 0}}, nil,
			"1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"who comes back as told is refused again", func(o *Options) { o.Timeout = 300 * ms }, []step{{200, 0, Limited, 500}}, nil, "1 early 1 by 500 late 0 by 0 wrong 0 0"},
		{"as well as a counter knows that", func(o *Options) { o.Timeout, o.Grain = 300*ms, 100*ms }, []step{{200, 0, Limited, 1090}}, nil, "1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"nor better", func(o *Options) { o.Timeout, o.Grain = 300*ms, 100*ms }, []step{{200, 0, Limited, 1300}}, nil, "1 early 0 by 0 late 1 by 200 wrong 0 0"},
		{"a repeater's", func(o *Options) { o.Escalate = []time.Duration{4 * time.Second} }, []step{{200, 0, Limited, 4200}, {300, 1, Mitigated, 4200}, {4100, 0, Mitigated, 4200}}, nil,
			"1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"a repeater's that ends early", func(o *Options) { o.Escalate = []time.Duration{4 * time.Second} }, []step{{200, 0, Limited, 4200}, {3000, 0, Admitted, 0}}, nil, "1 early 1 by 1200 late 0 by 0 wrong 1 0"},
		{"an operator's, of a source that is within its limit", nil, []step{{1200, 0, Mitigated, 9000}, {8000, 0, Mitigated, 9000}, {9000, 0, Admitted, 0}},
			[]InForce{{Edge: 0, Start: 1150 * ms, At: 1150 * ms, Until: 9 * time.Second, Operator: true}}, "1 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"an operator's that ends early", nil, []step{{1200, 0, Mitigated, 9000}, {5000, 0, Admitted, 0}},
			[]InForce{{Edge: 0, Start: 1150 * ms, At: 1150 * ms, Until: 9 * time.Second, Operator: true}}, "1 early 1 by 4000 late 0 by 0 wrong 1 0"},
		{"an operator's in place of a longer one", nil, []step{{200, 0, Limited, 2200}, {1300, 0, Admitted, 0}},
			[]InForce{{Edge: 0, Start: 400 * ms, At: 400 * ms, Until: 1200 * ms, Operator: true}}, "2 early 0 by 0 late 0 by 0 wrong 0 0"},
		{"none that began wrongly", nil, []step{{1500, 0, Limited, 1600}, {1700, 0, Admitted, 0}}, nil, "0 early 0 by 0 late 0 by 0 wrong 0 1"},
	} {
		o := Options{Limit: 2, Window: time.Second, Timeout: 2 * time.Second, Edges: 2}
		if c.o != nil {
			c.o(&o)
		}
		ds := []Decision{{At: 0, Estimate: math.NaN()}, {At: 100 * ms, Estimate: math.NaN()}}
		for _, s := range c.steps {
			ds = append(ds, Decision{At: time.Duration(s.at) * ms, Edge: s.edge, Verdict: s.verdict, Until: time.Duration(s.until) * ms, Estimate: math.NaN()})
		}
		f := Judge(Deployed, o, ds, c.news)
		e := f.Ends
		in := func(q Quantiles) int64 { return int64(math.Round(q.Max * 1000)) }
		got := fmt.Sprintf("%d early %d by %d late %d by %d wrong %d %d", e.Blocks, e.Early, in(e.EarlyBy), e.Late, in(e.LateBy), f.WronglyAllowed, f.WronglyLimited)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if f.FalsePositiveSources > 0 && f.WronglyLimited == 0 {
			t.Errorf("%s: a source is said to be refused though never over", c.name)
		}
	}
	if f := Judge(Deployed, Options{Limit: 2, Window: time.Second}, []Decision{{Verdict: Limited}}, nil); f.Ends != nil {
		t.Errorf("who is throttled has no block: %+v", f.Ends)
	}
}
