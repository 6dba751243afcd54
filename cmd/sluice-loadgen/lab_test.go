package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/loadgen/trace"
	"sluice/pop"
	"sluice/pop/anycast"
	"sluice/pop/secret"
)

// A build is where the edge and the load generator are, once a test has wanted them.
type build struct {
	once sync.Once
	args []string
	dir  string
	err  error
}

var plain, raced = &build{}, &build{args: []string{"-race"}}

// binaries builds them, with the race detector if the test has it.
func binaries() (string, error) {
	if raceEnabled {
		return raced.binaries()
	}
	return plain.binaries()
}

func (b *build) binaries() (string, error) {
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "sluice-lab-test-"); b.err != nil {
			return
		}
		args := append([]string{"build", "-o", b.dir}, b.args...)
		out, err := exec.Command("go", append(args, "sluice/cmd/sluice", "sluice/cmd/sluice-loadgen")...).CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	return b.dir, b.err
}

func TestMain(m *testing.M) {
	// With the race detector a process sleeps for a second before it ends, unless told otherwise.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
	code := m.Run()
	for _, b := range []*build{plain, raced} {
		if b.dir != "" {
			os.RemoveAll(b.dir)
		}
	}
	os.Exit(code)
}

// labProcess is a running `sluice-loadgen lab`. Whatever it starts inherits a mark in its environment.
type labProcess struct {
	*exec.Cmd
	mark           string
	stdout, stderr *lockedBuffer
}

func startLab(t *testing.T, args ...string) *labProcess {
	t.Helper()
	dir, err := binaries()
	must(t, err)
	return startLabIn(t, dir, args...)
}

// startLabIn is startLab with the programs of a folder.
func startLabIn(t *testing.T, dir string, args ...string) *labProcess {
	t.Helper()
	if _, err := exec.LookPath("memcached"); err != nil {
		t.Fatal("this test needs a memcached on the PATH: install it (apt-get install memcached)")
	}
	p := &labProcess{
		Cmd:    exec.Command(filepath.Join(dir, "sluice-loadgen"), append([]string{"lab"}, args...)...),
		mark:   fmt.Sprintf("SLUICE_LAB_TEST=%d-%s", os.Getpid(), t.Name()),
		stdout: new(lockedBuffer), stderr: new(lockedBuffer),
	}
	p.Env = append(os.Environ(), p.mark, "TMPDIR="+t.TempDir())
	p.Stdout, p.Stderr = p.stdout, p.stderr
	p.WaitDelay = time.Minute
	must(t, p.Start())
	t.Cleanup(func() {
		for _, pid := range p.alive(t) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		p.Wait()
	})
	return p
}

// alive is the processes that carry the mark.
func (p *labProcess) alive(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(environ, []byte(p.mark+"\x00")) {
			out = append(out, pid)
		}
	}
	return out
}

// eventually asks until the answer is yes, or gives up after a minute.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}

func (p *labProcess) leavesNothing(t *testing.T) {
	t.Helper()
	eventually(t, "all that the lab started is gone", func() bool { return len(p.alive(t)) == 0 })
}

// lockedBuffer may be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestLab(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	p := startLab(t, "--edges", "2", "--memcached", "1", "--workload", "mixed", "--duration", "4s", "--rate", "150",
		"--limit", "5", "--window", "2s", "--mitigation-timeout", "2s", "--details", "--json", file)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
	}
	p.leavesNothing(t)
	for _, want := range []string{"balance exact", "no client errors", "memcached/0 counted: get", "time to block, every edge", "tier commands per 1,000 requests"} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, p.stdout)
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

