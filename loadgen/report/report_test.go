package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest/golden"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// sample is a report with something in every field.
func sample() *Report {
	some := func(v float64) *float64 { return &v }
	none := uint64(0)
	start := time.Date(2021, 3, 15, 7, 0, 0, 0, time.UTC)
	return &Report{
		Run: Run{
			Command: "lab", Mode: "deployed", Trace: "mill.log.gz", Seed: 1, Spread: "evenly", Lines: 372_231,
			Skipped: map[string]int{trace.SkippedTime: 2, trace.SkippedEmpty: 11}, Start: &start,
			Limit: 20, Window: Seconds(time.Second), SubWindows: 12, Estimate: "nearest", MitigationTimeout: Seconds(time.Second),
			PoPs: 1, Edges: 3, Nodes: 2, RoundTrip: Seconds(time.Millisecond), PerConnection: 20, Speed: 60, Carrier: "loopback",
			Duration: Seconds(time.Minute), Took: Seconds(61 * time.Second), Faults: []string{"20s kill memcached/0"}, Notes: []string{"a note"},
			Details: &page.Details{Line: "balance exact, 152,345 tier commands, no client errors", Lines: []string{"memcached/0 counted: get 7"}},
		},
		Figures: judge.Figures{
			Requests: 1_234_567, Sources: 4_321, WrongRatio: 0.0000025, Wrong: 3, WronglyAllowed: 2, WronglyLimited: 1,
			WronglyMitigated: 40, WrongAnswersRatio: 0.00003483, MeanGap: 0.00437, MeanGapHot: 0.0301,
			FalseNegativeSources: 1, FalseNegativeMargin: 0.05, FalsePositiveSources: 2, FalsePositiveMargin: 0.1,
			RefusedOfInnocent: 17, RefusedGood: 5, Collateral: 4, Admitted: 1_000_000, Refused: 234_000, Mitigated: 230_000, Closed: 7,
			Failed: 567, Blocks: 1_500, WrongPerBlock: 0.002, Overshoot: judge.Quantiles{N: 1500, P50: 0, P99: 2, Max: 31},
			Decisions: 1_004_000, WrongPerDecision: 0.00000299,
			WorstWindow: 131, WorstExcess: 31, Bound: 140,
			TimeToBlock: &judge.TimeToBlock{
				FirstEdge: judge.Quantiles{N: 1500, P50: 0, P99: 0.00123, Max: 0.0456},
				EveryEdge: judge.Quantiles{N: 1490, P50: 0.055, P99: 0.1234, Max: 1.5}, Partly: 10,
			},
			TimeToBlockExact: &judge.TimeToBlock{
				FirstEdge: judge.Quantiles{N: 1500, P50: 0, P99: 0.002, Max: 0.05},
				EveryEdge: judge.Quantiles{N: 1490, P50: 0.056, P99: 0.125, Max: 1.6}, Partly: 10,
			},
			Ends:           &judge.Ends{Blocks: 1490, Early: 3, EarlyBy: judge.Quantiles{N: 3, P50: 0.5, P99: 0.75, Max: 0.75}},
			TierOpsPer1000: some(123.4), TierOpsMitigated: &none, SendError: &judge.Quantiles{N: 10, P50: 0.00005, P99: 0.0007, Max: 0.002},
			FreeRunningIdeal:  &judge.Ideal{Admitted: 999_999, Refused: 234_568, Blocks: 1_499},
			ErrorDistribution: judge.Bins{From: -1, Width: 0.5, N: []uint64{0, 3, 9, 0}},
		},
		Baseline: &judge.Figures{
			Requests: 1_234_567, Sources: 4_321, WrongRatio: 0.00187, Wrong: 2_309, WronglyAllowed: 2_000, WronglyLimited: 309,
			MeanGap: 0.0637, MeanGapHot: 0.04, Admitted: 1_000_100, Refused: 234_467, Blocks: 1_480, WrongPerBlock: 1.56,
			Overshoot: judge.Quantiles{N: 1480, P50: 1, P99: 15, Max: 400}, FreeRunningIdeal: &judge.Ideal{Admitted: 999_999, Refused: 234_568, Blocks: 1_499},
		},
		Floor: &judge.Figures{
			Requests: 1_234_567, Sources: 4_321, WrongRatio: 0.00000162, Wrong: 2, WronglyAllowed: 2, Admitted: 1_000_000, Refused: 234_000, Blocks: 1_490,
			FreeRunningIdeal: &judge.Ideal{Admitted: 999_999, Refused: 234_568, Blocks: 1_499},
		},
		Designs: []design.Result{{Name: "token bucket", Figures: judge.Figures{
			WrongRatio: 0.01, WronglyAllowed: 100, MeanGap: 0.2, AddedRoundTrips: some(1), BytesPerSource: 16, TierOpsPer1000: some(1000),
		}}},
		Split: &judge.Split{Formula: judge.SplitPart{Wrong: 1, WrongRatio: 1e-6, MeanGap: 0.004}, Delay: judge.SplitPart{Wrong: 3, WrongRatio: 2.5e-6, MeanGap: 0.0004}, Faults: judge.SplitPart{Wrong: -1, WrongRatio: -1e-6, MeanGap: 0}},
	}
}

