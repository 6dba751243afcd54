//go:build system

package main

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/internal/live"
	"sluice/counter/algorithm"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/loadgen/trace"
	"sluice/mitigation"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// sound is the error of a lab. Exit code 3 is none: the machine was too busy for a measurement, which these tests do not need.
func sound(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		return nil
	}
	return err
}

func TestLab(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	p := labtest.Start(t, labtest.Binaries(t), "sluice-loadgen", "--edges", "2", "--memcached", "1", "--workload", "mixed", "--duration", "4s", "--rate", "150",
		"--limit", "5", "--window", "2s", "--mitigation-timeout", "2s", "--details", "--json", file)
	if err := sound(p.Wait()); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	for _, want := range []string{"balance exact", "no client errors", "memcached/0 counted: get", "time to block, every edge", "tier commands per 1,000 requests"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, p.Out)
		}
	}
	b, err := os.ReadFile(file)
	must(t, err)
	var report struct {
		Run struct {
			Edges, Nodes int
			RoundTrip    float64 `json:"round_trip"`
		}
		Floor   *judge.Figures
		Figures struct {
			Requests, Admitted, Refused uint64
			TierOps                     float64 `json:"tier_ops_per_1000"`
		}
	}
	must(t, json.Unmarshal(b, &report))
	f := report.Figures
	if report.Run.Edges != 2 || report.Run.Nodes != 1 || f.Requests < 500 || f.Admitted+f.Refused != f.Requests || f.Refused == 0 || f.TierOps == 0 {
		t.Errorf("the report: %+v", report)
	}
	if r := report.Run.RoundTrip; r <= 0 || r > 1 || report.Floor == nil || report.Floor.Requests != f.Requests || report.Floor.WronglyLimited != 0 {
		t.Errorf("the edges measured a round trip of %v s, and the floor is %+v", r, report.Floor)
	}
}

// Over HTTP/2 the judge sees what it sees over HTTP/1.1: each stream is a request with a verdict, and what is reset is told by the edges' logs. No
// source has more than the limit on one edge, however many streams it has at once, and whether it takes them back or not. What goes wrong if
// resets are not counted: all of them are admitted. If the logs are not read: they have no verdict.
func TestLabOverHTTP2(t *testing.T) {
	t.Parallel()
	dir := labtest.Binaries(t)
	for _, workload := range []string{"many-streams", "rapid-reset"} {
		file := filepath.Join(t.TempDir(), "report.json")
		p := labtest.Start(t, dir, "sluice-loadgen", "--http2", "--edges", "1", "--memcached", "1", "--workload", workload, "--duration", "3s",
			"--limit", "10", "--window", "2s", "--mitigation-timeout", "2s", "--details", "--json", file)
		if err := sound(p.Wait()); err != nil {
			t.Fatalf("%s: %v\n%s%s", workload, err, p.Out, p.Err)
		}
		p.LeavesNothing(t)
		want := []string{"balance exact", "no client errors", "100 requests per connection of HTTP/2, 100 at once"}
		if workload == "rapid-reset" {
			want = append(want, "requests reset as soon as they were made", "0 not known")
		}
		for _, w := range want {
			if !strings.Contains(p.Out.String(), w) {
				t.Errorf("%s: the table has no %q:\n%s", workload, w, p.Out)
			}
		}
		b, err := os.ReadFile(file)
		must(t, err)
		var report struct {
			Run     struct{ Streams int }
			Figures judge.Figures
		}
		must(t, json.Unmarshal(b, &report))
		f := report.Figures
		if report.Run.Streams != 100 || f.Failed > 0 || f.Requests != f.Admitted+f.Refused || f.Blocks < 10 || f.WorstWindow != 10 || f.Wrong > 0 {
			t.Errorf("%s: of %d requests %d admitted, %d refused, %d without a verdict; %d blocks, %d in the worst window, %d wrong", workload,
				f.Requests, f.Admitted, f.Refused, f.Failed, f.Blocks, f.WorstWindow, f.Wrong)
		}
	}
}

