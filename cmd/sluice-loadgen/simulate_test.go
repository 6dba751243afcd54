package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sluice/loadgen/judge"
	"sluice/loadgen/report"
)

// simulated runs simulate over a short workload and reads its report.
func simulated(t *testing.T, args ...string) report.Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	stdout := os.Stdout
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(t, err)
	os.Stdout = null
	err = cmdSimulate(t.Context(), append(args, "--json", file))
	os.Stdout = stdout
	null.Close()
	must(t, err)
	b, err := os.ReadFile(file)
	must(t, err)
	var r report.Report
	must(t, json.Unmarshal(b, &r))
	return r
}

var justAbove = []string{"--workload", "just-above", "--limit", "20", "--window", "10s", "--mitigation-timeout", "10s", "--edges", "4", "--memcached", "2"}

func with(args []string, more ...string) []string {
	return append(append([]string{}, args...), more...)
}

// TestSimulateFaults: what faults cost is told apart from what delay costs, and the run without them is unchanged by it.
func TestSimulateFaults(t *testing.T) {
	plain := simulated(t, justAbove...)
	if plain.Figures.Failed != 0 || plain.Split.Faults != (judge.SplitPart{}) || plain.Figures.BeyondBound != 0 || plain.Figures.Bound == 0 {
		t.Errorf("without faults: %+v, split %+v", plain.Figures, plain.Split)
	}
	if f := plain.Floor; f == nil || f.WronglyLimited != 0 || f.Requests != plain.Figures.Requests || f.Wrong > plain.Figures.Wrong || f.Blocks == 0 {
		t.Errorf("floor: %+v", f)
	}
	r := simulated(t, with(justAbove, "--fault", "12s kill memcached/0", "--fault", "15s stop memcached/1", "--fault", "20s cont memcached/1",
		"--fault", "25s restart memcached/0", "--fault", "30s kill edge/1", "--fault", "35s restart edge/1", "--fault", "40s term edge/2")...)
	if r.Figures.Failed != 0 {
		t.Errorf("%d requests without a verdict: faults must cost accuracy, never an answer", r.Figures.Failed)
	}
	if r.Split == nil || r.Split.Delay != plain.Split.Delay || r.Split.Formula != plain.Split.Formula {
		t.Errorf("formula and delay are %+v, without faults they were %+v", r.Split, plain.Split)
	}
	if r.Floor.Wrong != plain.Floor.Wrong {
		t.Errorf("the floor is %d with faults and %d without", r.Floor.Wrong, plain.Floor.Wrong)
	}
	if want := int64(r.Figures.Wrong) - int64(plain.Figures.Wrong); r.Split.Faults.Wrong != want || r.Figures.MeanGap <= plain.Figures.MeanGap {
		t.Errorf("faults are said to have cost %d wrong decisions, want %d; the gap is %v, without them %v", r.Split.Faults.Wrong, want, r.Figures.MeanGap, plain.Figures.MeanGap)
	}
	// Worse than alone it cannot be: every edge still counts what it sees.
	if r.Figures.WorstWindow > 4*20 {
		t.Errorf("%d admitted in a window by four edges at a limit of 20", r.Figures.WorstWindow)
	}
}

// TestSimulateEdgesCome: an edge that is added late serves, and knows what it must.
func TestSimulateEdgesCome(t *testing.T) {
	r := simulated(t, with(justAbove, "--fault", "0s kill edge/3", "--fault", "20s restart edge/3")...)
	if r.Figures.Failed != 0 || r.Figures.WorstExcess > 3 {
		t.Errorf("%d without a verdict, worst window %d", r.Figures.Failed, r.Figures.WorstWindow)
	}
	if gone := simulated(t, with(justAbove, "--fault", "0s kill edge/0", "--fault", "0s kill edge/1", "--fault", "0s kill edge/2", "--fault", "0s kill edge/3")...); gone.Figures.Failed != gone.Figures.Requests {
		t.Errorf("%d of %d requests failed with no edge left", gone.Figures.Failed, gone.Figures.Requests)
	}
}

