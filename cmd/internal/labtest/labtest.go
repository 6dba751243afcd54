// Package labtest runs labs for tests: it builds the programs once, starts one, and sees that
// nothing of it is left.
package labtest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A build is where the programs are, once a test has wanted them.
type build struct {
	once, trial sync.Once
	args        []string
	dir         string
	err         error
}

var plain, raced = &build{}, &build{args: []string{"-race"}}

// Binaries is the folder with the programs, which have the race detector if the test has it.
func Binaries(tb testing.TB) string { return asTheTest().in(tb) }

// Trials is Binaries with the program of the laboratory beside the others.
func Trials(tb testing.TB) string { return asTheTest().withTrial(tb) }

// PlainTrials is Trials without the race detector.
func PlainTrials(tb testing.TB) string { return plain.withTrial(tb) }

func asTheTest() *build {
	if raceEnabled {
		return raced
	}
	return plain
}

func (b *build) in(tb testing.TB) string {
	tb.Helper()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "sluice-lab-test-"); b.err == nil {
			b.err = b.make(".", b.dir+"/", "./cmd/sluice", "./cmd/sluice-wall",
				"./cmd/sluice-loadgen")
		}
	})
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.dir
}

func (b *build) withTrial(tb testing.TB) string {
	tb.Helper()
	dir := b.in(tb)
	b.trial.Do(func() { b.err = b.make("cmd/lab", filepath.Join(dir, "sluice-trial"), ".") })
	return b.in(tb)
}

// make builds packages of the module in a folder of the repository.
func (b *build) make(module, out string, packages ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	args := append([]string{"-C", filepath.Join(root, module), "build", "-o", out}, b.args...)
	if said, err := exec.Command("go", append(args, packages...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return nil
}

// repository is its top, be the test one of the product or of the laboratory.
func repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sluice").Output()
	return string(bytes.TrimSpace(out)), err
}

// peer is envoyproxy/ratelimit, once a test has wanted it.
var peer struct {
	once sync.Once
	dir  string
	err  error
}

// RateLimit is the executable of envoyproxy/ratelimit, as peers.mod pins it.
func RateLimit(tb testing.TB) string {
	tb.Helper()
	peer.once.Do(func() {
		if peer.dir, peer.err = os.MkdirTemp("", "sluice-peer-test-"); peer.err != nil {
			return
		}
		root, err := repository()
		if err != nil {
			peer.err = err
			return
		}
		pinned := filepath.Join(root, "peers.mod")
		out, err := exec.Command("go", "-C", root, "build", "-modfile", pinned, "-o",
			filepath.Join(peer.dir,
				"ratelimit"), "github.com/envoyproxy/ratelimit/src/service_cmd").CombinedOutput()
		if err != nil {
			peer.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if peer.err != nil {
		tb.Fatal(peer.err)
	}
	return filepath.Join(peer.dir, "ratelimit")
}

// Prepare is for the TestMain of a package whose tests start processes. These tests wait for most
// of their time, so more of the parallel ones run at once than there are processors, unless
// -parallel says otherwise. With the race detector they do not: what they start then needs much
// more of the processors.
func Prepare() {
	// With the race detector a process sleeps for a second before it ends, unless set otherwise,
	// and there are hundreds of them.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
	if !raceEnabled {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
}

// Main is a TestMain that removes what was built.
func Main(m *testing.M) {
	Prepare()
	code := m.Run()
	for _, dir := range []string{plain.dir, raced.dir, peer.dir} {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// Process is a running `lab` of a program. Whatever it starts inherits a mark in its environment.
type Process struct {
	*exec.Cmd
	mark     string
	Out, Err *Buffer
}

// Start starts a lab of a program in a folder.
func Start(t *testing.T, dir, program string, args ...string) *Process {
	t.Helper()
	if _, err := exec.LookPath("memcached"); err != nil {
		t.Fatal("this test needs a memcached on the PATH: install it (apt-get install memcached)")
	}
	p := &Process{
		Cmd:  exec.Command(filepath.Join(dir, program), append([]string{"lab"}, args...)...),
		mark: fmt.Sprintf("SLUICE_LAB_TEST=%d-%s", os.Getpid(), t.Name()),
		Out:  new(Buffer), Err: new(Buffer),
	}
	p.Env = append(os.Environ(), p.mark, "TMPDIR="+t.TempDir())
	p.Stdout, p.Stderr = p.Out, p.Err
	p.WaitDelay = time.Minute
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range p.Alive(t) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		p.Wait()
	})
	return p
}

// Alive is the processes that carry the mark.
func (p *Process) Alive(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
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

// Eventually asks until the answer is yes, or gives up after a minute.
func Eventually(t *testing.T, what string, yes func() bool) {
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

// LeavesNothing fails the test if a process of the lab is left.
func (p *Process) LeavesNothing(t *testing.T) {
	t.Helper()
	Eventually(t, "all that the lab started is gone", func() bool { return len(p.Alive(t)) == 0 })
}

// Buffer may be read while a process writes to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Buffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