// Each PoP blocks its own sources, and a block is in force everywhere when the edges of one of them know of it. What goes wrong if PoPs shared
// their nodes: edges learn of sources that they never meet. If all sources went to the first PoP: the second blocks nobody. If the judge
// asked for the edges of both: no block is ever in force everywhere.
func TestLabOfTwoPoPs(t *testing.T) {
	dir, err := binaries()
	must(t, err)
	rule, err := algorithm.NewRule("default", 20, 10*time.Second, 12, algorithm.Nearest)
	must(t, err)
	l := &live{command: "lab", mode: judge.Deployed, rule: pop.Rule{Counter: rule, Timeout: 20 * time.Second}, send: &sendFlags{speed: 1, perConnection: 5},
		edges: []int{2, 2}, nodes: 1, phase: secret.Of([]byte(labSecret)).Phase, trace: new(trace.Trace)}
	if l.affinity, err = anycast.New(2, nil); err != nil {
		t.Fatal(err)
	}
	sources := make([]int, 2) // by PoP
	for i := range int32(12) {
		addr := netip.AddrFrom4([4]byte{198, 19, byte(i), 1}) // prefixes that are routed by themselves
		sources[l.affinity.PoP(addr, 0)]++
		l.trace.Sources = append(l.trace.Sources, trace.Source{Name: addr.String(), Addr: addr})
		for n := range 40 {
			l.trace.Requests = append(l.trace.Requests, trace.Request{At: time.Duration(n) * 10 * time.Millisecond, Source: i, Method: "GET", Path: "/"})
		}
		l.trace.Requests = append(l.trace.Requests, trace.Request{At: 6 * time.Second, Source: i, Method: "GET", Path: "/"}) // all know by then
	}
	trace.Sort(l.trace)
	if sources[0] == 0 || sources[1] == 0 {
		t.Fatalf("sources by PoP: %v", sources)
	}
	site, err := lab.Lab{
		PoPs: 2, Edges: 2, Memcached: 1, Sluice: filepath.Join(dir, "sluice"), Origin: []string{filepath.Join(dir, "sluice-loadgen"), "origin"}, Secret: labSecret,
		Rule: lab.Rule{Limit: 20, Window: 10 * time.Second, MitigationTimeout: l.rule.Timeout, Mode: judge.Deployed},
	}.Start(t.Context())
	must(t, err)
	defer site.Stop()
	out, err := site.Run(t.Context(), replay.Replay{Affinity: l.affinity.PoP, PerConnection: l.send.perConnection}, l.trace, nil)
	must(t, err)
	if err := out.Err(); err != nil {
		t.Error(err)
	}
	popOf := func(source int32) int { return l.affinity.PoP(l.trace.Sources[source].Addr, 0) }
	for _, d := range out.Decisions {
		if int(d.Edge)/2 != popOf(d.Source) {
			t.Fatalf("edge %d decided about source %d, which is of PoP %d", d.Edge, d.Source, popOf(d.Source))
		}
	}
	known := make([][4]bool, len(l.trace.Sources))
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
	if f := l.judge(out.Outcome, out.InForce).Figures; f.Blocks != 12 || f.TimeToBlock.EveryEdge.N != 12 || f.TimeToBlock.Partly != 0 {
		t.Errorf("of %d blocks %d were in force on every edge of their PoP", f.Blocks, f.TimeToBlock.EveryEdge.N)
	}
}

func TestLabGoesOnWithoutItsTier(t *testing.T) {
	p := startLab(t, "--edges", "2", "--memcached", "2", "--workload", "mixed", "--duration", "5s", "--rate", "100",
		"--limit", "5", "--window", "2s", "--mitigation-timeout", "2s",
		"--fault", "500ms kill memcached/0", "--fault", "1s stop memcached/1", "--fault", "1500ms restart memcached/0")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
	}
	p.leavesNothing(t)
	for _, want := range []string{"balance exact", "no client errors", "fault: 500ms kill memcached/0", "fault: 1.5s restart memcached/0 (ready after"} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, p.stdout)
		}
	}
	if strings.Contains(p.stdout.String(), "balance: ") {
		t.Errorf("it adds up, and is shown without being asked for:\n%s", p.stdout)
	}
}

func TestLabChecks(t *testing.T) {
	p := startLab(t, "--edges", "3", "--memcached", "2", "--limit", "20", "--window", "1m", "--mitigation-timeout", "10m", "--check", "shared", "--short")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
	}
	p.leavesNothing(t)
	if !strings.Contains(p.stdout.String(), "check shared: kept") {
		t.Errorf("it says %s", p.stdout)
	}
}