// Each PoP blocks its own sources, and a block is in force everywhere when the edges of one of them know of it. What goes wrong if PoPs shared
// their nodes: edges learn of sources that they never meet. If all sources went to the first PoP: the second blocks nobody. If the judge
// asked for the edges of both: no block is ever in force everywhere.
func TestLabOfTwoPoPs(t *testing.T) {
	t.Parallel()
	dir := labtest.Binaries(t)
	rule, err := algorithm.NewSliding("default", 20, 10*time.Second, 12, algorithm.Nearest)
	must(t, err)
	l := &live.Run{Command: "lab", Mode: judge.Deployed, Rule: mitigation.Rule{Counter: rule, Timeout: 20 * time.Second}, Send: &live.Send{Speed: 1, PerConnection: 5},
		Edges: []int{2, 2}, Nodes: 1, Secrets: live.LabSecrets(2), Trace: new(trace.Trace)}
	if l.Affinity, err = anycast.New(2, nil); err != nil {
		t.Fatal(err)
	}
	sources := make([]int, 2) // by PoP
	for i := range int32(12) {
		addr := netip.AddrFrom4([4]byte{198, 19, byte(i), 1}) // prefixes that are routed by themselves
		sources[l.Affinity.PoP(addr, 0)]++
		l.Trace.Sources = append(l.Trace.Sources, trace.Source{Name: addr.String(), Addr: addr})
		for n := range 40 {
			l.Trace.Requests = append(l.Trace.Requests, trace.Request{At: time.Duration(n) * 10 * time.Millisecond, Source: i, Method: "GET", Path: "/"})
		}
		l.Trace.Requests = append(l.Trace.Requests, trace.Request{At: 6 * time.Second, Source: i, Method: "GET", Path: "/"}) // all know by then
	}
	trace.Sort(l.Trace)
	if sources[0] == 0 || sources[1] == 0 {
		t.Fatalf("sources by PoP: %v", sources)
	}
	site, err := lab.Lab{
		PoPs: 2, Edges: 2, Memcached: 1, Sluice: filepath.Join(dir, "sluice"), Origin: []string{filepath.Join(dir, "sluice-loadgen"), "origin"}, Secret: live.LabSecret,
		Rule: lab.RuleConfig{Limit: 20, Window: 10 * time.Second, MitigationTimeout: l.Rule.Timeout, Mode: judge.Deployed},
	}.Start(t.Context())
	must(t, err)
	defer site.Stop()
	out, err := site.Run(t.Context(), replay.Replay{Affinity: l.Affinity.PoP, PerConnection: l.Send.PerConnection}, l.Trace, nil)
	must(t, err)
	if err := out.Err(); err != nil {
		t.Error(err)
	}
	popOf := func(source int32) int { return l.Affinity.PoP(l.Trace.Sources[source].Addr, 0) }
	for _, d := range out.Decisions {
		if int(d.Edge)/2 != popOf(d.Source) {
			t.Fatalf("edge %d decided about source %d, which is of PoP %d", d.Edge, d.Source, popOf(d.Source))
		}
	}
	known := make([][4]bool, len(l.Trace.Sources))
	for _, f := range out.InForce {
		known[f.Source][f.Edge] = true
	}
	for source, by := range known {
		want := [4]bool{true, true}
		if popOf(int32(source)) == 1 {
			want = [4]bool{2: true, 3: true}
		}
		if by != want {
			t.Errorf("source %d, of PoP %d: the edges %v know that it is blocked", source, popOf(int32(source)), by)
		}
	}
	if f := l.Judge(out.Outcome, out.InForce, out.Lost).Figures; f.Blocks != 12 || f.TimeToBlock.EveryEdge.N != 12 || f.TimeToBlock.Partly != 0 {
		t.Errorf("of %d blocks %d were in force on every edge of their PoP", f.Blocks, f.TimeToBlock.EveryEdge.N)
	}
}