// TestSimulateFlap: a source that moves starts fresh at its new PoP, which costs a limit at most, and nothing sticks.
func TestSimulateFlap(t *testing.T) {
	pops := with(justAbove, "--pops", "2")
	still := simulated(t, pops...)
	if still.Figures.BeyondBound != 0 || still.Figures.WorstExcess > 3 {
		t.Errorf("two PoPs without flaps: %+v", still.Figures)
	}
	r := simulated(t, with(pops, "--flap", "8s 198.19.0.0/24 1", "--flap", "9500ms 198.19.0.0/24 0")...)
	if r.Split.Faults.Wrong <= 0 || r.Split.Delay != still.Split.Delay {
		t.Errorf("the split is %+v, without flaps %+v", r.Split, still.Split)
	}
	if r.Figures.WorstWindow > 2*20+6 {
		t.Errorf("%d admitted in a window by two PoPs at a limit of 20", r.Figures.WorstWindow)
	}
	if r.Figures.FalsePositiveSources != 0 {
		t.Errorf("%d sources blocked that never were over", r.Figures.FalsePositiveSources)
	}
}

// TestSimulateRepeats: one seed gives one report, byte for byte but for how long it took, also where more sources want a histogram than
// there are.
func TestSimulateRepeats(t *testing.T) {
	var first []byte
	for range 2 {
		r := simulated(t, "--workload", "below", "--limit", "20", "--window", "20s", "--rate", "2000", "--duration", "60s", "--mode", "estimator")
		r.Run.Took, r.Figures.DecisionsASecond = 0, 0
		text, err := json.Marshal(r)
		must(t, err)
		if first == nil {
			first = text
		} else if !bytes.Equal(first, text) {
			t.Errorf("a second run says\n%s\nand the first\n%s", text, first)
		}
	}
}

// A limit for all (key: global) is one source in the tier. Eight edges among which its requests spread by chance pass at most a tenth more than it
// in any window, and two in a hundred more on the whole. What goes wrong where each edge has the limit for itself: nearly eight times as much.
func TestSimulateGlobalLimit(t *testing.T) {
	const rate, limit, seconds = 4_000, 2_000, 4
	var b bytes.Buffer
	for i := range rate * seconds {
		fmt.Fprintf(&b, "{\"t\":%.6f,\"source\":\"192.0.2.1\"}\n", float64(i)/rate)
	}
	file := filepath.Join(t.TempDir(), "global.jsonl")
	must(t, os.WriteFile(file, b.Bytes(), 0o600))
	f := simulated(t, "--trace", file, "--edges", "8", "--memcached", "2", "--limit", fmt.Sprint(limit), "--window", "1s", "--mitigation-timeout", "0", "--per-connection", "1").Figures
	if f.WorstExcess > limit/10 || f.BeyondBound != 0 || f.Admitted > limit*seconds*102/100 || f.Admitted < limit*seconds*98/100 {
		t.Errorf("admitted %d, at most %d over the limit in a window: want %d and a little more", f.Admitted, f.WorstExcess, limit*seconds)
	}
}

// TestSimulatePeers: a source that changes PoP while it is blocked is admitted as often again, unless PoPs are peers: then not once.
func TestSimulatePeers(t *testing.T) {
	moved := []string{"--workload", "constant", "--duration", "20s", "--limit", "100", "--window", "1m", "--mitigation-timeout", "1m", "--pops", "2", "--edges", "3", "--memcached", "2",
		"--flap", "0s 0.0.0.0/0 0", "--flap", "0s ::/0 0", "--flap", "10s 0.0.0.0/0 1", "--flap", "10s ::/0 1"}
	apart, peers := simulated(t, moved...), simulated(t, with(moved, "--peers")...)
	if apart.Figures.Admitted != 200 || peers.Figures.Admitted != 100 {
		t.Errorf("admitted %d without, %d with, want 200 and 100", apart.Figures.Admitted, peers.Figures.Admitted)
	}
}
