//go:build system

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/lab/flood"
)

// Each way is tried with the real programs and the real kernel: nobody who is blocked is served, the kernel refuses connections where it is to,
// and nowhere else, and the client beside the flood is served.
func TestFlood(t *testing.T) {
	t.Parallel()
	dir, file := labtest.Trials(t), filepath.Join(t.TempDir(), "flood.json")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "sluice-trial"), "flood", "--short", "--json", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	var report struct{ Figures []flood.Figures }
	must(t, json.Unmarshal(text, &report))
	var ways []string
	for _, f := range report.Figures {
		ways = append(ways, f.Way)
		if f.Rate == 0 || f.Failed > 0 || f.Calm == 0 || f.P99 == 0 || (f.Refused > 0) != (f.Way == "kernel") {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Equal(ways, flood.Ways) {
		t.Errorf("ways %q, want %q", ways, flood.Ways)
	}
}
