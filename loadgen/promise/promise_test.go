package promise

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/edge/edgetest/golden"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
)

// run is a report of eight edges, or of one, that breaks nothing.
func run(edges int, change func(*report.Report)) *report.Report {
	s := report.Seconds(10 * time.Second)
	r := &report.Report{Run: report.Run{Command: "simulate", Mode: "deployed", Workload: "mill", Estimate: "nearest", Limit: 20, Window: s, MitigationTimeout: s, Edges: edges, Nodes: edges / 2},
		Figures: judge.Figures{Requests: 1e6, Decisions: 1e5, Blocks: 100, Wrong: 1, TimeToBlock: &judge.TimeToBlock{EveryEdge: judge.Quantiles{N: 100, P99: 0.02}}, Ends: &judge.Ends{Blocks: 100}}}
	if change != nil {
		change(r)
	}
	return r
}

// TestCheck breaks each promise by itself, and only that; and those that no promise is about break none.
// blocked is so many blocks that were on every edge in time, and some that were not.
func blocked(many int64, inTime time.Duration, late ...time.Duration) *judge.TimeToBlock {
	times := hdrhistogram.New(1, int64(time.Hour), 3)
	_ = times.RecordValues(int64(inTime), many)
	for _, d := range late {
		_ = times.RecordValue(int64(d))
	}
	all := judge.Quantiles{N: times.TotalCount(), P99: float64(times.ValueAtQuantile(99)) / 1e9}
	return &judge.TimeToBlock{EveryEdge: all, EveryEdgeTimes: times}
}

// The published stream is judged as a whole: what one of its runs has by chance is not held against
// it.
func TestPublishedStreamsAreSummedUp(t *testing.T) {
	part := func(wrong uint64) *report.Report {
		return run(1, func(r *report.Report) {
			r.Run.Mode, r.Run.Workload = "estimator", "published-poisson"
			r.Figures.Wrong, r.Figures.Decisions = wrong, 4_000_000
		})
	}
	for _, c := range []struct {
		wrong  [4]uint64
		broken bool
	}{{[4]uint64{2, 2, 3, 6}, false}, {[4]uint64{4, 4, 4, 5}, true}} {
		var runs []*report.Report
		for _, n := range c.wrong {
			runs = append(runs, part(n))
		}
		found, err := Check(runs)
		if err != nil || (Err(found) != nil) != c.broken {
			t.Errorf("%v wrong: %v, %v, want broken %v", c.wrong, Err(found), err, c.broken)
		}
	}
}

