package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest/golden"
	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/workload"
)

// TestComparison is the table as people read it.
func TestComparison(t *testing.T) {
	trace, err := workload.Generate("mixed", workload.Options{Seed: 1, Limit: 20, Window: time.Second, Duration: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []judge.Mode{judge.Deployed, judge.Estimator} {
		o := judge.Options{Limit: 20, Window: time.Second, Timeout: time.Second}
		r := &Report{Run: Run{Command: "compare", Mode: mode.String(), Limit: 20, Window: Seconds(time.Second), SubWindows: 12, Estimate: "nearest",
			MitigationTimeout: Seconds(time.Second), Edges: 3, Nodes: 2, RoundTrip: Seconds(time.Millisecond), PerConnection: 20}}
		r.Run.Describe(trace)
		d := design.Options{Mode: mode, Limit: 20, Window: time.Second, Timeout: time.Second, Start: trace.Start, Edges: 3, RoundTrip: time.Millisecond, SyncEvery: 100 * time.Millisecond}
		for _, c := range design.All(d) {
			if mode == judge.Estimator && c.Uncounted {
				continue
			}
			design, err := c.Run(t.Context(), trace, mode, o, judge.VirtualOptions{Edges: 3, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			r.Designs = append(r.Designs, design)
		}
		var text, page bytes.Buffer
		if err := WriteText(&text, r); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "compare-"+mode.String()+".txt", text.Bytes())
		if err := WriteHTML(&page, r); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"sliding log", "counted on 3 edges", "Cloudflare, 2017"} {
			if !strings.Contains(page.String(), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
}
