//go:build system

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/lab/bench"
)

// A process of its own, since the command keeps to one processor and to one goroutine at a time.
func TestPace(t *testing.T) {
	t.Parallel()
	dir := labtest.Trials(t)
	file := filepath.Join(t.TempDir(), "pace.json")
	out, err := exec.Command(filepath.Join(dir, "sluice-trial"), "pace", "--rate", "500,2000", "--time", "200ms", "--json", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	must(t, err)
	var report struct{ Pace []bench.PaceFigures }
	must(t, json.Unmarshal(b, &report))
	if len(report.Pace) != 2 {
		t.Fatalf("%d rates, want 2: %s", len(report.Pace), b)
	}
	for i, want := range []int{100, 400} {
		f := report.Pace[i]
		if f.Answered != want || f.Failed != 0 || f.SendError.N != int64(want) || !(f.SendError.Max > 0) || !(f.CPU > 0) || f.Conns == 0 {
			t.Errorf("%d requests: %+v", want, f)
		}
		if f.Sent > 1.01*f.Asked*float64(want)/float64(want-1) { // the last is due before the end
			t.Errorf("%.0f a second asked for, %.0f sent: some went before they were due", f.Asked, f.Sent)
		}
	}
}