func TestCheck(t *testing.T) {
	lab := func(change func(*report.Report)) *report.Report {
		return run(3, func(r *report.Report) {
			r.Run.Command, r.Figures.SendError = "lab", &judge.Quantiles{N: 1, Max: 0.01}
			if change != nil {
				change(r)
			}
		})
	}
	for _, c := range []struct {
		name string
		of   *report.Report
		want string
	}{
		{"nothing", run(8, nil), ""},
		{"nothing, one edge", run(1, nil), ""},
		{"nothing, live", lab(nil), ""},
		{"as many wrong as the floor", run(8, func(r *report.Report) { r.Figures.Wrong, r.Floor = 5000, &judge.Figures{Wrong: 5000} }), ""},
		{"wrong on a log", run(8, func(r *report.Report) {
			r.Run.Workload, r.Run.Trace, r.Figures.Wrong, r.Figures.Blocks = "", "access.log", 51, 1000
		}), "decisions"},
		{"wrong on what is made in its place", run(8, func(r *report.Report) {
			r.Run.Workload, r.Figures.Wrong, r.Figures.Blocks = "mixed", 51, 1000
		}), "decisions of mixed"},
		{"an attack, of its decisions", run(8, func(r *report.Report) {
			r.Run.Workload, r.Figures.Wrong, r.Figures.Blocks = "edge-burst", 51, 1000
		}), ""},
		{"an attack, of its blocks", run(64, func(r *report.Report) {
			r.Run.Workload, r.Figures.Wrong, r.Figures.Blocks = "edge-burst", 101, 1000
		}), "decisions per block"},
		{"wrong per block", run(8, func(r *report.Report) { r.Figures.Wrong = 11 }), "decisions per block"},
		{"wrong per block of lower", run(8, func(r *report.Report) { r.Run.Estimate, r.Figures.Wrong = "lower", 16 }), "decisions per block of lower"},
		{"wrong of one edge", run(1, func(r *report.Report) { r.Figures.Wrong = 3 }), "decisions of one edge"},
		{"estimates", run(1, func(r *report.Report) { r.Run.Mode, r.Figures.Wrong = "estimator", 11 }), "estimates"},
		{"estimates of lower", run(1, func(r *report.Report) { r.Run.Mode, r.Run.Estimate, r.Figures.Wrong = "estimator", "lower", 51 }), "estimates of lower"},
		{"some estimates of a short run", run(1, func(r *report.Report) { r.Run.Mode, r.Figures.Wrong, r.Figures.Decisions = "estimator", 5, 1000 }), ""},
		{"estimates at the published size", run(1, func(r *report.Report) {
			r.Run.Mode, r.Run.Workload, r.Figures.Wrong = "estimator", "published-poisson", 4
		}), "estimates at the published size"},
		{"innocents", run(8, func(r *report.Report) { r.Figures.FalsePositiveSources = 1 }), "innocents"},
		{"innocents of lower", run(8, func(r *report.Report) { r.Run.Estimate, r.Figures.FalsePositiveSources = "lower", 1 }), "innocents of lower"},
		{"refusals of lower", run(8, func(r *report.Report) { r.Run.Estimate, r.Figures.WronglyLimited = "lower", 1 }), "innocents of lower"},
		{"late everywhere", run(8, func(r *report.Report) { r.Figures.TimeToBlock.EveryEdge.P99 = 0.051 }), "block everywhere"},
		{"as late on many edges", run(64, func(r *report.Report) { r.Figures.TimeToBlock.EveryEdge.P99 = 0.051 }), ""},
		{"one of few late", run(8, func(r *report.Report) {
			r.Figures.TimeToBlock = blocked(18, 10*time.Millisecond, 240*time.Millisecond)
		}), ""},
		{"two of few late", run(8, func(r *report.Report) {
			r.Figures.TimeToBlock = blocked(17, 10*time.Millisecond, time.Second/5, time.Second/4)
		}), "block everywhere"},
		{"two of many late", run(8, func(r *report.Report) {
			r.Figures.TimeToBlock = blocked(500, 10*time.Millisecond, time.Second/5, time.Second/4)
		}), ""},
		{"late on many edges", run(64, func(r *report.Report) { r.Figures.TimeToBlock.EveryEdge.P99 = 0.61 }), "block everywhere at any size"},
		{"as late on a log", run(8, func(r *report.Report) {
			r.Run.Workload, r.Run.Trace, r.Figures.TimeToBlock.EveryEdge.P99 = "", "access.log", 0.59
		}), ""},
		{"late on a log", run(8, func(r *report.Report) {
			r.Run.Workload, r.Run.Trace, r.Figures.TimeToBlock.EveryEdge.P99 = "", "access.log", 0.61
		}), "block everywhere on logs"},
		{"as late after quiet", run(8, func(r *report.Report) {
			r.Run.Workload, r.Figures.TimeToBlock.EveryEdge.P99 = "edge-burst", 0.59
		}), ""},
		{"late after quiet", run(8, func(r *report.Report) {
			r.Run.Workload, r.Figures.TimeToBlock.EveryEdge.P99 = "edge-burst", 0.61
		}), "block everywhere after quiet"},
		{"a short block", run(8, func(r *report.Report) { r.Figures.Ends.Early = 1 }), "length of blocks"},
		{"a long block", run(8, func(r *report.Report) { r.Figures.Ends.Late = 1 }), "length of blocks"},
		{"overshoot", run(8, func(r *report.Report) { r.Figures.Overshoot.P99 = 4 }), "overshoot"},
		{"the floor's overshoot", run(8, func(r *report.Report) {
			r.Figures.Overshoot.P99, r.Floor = 140, &judge.Figures{Overshoot: judge.Quantiles{P99: 140}}
		}), ""},
		{"beyond the bound", run(8, func(r *report.Report) { r.Figures.BeyondBound = 1 }), "bound"},
		{"no verdict", run(8, func(r *report.Report) { r.Figures.Failed = 1 }), "answers"},

		{"throttled", run(8, func(r *report.Report) { r.Run.MitigationTimeout, r.Figures.Wrong = 0, 5000 }), ""},
		{"short blocks", run(8, func(r *report.Report) { r.Run.MitigationTimeout, r.Figures.Wrong = report.Seconds(time.Second), 5000 }), ""},
		{"alone", run(8, func(r *report.Report) { r.Run.Nodes, r.Figures.Wrong = 0, 5000 }), ""},
		{"faults", run(8, func(r *report.Report) { r.Run.Faults, r.Figures.Wrong = []string{"20s kill edge/1"}, 5000 }), ""},
		{"clocks", run(8, func(r *report.Report) { r.Run.Skew, r.Figures.Wrong = report.Seconds(2*time.Second), 5000 }), ""},

		{"live: wrong", lab(func(r *report.Report) { r.Figures.Wrong = 501 }), "live decisions"},
		{"live: some wrong", lab(func(r *report.Report) { r.Figures.Wrong, r.Figures.Decisions = 5, 100 }), ""},
		{"live: late", lab(func(r *report.Report) { r.Figures.TimeToBlock.EveryEdge.P99 = 0.71 }), "live block everywhere"},
		{"live: as late, sent late", lab(func(r *report.Report) { r.Figures.TimeToBlock.EveryEdge.P99, r.Figures.SendError.Max = 0.71, 0.02 }), ""},
		{"live: short blocks", lab(func(r *report.Report) { r.Figures.Ends.Early = 3 }), "live length of blocks"},
		{"live: two of them", lab(func(r *report.Report) { r.Figures.Ends.Late = 2 }), ""},
		{"live: innocents", lab(func(r *report.Report) { r.Figures.FalsePositiveSources = 6 }), "live innocents"},
		{"live: overshoot", lab(func(r *report.Report) { r.Figures.Overshoot.P99 = 11 }), "live overshoot"},
		{"live: disturbed", lab(func(r *report.Report) { r.Run.Disturbed, r.Figures.Wrong = true, 5000 }), ""},
		{"live: a short window", lab(func(r *report.Report) { r.Run.Window, r.Figures.Wrong = report.Seconds(time.Second), 5000 }), ""},
		{"replay", lab(func(r *report.Report) { r.Run.Command = "replay" }), ""},
	} {
		found, err := Check([]*report.Report{c.of})
		if err != nil {
			t.Fatal(err)
		}
		var broken []string
		for _, f := range found {
			if f.Broken {
				broken = append(broken, f.Name)
			}
		}
		if got := strings.Join(broken, ", "); got != c.want {
			t.Errorf("%s: broken are %q, want %q", c.name, got, c.want)
		}
		if err := Err(found); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want+": ") {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(c.of.Broken) != len(broken) {
			t.Errorf("%s: the report says that %d are broken, want %d", c.name, len(c.of.Broken), len(broken))
		}
	}
}