// The short form of what the checks do 20 times at 2,000 requests/s.
func TestLabChecksRestarts(t *testing.T) {
	for _, name := range []string{"upgrades", "restarts"} {
		p := startLab(t, "--check", name, "--times", "2", "--rate", "300")
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
		}
		p.leavesNothing(t)
		if !strings.Contains(p.stdout.String(), "check "+name+": kept") || !strings.Contains(p.stdout.String(), "pipelined") {
			t.Errorf("it says %s", p.stdout)
		}
	}
}

// So short a soak cannot tell what grows from what breathes; that the other half of the promise is kept, it can. What goes wrong if no fault is
// done: the rounds are sound, and name none.
func TestLabSoak(t *testing.T) {
	p := startLab(t, "--edges", "2", "--memcached", "2", "--limit", "20", "--window", "1s", "--mitigation-timeout", "1s",
		"--check", "soak", "--times", "3", "--duration", "1s", "--rate", "300")
	err := p.Wait()
	p.leavesNothing(t)
	said := p.stdout.String()
	if n := len(regexp.MustCompile(`round \d: [0-9a-z.]+ (kill memcached/\d, .* restart|stop memcached/\d, .* cont) memcached/\d`).FindAllString(said, -1)); n != 3 {
		t.Errorf("%d of three rounds had a fault and its end", n)
	}
	if strings.Count(said, "balance exact, no client error") != 3 || strings.Count(said, "descriptors") != 2 ||
		strings.Contains(said, "check soak: kept") != (err == nil) {
		t.Errorf("%v; it says %s%s", err, p.stdout, p.stderr)
	}
}

// What operators say is in force everywhere and stays so under attack. In how much time is not asked here: other tests run as well.
func TestLabChecksWords(t *testing.T) {
	p := startLab(t, "--check", "words", "--short")
	err := p.Wait()
	p.leavesNothing(t)
	said := p.stdout.String()
	if !strings.Contains(said, "afterwards, of 10 blocks, 10 lifts and 10 changed rules on each edge, 0, 0 and 0 were lost") ||
		strings.Count(said, "in force on every edge within 2s: p50 ") != 3 || strings.Contains(said, "check words: kept") != (err == nil) {
		t.Errorf("%v; it says %s%s", err, p.stdout, p.stderr)
	}
}

// The short form of what clients can do to an edge.
func TestLabChecksTheFront(t *testing.T) {
	for name, want := range map[string]string{
		"slow":        "200 slow readers of as many sources  200 cut",
		"bodies":      ": 0 with a wrong digest, or none",
		"descriptors": "accepts failed; a new client was served",
	} {
		p := startLab(t, "--check", name, "--short")
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
		}
		p.leavesNothing(t)
		if !strings.Contains(p.stdout.String(), "check "+name+": kept") || !strings.Contains(p.stdout.String(), want) {
			t.Errorf("it says %s", p.stdout)
		}
	}
}

// An origin that suffers keeps its critical clients, before real edges. They have no race detector, with which they would be what suffers; and
// where the machine has too much else to do for an origin that is well, the check says so, and is made again.
func TestLabChecksShedding(t *testing.T) {
	dir, err := plain.binaries()
	must(t, err)
	var p *labProcess
	for range 5 {
		p = startLabIn(t, dir, "--check", "shedding", "--short")
		err = p.Wait()
		p.leavesNothing(t)
		if err == nil || !strings.Contains(p.stderr.String(), "disturbed: ") {
			break
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, p.stdout, p.stderr)
	}
	if said := p.stdout.String(); !strings.Contains(said, "check shedding: kept") || !strings.Contains(said, "without shedding") {
		t.Errorf("it says %s", said)
	}
}

func TestLabLeavesNothingWhenEnded(t *testing.T) {
	f := func(sig syscall.Signal, graceful bool) {
		t.Helper()
		p := startLab(t, "--edges", "2", "--memcached", "1", "--workload", "mixed", "--duration", "5m")
		eventually(t, "an origin, a node, two edges and the lab", func() bool { return len(p.alive(t)) == 5 })
		p.Process.Signal(sig)
		err := p.Wait()
		p.leavesNothing(t)
		if !graceful {
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.stderr.String(), "interrupted") {
			t.Errorf("after %v: %v, saying %q; want exit code 1 and to be told", sig, err, p.stderr)
		}
	}
	f(syscall.SIGINT, true)
	f(syscall.SIGTERM, true)
	f(syscall.SIGKILL, false)
}
