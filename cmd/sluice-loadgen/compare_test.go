package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/loadgen/design"
	"sluice/loadgen/report"
)

// runJSON runs a command line that writes JSON, and reads it.
func runJSON(t *testing.T, line string, to any) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "report.json")
	var stderr bytes.Buffer
	if code := program.Run(t.Context(), append(strings.Fields(line), "--json", name), &stderr); code != 0 {
		t.Fatalf("%s: exit code %d: %s", line, code, stderr.String())
	}
	b, err := os.ReadFile(name)
	must(t, err)
	must(t, json.Unmarshal(b, to))
}

// captured is what do writes to one of the process's files.
func captured(t *testing.T, of **os.File, do func()) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "captured")
	f, err := os.Create(name)
	must(t, err)
	was := *of
	*of = f
	defer func() { *of = was }()
	do()
	must(t, f.Close())
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}

// What goes wrong if a design were run on another stream, the edges of ours shared nothing, a second estimate were the first again, or what a
// design asks of the store were not counted: designs are compared that cannot be.
func TestCompare(t *testing.T) {
	for _, mode := range []string{"deployed", "estimator"} {
		var r report.Report
		runJSON(t, "compare --workload onoff --limit 20 --window 10s --mitigation-timeout 10s --duration 40s --edges 3 --estimate nearest,lower --mode "+mode, &r)
		designs := make(map[string]design.Result)
		for _, d := range r.Designs {
			if _, twice := designs[d.Name]; twice {
				t.Errorf("%s: %s is there twice", mode, d.Name)
			}
			designs[d.Name] = d
			if d.Figures.Requests != r.Baseline.Requests || !(d.Figures.BytesPerSource > 0) {
				t.Errorf("%s: %s decided about %d requests of %d, in %.0f bytes for a source", mode, d.Name, d.Figures.Requests, r.Baseline.Requests, d.Figures.BytesPerSource)
			}
		}
		if want := map[string]int{"deployed": 20, "estimator": 16}[mode]; len(r.Designs) != want {
			t.Errorf("%s: %d designs, want %d", mode, len(r.Designs), want)
		}
		if d := designs["sliding log"]; d.Figures.Wrong != 0 || d.Figures.MeanGap != 0 || d.Figures.Requests == 0 {
			t.Errorf("%s: sliding log: %+v", mode, d.Figures)
		}
		if d := designs["two counters"]; d.Figures.Wrong != r.Baseline.Wrong {
			t.Errorf("%s: two counters decided wrongly %d times, the baseline %d times", mode, d.Figures.Wrong, r.Baseline.Wrong)
		}
		alone, together := designs["each edge alone"], designs["Sluice, nearest, 3 edges"]
		if together.Figures.Requests == 0 || together.Figures.Wrong != r.Figures.Wrong || 5*together.Figures.Wrong > alone.Figures.Wrong {
			t.Errorf("%s: ours %+v, alone %+v", mode, together.Figures, alone.Figures)
		}
		if other := designs["Sluice, lower, 3 edges"]; other.Figures.MeanGap == together.Figures.MeanGap {
			t.Errorf("%s: nearest and lower have the same gap, %v", mode, other.Figures.MeanGap)
		}
		for name, want := range map[string]struct{ commands, trips float64 }{ // at least, and exactly
			"each edge alone": {}, "synchronous central store": {1000, 1}, "Sluice, nearest, 3 edges": {300, 0},
		} {
			commands, trips := *designs[name].Figures.TierOpsPer1000, *designs[name].Figures.AddedRoundTrips
			if commands < want.commands || want.commands == 0 && commands > 0 || trips != want.trips {
				t.Errorf("%s: %s asks the store %v times in 1,000 requests, and waits for %v trips", mode, name, commands, trips)
			}
		}
		owner, lost := designs["owner per key"], designs["owner per key, one lost"]
		if owner.Owners == nil || lost.Owners == nil || !(owner.Owners.Hottest > 1.0/3 && owner.Owners.Hottest < 1) || lost.Owners.LostRequests == 0 ||
			owner.Owners.LostRequests != 0 || 5*owner.Figures.Wrong > alone.Figures.Wrong || lost.Figures.Wrong <= owner.Figures.Wrong {
			t.Errorf("%s: owners: %+v, wrong %d; one lost: %+v, wrong %d", mode, owner.Owners, owner.Figures.Wrong, lost.Owners, lost.Figures.Wrong)
		}
		floor := designs["exact, one round trip late"]
		if floor.Kind != design.Coordination || floor.Figures.WronglyLimited != 0 || floor.Figures.Wrong >= alone.Figures.Wrong || !strings.Contains(floor.About, "nothing can") {
			t.Errorf("%s: floor: %+v", mode, floor)
		}
		if mode == "deployed" && (r.Floor == nil || r.Floor.Wrong != floor.Figures.Wrong) || mode == "estimator" && r.Floor != nil {
			t.Errorf("%s: the report's floor is %+v, in the table %+v", mode, r.Floor, floor.Figures)
		}
		if lower := designs["Sluice, lower"]; lower.Figures.WronglyLimited != 0 || lower.Kind != design.Algorithm {
			t.Errorf("%s: %+v", mode, lower)
		}
		if blocked := together.Figures.Blocks > 0 && together.Figures.Mitigated > 0; together.Figures.Refused == 0 || blocked != (mode == "deployed") {
			t.Errorf("%s: somebody was blocked: %t: %+v", mode, blocked, together.Figures)
		}
	}
}

// TestCompareOneEdge has nobody to coordinate with.
func TestCompareOneEdge(t *testing.T) {
	var r struct{ Runs []report.Report }
	runJSON(t, "compare --workload constant --limit 20,40 --window 10s --duration 20s --rate 40 --edges 1", &r)
	if len(r.Runs) != 2 {
		t.Fatalf("%d reports, want one for each limit", len(r.Runs))
	}
	for _, r := range r.Runs {
		if n := len(r.Designs); n != 16 || r.Figures.Requests == 0 {
			t.Errorf("%d designs, figures %+v", n, r.Figures)
		}
		if r.Floor != nil {
			t.Errorf("a floor over one edge: %+v", r.Floor)
		}
	}
}