// TestSum: a figure of all runs together is not that of the worst; what it says names how much that is beyond the promise.
func TestSum(t *testing.T) {
	bad := run(8, func(r *report.Report) { r.Figures.Wrong = 40 })
	found, err := Check([]*report.Report{bad, run(8, nil), run(8, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := Err(found); err == nil || err.Error() != "1 promise broken:\n  decisions per block: 0.14, 1.4 times the 0.1 promised: "+
		"on logs and attacks alike, wrong decisions above the floor for each block, `estimate: nearest` (3 runs; attacks.md)" {
		t.Error(err)
	}
	var text strings.Builder
	if err := Write(&text, found); err != nil || !strings.Contains(text.String(), "held against, 1 broken\n  decisions per block: 0.14, ") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if found, _ = Check([]*report.Report{bad, run(8, nil), run(8, nil), run(8, nil), run(8, nil)}); Err(found) != nil {
		t.Error(Err(found))
	}
}

// TestPage holds the page of promises against the file.
func TestPage(t *testing.T) {
	const file, begin, end = "../../docs/design/promises.md", "<!-- promises -->\n", "<!-- end of promises -->\n"
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	table := "| promise | of | at most | of what |\n|---|---|---|---|\n"
	for _, p := range all {
		of := []string{p.Runs}
		for _, s := range []string{p.Mode, p.Of, strings.Replace(p.Workload, "!", "without ", 1)} {
			if s != "" {
				of = append(of, s)
			}
		}
		if p.Edges == "1" {
			of = append(of, "one edge")
		} else if p.Edges != "" {
			of = append(of, p.Edges+" edges")
		}
		if p.Sum {
			of = append(of, "all runs together")
		}
		most := fmt.Sprintf("`%v`", p.Most)
		if p.Turns > 0 {
			most += fmt.Sprintf(", and `%v` times the latest that the load was sent", p.Turns)
		}
		if p.Some > 0 {
			most += fmt.Sprintf(", or `%v` cases", p.Some)
		}
		table += fmt.Sprintf("| %s | %s | %s | %s ([%s](%s)) |\n", p.Name, strings.Join(of, ", "), most, p.Says, strings.TrimSuffix(p.Page, ".md"), p.Page)
		names = append(names, p.Name)
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(all) {
		t.Errorf("two promises have one name: %q", names)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	was, after, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatalf("%s has no place for the table", file)
	}
	if was == table {
		return
	}
	if !golden.Rewrite() {
		t.Fatalf("%s has another table (go test ./loadgen/promise -rewrite writes it):\n%s", file, table)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