func TestLabGoesOnWithoutItsTier(t *testing.T) {
	t.Parallel()
	p := labtest.Start(t, labtest.Binaries(t), "sluice-loadgen", "--edges", "2", "--memcached", "2", "--workload", "mixed", "--duration", "5s", "--rate", "100",
		"--limit", "5", "--window", "2s", "--mitigation-timeout", "2s",
		"--fault", "500ms kill memcached/0", "--fault", "1s stop memcached/1", "--fault", "1500ms restart memcached/0", "--fault", "2s step-clock edge/1 -1500ms")
	if err := sound(p.Wait()); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	for _, want := range []string{"balance exact", "no client errors", "fault: 500ms kill memcached/0", "fault: 1.5s restart memcached/0 (ready after", "fault: 2s step-clock edge/1 -1.5s"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, p.Out)
		}
	}
	if strings.Contains(p.Out.String(), "balance: ") {
		t.Errorf("it adds up, and is shown without being asked for:\n%s", p.Out)
	}
}

// The kernel refuses connections of a flood, the judge knows which, and finds none of them wrong, nor anybody served who should not be. What goes wrong if refused
// connections were no refusals: they are client errors. If the kernel went on beyond a block's end, or refused others: limited wrongly.
func TestLabWithAWall(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	p := labtest.Start(t, labtest.Binaries(t), "sluice-loadgen", "--wall", "--edges", "2", "--memcached", "1", "--workload", "flood", "--duration", "6s", "--rate", "300",
		"--limit", "10", "--window", "2s", "--mitigation-timeout", "2s", "--per-connection", "1", "--fault", "3s kill wall/0", "--fault", "4s restart wall/0", "--details", "--json", file)
	if err := sound(p.Wait()); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	for _, want := range []string{"balance exact", "no client errors", "a wall in the kernel", "with its connection, by the kernel", "time to block, kernel",
		"connections closed by edges unanswered, seen", "fault: 4s restart wall/0 (ready after"} {
		if !strings.Contains(p.Out.String()+p.Err.String(), want) {
			t.Errorf("there is no %q:\n%s%s", want, p.Out, p.Err)
		}
	}
	b, err := os.ReadFile(file)
	must(t, err)
	var report struct{ Figures judge.Figures }
	must(t, json.Unmarshal(b, &report))
	f := report.Figures
	if f.Walled == 0 || f.Shed == 0 || f.Walled+f.Shed > f.Mitigated || f.TimeToBlock.Kernel.N == 0 || f.RefusedGood > 0 || f.FalsePositiveSources > 0 {
		t.Errorf("%+v, kernel %+v", f, f.TimeToBlock)
	}
}

func TestLabLeavesNothingWhenEnded(t *testing.T) {
	t.Parallel()
	f := func(sig syscall.Signal, graceful bool, more ...string) {
		t.Helper()
		p := labtest.Start(t, labtest.Binaries(t), "sluice-loadgen", append([]string{"--edges", "2", "--memcached", "1", "--workload", "mixed", "--duration", "5m"}, more...)...)
		labtest.Eventually(t, "an origin, a node, two edges and the lab, and with a wall its helper and the lab outside", func() bool { return len(p.Alive(t)) == 5+2*len(more) })
		p.Process.Signal(sig)
		err := p.Wait()
		p.LeavesNothing(t)
		if !graceful {
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.Err.String(), "interrupted") {
			t.Errorf("after %v: %v, saying %q; want exit code 1 and to be told", sig, err, p.Err)
		}
	}
	f(syscall.SIGINT, true)
	f(syscall.SIGTERM, true)
	f(syscall.SIGKILL, false)
	f(syscall.SIGINT, true, "--wall")
	f(syscall.SIGTERM, true, "--wall")
	f(syscall.SIGKILL, false, "--wall")
}
