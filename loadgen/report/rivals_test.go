package report

import (
	"bytes"
	"testing"

	"sluice/edge/edgetest/golden"
	"sluice/loadgen/judge"
)

// Limiters stand beside each other, each with what it is and was told; one that was disturbed says so, in its own line and in the answer.
func TestRivals(t *testing.T) {
	r := sample()
	r.Run.Faults, r.Run.Disturbed = nil, true
	ours := Rival{Limiter: "sluice", Configured: "limit 20 in 1s", Figures: r.Figures, CPU: 250e-6, AtRest: 0.06,
		Costs: []Cost{{Name: "sluice", Version: "1.0", CPU: 200e-6, AtRest: 0.05}, {Name: "memcached", Version: "1.6.18", CPU: 50e-6, AtRest: 0.01}}}
	theirs := Rival{Limiter: "nginx", Configured: "limit_req rate=20r/s", Figures: *r.Baseline, CPU: 48e-6, Errors: 1, Disturbed: true,
		Costs: []Cost{{Name: "nginx", Version: "1.22.1", CPU: 48e-6}}}
	theirs.Figures.SendError = &judge.Quantiles{N: 10, P99: 0.05}
	theirs.Figures.TimeToBlockExact = &judge.TimeToBlock{FirstEdge: judge.Quantiles{N: 3, P50: 0.5, P99: 1.25, Max: 2}}
	r.Rivals = []Rival{ours, theirs}
	var text bytes.Buffer
	if err := WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "rivals.txt", text.Bytes())
	var page bytes.Buffer
	if err := WriteHTML(&page, r); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page.Bytes(), []byte("let pass over")) || bytes.Contains(page.Bytes(), []byte("<svg")) {
		t.Error("the page has no table of all, or plots of one")
	}
}
