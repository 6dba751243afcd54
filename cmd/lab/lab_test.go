//go:build system

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/lab/bench"
)

// Labs mostly wait, and say what is so however late they are, so they run beside each other.
func TestMain(m *testing.M) { labtest.Main(m) }

// An origin that suffers keeps its critical clients, before real edges. They have no race detector, with which they would be what suffers; and
// where the machine has too much else to do for an origin that is well, the check says so, and is made again.
func TestLabChecksShedding(t *testing.T) {
	t.Parallel()
	dir := labtest.PlainTrials(t)
	var p *labtest.Process
	var err error
	for range 5 {
		p = labtest.Start(t, dir, "sluice-trial", "--check", "shedding", "--short")
		err = p.Wait()
		p.LeavesNothing(t)
		if err == nil || !strings.Contains(p.Err.String(), "disturbed: ") {
			break
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	if said := p.Out.String(); !strings.Contains(said, "check shedding: kept") || !strings.Contains(said, "without shedding") {
		t.Errorf("it says %s", said)
	}
}

// figures runs a trial, in a process of its own, and reads what it found.
func figures(t *testing.T, into any, args ...string) {
	t.Helper()
	dir, file := labtest.Trials(t), filepath.Join(t.TempDir(), "figures.json")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "sluice-trial"), append(args, "--json", file)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

// Each way is tried with the real programs and the real kernel: nobody who is blocked is served, the kernel refuses connections where it is to,
// and nowhere else, and the client beside the flood is served.
func TestFlood(t *testing.T) {
	t.Parallel()
	var report struct{ Figures []bench.FloodFigures }
	figures(t, &report, "flood", "--short")
	var ways []string
	for _, f := range report.Figures {
		ways = append(ways, f.Way)
		if f.Rate == 0 || f.Failed > 0 || f.Calm == 0 || f.P99 == 0 || (f.Refused > 0) != (f.Way == "kernel") {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Equal(ways, bench.FloodWays) {
		t.Errorf("ways %q, want %q", ways, bench.FloodWays)
	}
}

// Every attack is made, the client beside it is served, and the edge charges a source that resets its requests. How much of an attack there is in
// so short a time depends on the machine: which bounds it meets then is for TestHTTP2Abuse of edge.
func TestHTTP2Attacks(t *testing.T) {
	t.Parallel()
	var report bench.AttacksJSON
	figures(t, &report, "http2-attacks", "--short", "--servers", "sluice")
	var names []string
	for _, a := range report.Attacks {
		names = append(names, a.Attack)
		if a.Sent == 0 || a.Failed > 0 || a.P99 == 0 || a.Calm == 0 || a.Attack == "rapid reset" && a.Charged == 0 {
			t.Errorf("%+v", a)
		}
	}
	if !slices.Equal(names, bench.AttackNames()) || len(report.Connections) != 2 {
		t.Errorf("attacks %q, connections %v", names, report.Connections)
	}
}

// The others are configured so that they start, speak HTTP/2, and admit the calm client.
func TestHTTP2AttacksOnOthers(t *testing.T) {
	t.Parallel()
	var report bench.AttacksJSON
	figures(t, &report, "http2-attacks", "--short", "--servers", "nginx,haproxy", "--attacks", "PING")
	for _, a := range report.Attacks {
		if a.Sent == 0 || a.Failed > 0 || a.Charged > 0 {
			t.Errorf("%+v", a)
		}
	}
}

// A process of its own, since the command keeps to one processor and to one goroutine at a time.
func TestPace(t *testing.T) {
	t.Parallel()
	var report struct{ Pace []bench.PaceFigures }
	figures(t, &report, "pace", "--rate", "500,2000", "--time", "200ms")
	if len(report.Pace) != 2 {
		t.Fatalf("%d rates, want 2", len(report.Pace))
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