func TestReport(t *testing.T) {
	var text, data bytes.Buffer
	if err := WriteText(&text, sample()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "report.txt", text.Bytes())
	if err := WriteJSON(&data, sample()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "report.json", data.Bytes())
}

// TestHTML makes the page of a run in which everything is drawn: whole in itself, and safe from what traces call their sources.
func TestHTML(t *testing.T) {
	trace, err := workload.Generate("mixed", workload.Options{Seed: 1, Limit: 20, Window: time.Second, Duration: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := judge.Options{Limit: 20, Window: time.Second, Timeout: time.Second}
	_, worst := judge.Baseline(trace, judge.Deployed, o)
	trace.Sources[worst[0]].Name = "<script>alert(1)</script>"
	o.Watch = worst
	r := sample()
	r.SetNames(trace)
	r.Run.Mode = "estimator"
	r.Figures, _ = judge.Baseline(trace, judge.Deployed, o)
	r.Baseline = &r.Figures
	var b bytes.Buffer
	if err := WriteHTML(&b, r, sample()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "http://", "https://", "src=", "@import", "url(", "ZgotmplZ", "#0101", "#0303", "NaN", "font-family:Lib"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	if got, want := strings.Count(page, "<svg"), 4+len(worst)+1; got != want {
		t.Errorf("%d plots, want %d", got, want)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", "prefers-color-scheme: dark", "@media print", "two counters", "token bucket"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestFloorLines: over several edges the floor may be above what one edge could do, and then the report says why.
func TestFloorLines(t *testing.T) {
	for _, c := range []struct {
		ours, floor, two uint64
		line             string
		why              bool
	}{
		{15, 10, 100, "Wrong decisions: 15, 1.5 times the floor's 10 (an exact log that learns of other edges one round trip late); two counters 100, 10 times the floor's.", false},
		{12, 10, 0, "Wrong decisions: 12, 1.2 times the floor's 10 (an exact log that learns of other edges one round trip late); two counters 0, 0 times the floor's.", true},
		{1, 0, 0, "Wrong decisions: 1; the floor 0 (an exact log that learns of other edges one round trip late); two counters 0.", false},
	} {
		r := &Report{Figures: judge.Figures{Wrong: c.ours}, Floor: &judge.Figures{Wrong: c.floor}, Baseline: &judge.Figures{Wrong: c.two}}
		got := r.floorLines()
		if got[0] != c.line || (len(got) == 2) != c.why {
			t.Errorf("%v:\n%s", c, strings.Join(got, "\n"))
		}
	}
	var text bytes.Buffer
	if err := WriteText(&text, &Report{Run: Run{Command: "compare", Mode: "deployed"}, Figures: judge.Figures{Wrong: 3}, Floor: &judge.Figures{Wrong: 2}, Designs: sample().Designs}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "Wrong decisions: 3, 1.5 times the floor's 2") {
		t.Errorf("compare says nothing of the floor:\n%s", text.String())
	}
	if got := (&Report{}).floorLines(); got != nil {
		t.Errorf("without a floor: %q", got)
	}
}

func TestSeveralReports(t *testing.T) {
	var text, data bytes.Buffer
	second := &Report{Run: Run{Command: "simulate", Mode: "estimator", Workload: "mixed", Limit: 20, Window: Seconds(time.Minute), Estimate: "lower"}}
	if err := WriteText(&text, sample(), second); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.HasPrefix(s, "lab, deployed mode: mill.log.gz, limit 20 in 1s, nearest\n\nSluice decided 3 ") ||
		!strings.Contains(s, "\n\nsimulate, estimator mode: mixed, limit 20 in 1m0s, lower\n\n") {
		t.Error(s)
	}
	if err := WriteJSON(&data, sample(), second); err != nil {
		t.Fatal(err)
	}
	var got struct{ Runs []Report }
	if err := json.Unmarshal(data.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 2 || got.Runs[0].Run.Window != Seconds(time.Second) || got.Runs[1].Designs == nil {
		t.Errorf("%+v", got)
	}
}

func TestAnswer(t *testing.T) {
	f := func(want string, change func(*Report)) {
		t.Helper()
		r := &Report{Run: Run{Mode: "deployed", Window: Seconds(5 * time.Second)}, Figures: judge.Figures{Requests: 2_000}}
		change(r)
		r.Disturb()
		if got := r.answer(); got != want {
			t.Errorf("it says\n%s\nand should say\n%s", got, want)
		}
	}
	f("Sluice decided none of 2,000 requests wrongly, by an exact log of what it admitted; no source was refused that never was over the limit.", func(*Report) {})
	f("Sluice decided 10 (0.5 %) of 2,000 requests wrongly, by an exact log of what it admitted, where two plain counters on one edge were wrong about 40 (2 %): "+
		"it let 8 pass above the limit, and refused 2 at or under it, which led to 9 more refusals; 1 source was refused that never was over the limit (11 requests); "+
		"3 sources over it never came to be blocked; 6 requests of good clients met a refusal, 4 from a source that an abuser shares; 1 request had no verdict.", func(r *Report) {
		r.Figures = judge.Figures{Requests: 2_000, Wrong: 10, WrongRatio: 0.005, WronglyAllowed: 8, WronglyLimited: 2, WronglyMitigated: 9, FalsePositiveSources: 1,
			RefusedOfInnocent: 11, FalseNegativeSources: 3, RefusedGood: 6, Collateral: 4, Failed: 1}
		r.Baseline = &judge.Figures{Wrong: 40, WrongRatio: 0.02}
	})
	f("Sluice's estimate was on the wrong side of the limit for 10 (0.5 %) of 2,000 requests, by an exact log of them all: "+
		"it did not see that 8 were over, and took 2 for over that were not; 2 sources were found over the limit that never were (11 requests).", func(r *Report) {
		r.Run.Mode = "estimator"
		r.Figures = judge.Figures{Requests: 2_000, Wrong: 10, WrongRatio: 0.005, WronglyAllowed: 8, WronglyLimited: 2, FalsePositiveSources: 2, RefusedOfInnocent: 11}
	})
	f("Sluice decided none of 2,000 requests wrongly, by an exact log of what it admitted; no source was refused that never was over the limit; "+
		"1 block ended early, by up to 3.75 s; 2 blocks ended late, by up to 5 s.", func(r *Report) {
		r.Figures.Ends = &judge.Ends{Blocks: 9, Early: 1, EarlyBy: judge.Quantiles{N: 1, Max: 3.75}, Late: 2, LateBy: judge.Quantiles{N: 2, Max: 5}}
	})
	f("", func(r *Report) { r.Figures.Requests = 0 })
	f("Disturbed: the machine was too busy. One request in a hundred was sent more than 101 ms late; a run counts up to 100 ms, a fiftieth of the window. "+
		"These figures measure the machine: run it again with nothing beside it, with fewer requests a second (--rate or --speed), or with a longer --window.", func(r *Report) {
		r.Figures.SendError = &judge.Quantiles{P99: 0.101}
	})
	f("Sluice decided none of 2,000 requests wrongly, by an exact log of what it admitted; no source was refused that never was over the limit.", func(r *Report) {
		r.Figures.SendError = &judge.Quantiles{P99: 0.1, Max: 3}
	})
}

// TestPublishedFigures: those of a run in which nobody was blocked stand beside another such run alone.
func TestPublishedFigures(t *testing.T) {
	for mode, want := range map[string]bool{"estimator": true, "deployed": false} {
		var text bytes.Buffer
		if err := WriteText(&text, &Report{Run: Run{Mode: mode}, Figures: judge.Figures{Requests: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "Cloudflare 2017") && strings.Contains(text.String(), "400,000,000"); got != want {
			t.Errorf("%s: the column is there: %t\n%s", mode, got, text.String())
		}
	}
}
