package accuracy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/sluice-loadgen/internal/simulate"
	"sluice/loadgen/report"
	"sluice/loadgen/workload"
)

// writeLog writes an access log of six sources, each now under and now over 20 in 10 s, gzipped; and tells the digest of what is in it.
func writeLog(t *testing.T) (file, digest string) {
	t.Helper()
	var lines bytes.Buffer
	start := time.Date(2021, 3, 15, 7, 0, 0, 0, time.UTC)
	for s := range 40 {
		for source := range 6 {
			for range (s*(source+3)/7)%4 + 1 {
				fmt.Fprintf(&lines, "192.0.2.%d - - [%s] \"GET / HTTP/1.1\" 200 5\n", source+1, start.Add(time.Duration(s)*time.Second).Format("02/Jan/2006:15:04:05 -0700"))
			}
		}
	}
	sum := sha256.Sum256(lines.Bytes())
	file = filepath.Join(t.TempDir(), "mill.log.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	z.Write(lines.Bytes())
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return file, hex.EncodeToString(sum[:])
}

// TestAccuracyOfALog: a log has its own table, is named with its size and digest, and what depends on where in its second a stamp lies is
// given over four seeds.
func TestAccuracyOfALog(t *testing.T) {
	file, digest := writeLog(t)
	s := suite{limits: []uint{20}, window: 10 * time.Second, seed: 5, seeds: 4}
	log, err := s.load(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, reports, err := s.judgeLog(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	printRows(&table, log.title, rows)
	for _, want := range []string{
		fmt.Sprintf("mill.log.gz: %d requests of 6 sources, SHA-256 %s… (uncompressed)", reports[0].Figures.Requests, digest[:12]),
		"seeds 5 to 8", "estimator, 1 edge", "deployed, 1 edge", "deployed, 8 edges",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	seeds := map[string]string{}
	floors := 0
	for _, r := range reports {
		key := fmt.Sprintf("%s %d %s", r.Run.Mode, r.Run.Edges, r.Run.Estimate)
		seeds[key] += fmt.Sprint(r.Run.Seed)
		if r.Run.Digest != digest {
			t.Errorf("%s: digest %q, want %q", key, r.Run.Digest, digest)
		}
		if several := r.Run.Mode == "deployed" && r.Run.Edges > 1; several != (r.Floor != nil) {
			t.Errorf("%s: floor %+v", key, r.Floor)
		}
		if r.Floor != nil {
			floors++
			if r.Floor.WronglyLimited != 0 || r.Floor.Blocks == 0 || r.Floor.Requests != r.Figures.Requests {
				t.Errorf("%s: floor %+v", key, r.Floor)
			}
		}
	}
	for key, got := range seeds {
		if got != "5678" {
			t.Errorf("%s: seeds %s, want 5678", key, got)
		}
	}
	if len(seeds) != 6 || floors != 8 {
		t.Errorf("%d setups with %d floors, want 6 with 8", len(seeds), floors)
	}
	spread := false
	for _, row := range rows {
		for i := range row.seeds {
			spread = spread || row.seeds[i].theirs != row.seeds[0].theirs
		}
	}
	if !spread {
		t.Error("two counters are the same with every seed: nothing was spread")
	}
}

// TestPublishedIsLeftOut: the streams of the published size are judged unless they are left out.
func TestPublishedIsLeftOut(t *testing.T) {
	file, _ := writeLog(t)
	for _, published := range []bool{true, false} {
		s := suite{files: []string{file}, limits: []uint{20}, window: 10 * time.Second, published: published, scale: 100_000, seed: 1, seeds: 1}
		var out bytes.Buffer
		if _, err := s.run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), workload.PublishedPoisson); got != published {
			t.Errorf("published %v: is in the output: %v", published, got)
		}
	}
}

// TestHeadline: a log is judged over eight edges alone, and beside the floor and two counters; nothing else is.
func TestHeadline(t *testing.T) {
	file, _ := writeLog(t)
	s := suite{files: []string{file}, limits: []uint{20}, window: 10 * time.Second, published: true, adversaries: adversaries(), seed: 1, seeds: 2, headline: true}
	var out bytes.Buffer
	reports, err := s.run(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 2 || reports[0].Run.Edges != 8 || reports[0].Floor == nil {
		t.Errorf("%d reports; the first: %+v", len(reports), reports[0].Run)
	}
	if text := out.String(); strings.Contains(text, "estimator") || strings.Contains(text, "adversaries") || !strings.Contains(text, "% wrong answers of the floor") {
		t.Errorf("the table:\n%s", text)
	}
}

// TestOverSeeds: least and most, or the one; and sums are taken seed by seed.
func TestOverSeeds(t *testing.T) {
	rows := []*tableRow{
		{setup: "a", estimate: "nearest", limit: "20", seeds: []tableLine{{wrong: 5, requests: 100, theirs: 10}, {wrong: 3, requests: 100, theirs: 30}}},
		{setup: "a", estimate: "nearest", limit: "60", seeds: []tableLine{{wrong: 1, requests: 100}, {wrong: 9, requests: 100}}},
		{setup: "b", estimate: "nearest", limit: "20", seeds: []tableLine{{wrong: 7, requests: 10, blocks: 4, floor: 2, floored: true}}},
	}
	totals := addRows(nil, rows)
	totals = addRows(totals, rows[2:]) // a log of which there is one seed
	var got bytes.Buffer
	printRows(&got, "title", append(rows, totals...))
	var cells [][]string
	for line := range strings.Lines(got.String()) {
		cells = append(cells, strings.Fields(line))
	}
	for _, want := range []struct {
		row, cell int
		text      string
	}{
		{2, 3, "3-5"}, {2, 5, "3-5"}, {2, 7, "3-5"}, {2, 12, "10-30"}, {2, 14, "5"}, {4, 3, "7"}, {4, 5, "70"}, {4, 9, "1.75"}, {4, 10, "2"}, {4, 11, "3.5"},
		{5, 3, "6-12"}, {5, 2, "all"}, {6, 3, "14"}, {6, 9, "1.75"}, {6, 10, "4"},
	} {
		if got := cells[want.row][want.cell]; got != want.text {
			t.Errorf("row %d, cell %d: %q, want %q", want.row, want.cell, got, want.text)
		}
	}
	if t.Failed() {
		t.Log(got.String())
	}
}

// TestCalibratedInOrder: the same requests in the order of time, in one table, give two counters the same figures; and what is calibrated says so.
func TestCalibratedInOrder(t *testing.T) {
	f := &cli.RuleFlags{Limits: []uint{100}, Window: time.Minute, SubWindows: 12, Estimates: []string{"nearest"}, Mode: "estimator"}
	_, rules, err := f.Rules()
	if err != nil {
		t.Fatal(err)
	}
	apart, err := simulate.Published(t.Context(), workload.PublishedPoisson, 20_000, 1, rules)
	if err != nil {
		t.Fatal(err)
	}
	together, err := simulate.InOrder(t.Context(), workload.PublishedPoisson, 20_000, 1, rules)
	if err != nil {
		t.Fatal(err)
	}
	a, b := apart[0], together[0]
	if a.Figures.Requests != 20_000 || b.Figures.Requests != 20_000 || b.Figures.Sources != a.Figures.Sources {
		t.Errorf("%d requests of %d sources, in order %d of %d", a.Figures.Requests, a.Figures.Sources, b.Figures.Requests, b.Figures.Sources)
	}
	if a.Baseline.Wrong != b.Baseline.Wrong || math.Abs(a.Baseline.MeanGap-b.Baseline.MeanGap) > 1e-9 || a.Baseline.MeanGap == 0 {
		t.Errorf("two counters: %d wrong, gap %v; in order %d and %v", a.Baseline.Wrong, a.Baseline.MeanGap, b.Baseline.Wrong, b.Baseline.MeanGap)
	}
	if b.Figures.MeanGap > 0.01 {
		t.Errorf("in order the gap is %v", b.Figures.MeanGap)
	}
	for _, r := range []*report.Report{a, b} {
		if !strings.HasPrefix(strings.Join(r.Run.Notes, " "), "calibrated") {
			t.Errorf("nobody says that the stream is calibrated: %q", r.Run.Notes)
		}
	}
}
