package virtual

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
	"sluice/mitigation"
)

// newRule admits limit requests a minute, and blocks for a minute.
func newRule(t *testing.T, limit uint32) mitigation.Rule {
	t.Helper()
	r, err := algorithm.NewSliding("r", limit, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	return mitigation.Rule{Counter: r, Timeout: time.Minute}
}

// twoSources is a trace of two sources that have one address, as those of a folded log may.
func twoSources() *trace.Trace {
	addr := netip.MustParseAddr("192.0.2.7")
	return &trace.Trace{Sources: []trace.Source{{Name: "a", Addr: addr}, {Name: "b", Addr: addr}}}
}

// Each source of a trace is one of the limiter's, and is found again by its number.
func TestSourceKeys(t *testing.T) {
	seen := make(map[string]bool)
	for _, i := range []int32{0, 1, 255, 256, 1 << 16, 1<<31 - 1} {
		key := SourceKey(i)
		if got := sourceIndex(key); got != i || seen[key.String()] {
			t.Errorf("source %d is %s, which is that of %d", i, key, got)
		}
		seen[key.String()] = true
	}
}

// Within its limit a source passes; the request over it is limited and begins a block; those until its end are mitigated. Another source of the
// same address has a limit of its own. An estimator refuses nobody.
func TestOracle(t *testing.T) {
	for _, mode := range []judge.Mode{judge.Deployed, judge.Estimator} {
		o := NewOracle(twoSources(), mode, newRule(t, 2))
		l := o.Limiter()
		var blocks int
		for i, step := range []struct {
			at      time.Duration
			source  int32
			verdict judge.Verdict
		}{
			{0, 0, judge.Admitted}, {time.Second, 0, judge.Admitted}, {2 * time.Second, 0, judge.Limited}, {3 * time.Second, 0, judge.Mitigated},
			{3 * time.Second, 1, judge.Admitted}, {61 * time.Second, 0, judge.Mitigated}, {10 * time.Minute, 0, judge.Admitted},
		} {
			l.Advance(step.at)
			want := step.verdict
			if mode == judge.Estimator {
				want = judge.Admitted
			}
			if d := l.Decide(0, step.source); d.Verdict != want {
				t.Errorf("%v, step %d: %v, want %v", mode, i, d.Verdict, want)
			}
			for _, b := range l.InForce() {
				if blocks++; b.Source != 0 || b.At != 2*time.Second || b.Until < 62*time.Second {
					t.Errorf("%v: %+v", mode, b)
				}
			}
		}
		if want := map[judge.Mode]int{judge.Deployed: 1}[mode]; blocks != want {
			t.Errorf("%v: %d blocks, want %d", mode, blocks, want)
		}
	}
}

// The formula says when a source crosses its limit by what the judged limiter counted, whatever else it was asked.
func TestIdeal(t *testing.T) {
	over := IdealOf(twoSources(), newRule(t, 2))()
	for i, step := range []struct {
		counted, over bool
	}{{true, false}, {false, false}, {false, false}, {true, false}, {false, true}, {true, true}} {
		if got := over(0, time.Duration(i)*time.Second, step.counted); got != step.over {
			t.Errorf("request %d: over %t", i, got)
		}
	}
}

// A request that meets an edge that is down fails, and with it restarted others pass. Without what goes wrong all of them run.
func TestSiteFaults(t *testing.T) {
	size := &Size{PoPs: 2, Edges: 2, Nodes: 1, RTT: time.Millisecond, Faults: []lab.Fault{
		{At: 2 * time.Second, Kind: "edge", Index: 3, Action: lab.Restart}, {At: time.Second, Kind: "edge", Index: 3, Action: lab.Term},
	}}
	for _, undisturbed := range []bool{false, true} {
		s, err := NewSite(twoSources(), judge.Deployed, newRule(t, 100), size, undisturbed)
		if err != nil {
			t.Fatal(err)
		}
		l := s.Limiter()
		for _, step := range []struct {
			at      time.Duration
			running uint64
		}{{0, 0b1111}, {1500 * time.Millisecond, 0b0111}, {3 * time.Second, 0b1111}} {
			if undisturbed {
				step.running = 0b1111
			}
			l.Advance(step.at)
			var running uint64
			for edge := range 4 {
				if l.Decide(edge, 0).Verdict == judge.Admitted {
					running |= 1 << edge
				}
			}
			if running != step.running || s.running() != step.running {
				t.Errorf("undisturbed %t, at %v: %04b serve, and %04b are said to run; want %04b", undisturbed, step.at, running, s.running(), step.running)
			}
		}
		if s.Err != nil {
			t.Error(s.Err)
		}
	}
}

// TestMovesStayWithinBound: a source whose route changes has its limit in each PoP, and no more than each alone allows.
func TestMovesStayWithinBound(t *testing.T) {
	const limit = 50
	for _, timeout := range []time.Duration{0, 10 * time.Second} {
		spec, err := algorithm.NewSliding("r", limit, 10*time.Second, 12, algorithm.Nearest)
		if err != nil {
			t.Fatal(err)
		}
		rule := mitigation.Rule{Counter: spec, Timeout: timeout}
		tr := &trace.Trace{}
		for i := range int32(20) {
			tr.Sources = append(tr.Sources, trace.Source{Name: fmt.Sprint(i), Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Role: trace.Abuser})
			for at := time.Duration(i) * 370 * time.Millisecond; at < 40*time.Second; at += time.Second / time.Duration(6+2*i) {
				tr.Requests = append(tr.Requests, trace.Request{At: at, Source: i})
			}
		}
		trace.Sort(tr)
		everybody := netip.MustParsePrefix("0.0.0.0/0")
		size := &Size{PoPs: 2, Edges: 3, Nodes: 2, RTT: time.Millisecond, Routes: []anycast.Route{
			{Prefix: everybody, PoP: 0}, {At: 14 * time.Second, Prefix: everybody, PoP: 1}, {At: 21 * time.Second, Prefix: everybody, PoP: 0},
		}}
		site, err := NewSite(tr, judge.Deployed, rule, size, false)
		if err != nil {
			t.Fatal(err)
		}
		o := judge.Options{Limit: limit, Window: spec.Window, Timeout: timeout, Bound: BoundOf(tr, rule, size)}
		f, err := judge.Simulate(t.Context(), tr, judge.Deployed, o, site.Options(judge.VirtualOptions{Seed: 1}), site.Limiter())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("blocks of %v: %d in the worst window of %d that are allowed", timeout, f.WorstWindow, f.Bound)
		if f.BeyondBound > 0 || f.Bound == 0 || f.WorstWindow <= limit*3/2 {
			t.Errorf("blocks of %v: %d sources beyond the bound; %d in the worst window of %d", timeout, f.BeyondBound, f.WorstWindow, f.Bound)
		}
	}
}

// A source meets the edges of the PoP that its route leads to, numbered through all PoPs.
func TestReach(t *testing.T) {
	tr := &trace.Trace{}
	for i := range 200 {
		tr.Sources = append(tr.Sources, trace.Source{Name: fmt.Sprint(i), Addr: netip.AddrFrom4([4]byte{192, 0, byte(i), 1})})
	}
	affinity, err := anycast.New(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	reach, met := Reach(tr, affinity, []int{3, 2}), make(map[uint64]int)
	for i, s := range tr.Sources {
		set := reach(int32(i), 0)
		met[set]++
		if want := []uint64{0b00111, 0b11000}[affinity.PoP(s.Addr, 0)]; set != want {
			t.Errorf("%s meets %05b, want %05b", s.Addr, set, want)
		}
	}
	if len(met) != 2 {
		t.Errorf("the sources meet %v: want both PoPs", met)
	}
}

// TestEnds: blocks of a limiter that is told another timeout than its judge end early, or late, on one edge and on several; and of one
// that is told the same they do not, with edges that are killed and come back.
func TestEnds(t *testing.T) {
	const limit, window = 10, 2 * time.Second
	tr, err := workload.Generate("onoff", workload.Options{Seed: 1, Limit: limit, Window: window, Duration: 20 * time.Second, Edges: 3})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := algorithm.NewSliding("r", limit, window, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	killed := []lab.Fault{{At: 5 * time.Second, Action: lab.Kill, Kind: "edge", Index: 1}, {At: 7 * time.Second, Action: lab.Restart, Kind: "edge", Index: 1}}
	for _, c := range []struct {
		name        string
		edges       int
		timeout     time.Duration
		faults      []lab.Fault
		early, late bool
	}{
		{"as they should", 1, 2 * window, nil, false, false},
		{"a quarter", 1, window / 2, nil, true, false},
		{"twice as long", 1, 4 * window, nil, false, true},
		{"as they should", 3, 2 * window, nil, false, false},
		{"an edge is killed, and comes back", 3, 2 * window, killed, false, false},
		{"a quarter", 3, window / 2, nil, true, false},
		{"twice as long", 3, 4 * window, nil, false, true},
	} {
		rule := mitigation.Rule{Counter: spec, Timeout: c.timeout}
		site, err := NewSite(tr, judge.Deployed, rule, &Size{PoPs: 1, Edges: c.edges, Nodes: 1, RTT: time.Millisecond, Faults: c.faults}, false)
		if err != nil {
			t.Fatal(err)
		}
		o := judge.Options{Limit: limit, Window: window, Timeout: 2 * window, Grain: Grain(spec)}
		f, err := judge.Simulate(t.Context(), tr, judge.Deployed, o, site.Options(judge.VirtualOptions{Seed: 1}), site.Limiter())
		if err != nil || site.Err != nil {
			t.Fatal(err, site.Err)
		}
		e := f.Ends
		sound := e.Early == 0 && e.Late == 0
		if e.Blocks < 10 || !c.early && !c.late && !sound || c.early && e.Early*2 < e.Blocks || c.late && e.Late*2 < e.Blocks {
			t.Errorf("%s, %d edges: of %d blocks %d ended early, %d late", c.name, c.edges, e.Blocks, e.Early, e.Late)
		}
	}
}
