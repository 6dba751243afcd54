// Package restart holds restarts of edges against the clients that they serve: while real edges are replaced in place, or ended and started
// again, over and over, a mix of strict clients sends to them, and none of them may notice. It starts edges and an origin of its own.
package restart

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/cmd/lab/check"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// Check restarts real edges over and over while a mix of clients sends, and checks that nobody notices: no connection
// refused or reset, no request failed.
type Check struct {
	Sluice string // the edge's executable
	Times  int
	Rate   int  // requests a second
	HTTP2  bool // clients speak it
	Log    func(format string, args ...any)
}

// between is how long an edge serves before it is restarted again.
const between = 300 * time.Millisecond

// Upgrades replaces an edge in place (SIGUSR2): the new process gets the listening sockets.
func (r Check) Upgrades(ctx context.Context) (*check.Result, error) {
	c := &check.Result{Name: "upgrades", Kept: true}
	return c, r.against(ctx, c, fmt.Sprintf("%d upgrades in place (SIGUSR2)", r.Times), 1, func(edges []*restarted) (func() string, error) {
		return edges[0].addr.String, edges[0].start(ctx)
	}, func(edges []*restarted, i int) error { return edges[0].upgrade(ctx) })
}

// Rolling ends edges (SIGTERM) and starts them again, in the two ways in which nobody need notice: somebody else holds the
// listening socket, as systemd does, and connections wait there for the next process; or several edges stand behind a
// balancer that asks each of them whether it is ready.
func (r Check) Rolling(ctx context.Context) (*check.Result, error) {
	c := &check.Result{Name: "restarts", Kept: true}
	what := fmt.Sprintf("%d restarts (SIGTERM), the socket held by somebody else", r.Times)
	err := r.against(ctx, c, what, 1, func(edges []*restarted) (func() string, error) {
		ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(edges[0].addr))
		if err != nil {
			return nil, err
		}
		defer ln.Close() // the duplicate stays
		if edges[0].held, err = ln.File(); err != nil {
			return nil, err
		}
		return edges[0].addr.String, edges[0].start(ctx)
	}, func(edges []*restarted, i int) error { return edges[0].again(ctx) })
	if err != nil {
		return nil, err
	}
	balancer := &balancer{}
	stop, done := context.WithCancel(ctx)
	defer done()
	what = fmt.Sprintf("%d restarts (SIGTERM) of three edges in turn behind a balancer that asks /readyz", r.Times)
	return c, r.against(ctx, c, what, 3, func(edges []*restarted) (func() string, error) {
		for _, e := range edges {
			e.args = []string{"--notice", balancerNotices.String()}
			if err := e.start(ctx); err != nil {
				return nil, err
			}
		}
		balancer.edges = edges
		balancer.ask()
		go balancer.watch(stop)
		return balancer.next, nil
	}, func(edges []*restarted, i int) error { return edges[i%len(edges)].again(ctx) })
}

// against runs a mix of clients against edges while they are restarted, and adds to the check what was seen.
func (r Check) against(ctx context.Context, c *check.Result, what string, n int, begin func([]*restarted) (to func() string, err error),
	restart func(edges []*restarted, i int) error) error {
	sluice, err := process.Find(r.Sluice, "build it with make build, or name it with --sluice")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-check-")
	if err != nil {
		return fmt.Errorf("loadgen: check %s: %w", c.Name, err)
	}
	defer os.RemoveAll(dir)
	origin, at, err := check.Serve(mixOrigin)
	if err != nil {
		return err
	}
	defer origin.Close()
	free, err := process.FreeAddresses(2 * n)
	if err != nil {
		return err
	}
	edges := make([]*restarted, n)
	for i := range edges {
		e := &restarted{name: fmt.Sprint("edge/", i), sluice: sluice, addr: free[2*i], admin: free[2*i+1],
			config: filepath.Join(dir, fmt.Sprintf("edge-%d.yaml", i))}
		text := fmt.Sprintf(restartedConfig, e.addr, e.admin, at)
		if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
			return fmt.Errorf("loadgen: check %s: %w", c.Name, err)
		}
		edges[i] = e
		defer e.kill()
	}
	to, err := begin(edges)
	if err != nil {
		return err
	}
	r.Log("%s, %d requests/s", what, r.Rate)
	mix := newClientMix(r.Rate, to)
	if r.HTTP2 {
		mix = newStreamMix(r.Rate, to)
	}
	sending, enough := context.WithCancel(ctx)
	defer enough()
	sent := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(sent)
		mix.run(sending)
	}()
	for i := range r.Times {
		if err := process.Pause(ctx, between); err != nil {
			return err
		}
		if err := restart(edges, i); err != nil {
			return fmt.Errorf("loadgen: check %s, restart %d: %w", c.Name, i+1, err)
		}
	}
	if err := process.Pause(ctx, between); err != nil {
		return err
	}
	enough()
	took := time.Since(began)
	<-sent
	for _, e := range edges {
		if err := e.end(ctx); err != nil {
			return err
		}
	}
	tell(c, what, mix, took)
	return nil
}

const restartedConfig = `listen: %q
admin: %q
table: {counters: 10000}
limits: {connections_per_source: 10000}
origins: [{servers: ["http://%s"]}]
rules: [{name: all, limit: 1000000000}]
http2: {cleartext: true}
source: {trust: [127.0.0.1]}
`

// tell adds a table of the outcome of the clients' requests.
func tell(c *check.Result, what string, mix *clientMix, took time.Duration) {
	c.See("%s, %.0f s", what, took.Seconds())
	c.See("%-20s %9s %8s %6s %7s %8s %8s", "", "requests", "refused", "reset", "failed", "median", "slowest")
	made := 0
	for _, h := range mix.kinds {
		ms := func(ns int64) string { return fmt.Sprintf("%.1f ms", float64(ns)/1e6) }
		c.See("%-20s %9d %8d %6d %7d %8s %8s", h.name, h.made, h.refused, h.reset, h.failed, ms(h.latency.ValueAtQuantile(50)), ms(h.latency.Max()))
		if h.why != "" {
			c.See("  the first: %s", h.why)
		}
		made += h.made
		c.Kept = c.Kept && h.made > 0 && h.refused+h.reset+h.failed == 0
	}
	reached := float64(made) / took.Seconds()
	c.See("%.0f requests/s were made of the %d that were wanted", reached, mix.rate)
	c.Kept = c.Kept && reached >= float64(mix.rate)/2 // less is another test
}

// restarted is an edge, and the processes that follow one another as that edge.
type restarted struct {
	name, sluice, config string
	args                 []string
	addr, admin          netip.AddrPort
	held                 *os.File // the listening socket, if it is held for it
	cmd                  *exec.Cmd
	log                  *os.File // this end is given to the processes
	watched              chan struct{}

	mu      sync.Mutex // guards what follows
	serving []int      // processes that have said so, the newest last
	stopped int
	said    process.Tail
}

// start starts a process and waits until it is ready.
func (e *restarted) start(ctx context.Context) error {
	if e.log == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		e.log, e.watched = w, make(chan struct{})
		go e.watch(r)
	}
	before, _ := e.count()
	args := append([]string{"--config", e.config, "--log-format", "json"}, e.args...)
	e.cmd = exec.Command(e.sluice, args...)
	e.cmd.Env = os.Environ()
	if e.held != nil {
		// LISTEN_PID is the process's own, which a shell can know.
		e.cmd = exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", e.sluice}, args...)...)
		e.cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=listen")
		e.cmd.ExtraFiles = []*os.File{e.held}
	}
	e.cmd.Stderr = e.log
	e.cmd.SysProcAttr = process.Attributes(false)
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("loadgen: start %s: %w", e.name, err)
	}
	return e.await(ctx, "ready", func() bool { served, _ := e.count(); return served > before && scrape.OK(e.admin, "/readyz") == nil })
}

// watch reads what the processes log.
func (e *restarted) watch(r *os.File) {
	defer close(e.watched)
	defer r.Close()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var line struct {
			Msg string `json:"msg"`
			PID int    `json:"pid"`
		}
		_ = json.Unmarshal(lines.Bytes(), &line) // what is no JSON says nothing that counts
		e.mu.Lock()
		fmt.Fprintf(&e.said, "%s\n", lines.Bytes())
		switch line.Msg {
		case "serving":
			e.serving = append(e.serving, line.PID)
		case "stopped":
			e.stopped++
		}
		e.mu.Unlock()
	}
}

func (e *restarted) count() (served, stopped int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.serving), e.stopped
}

// await asks until the answer is yes.
func (e *restarted) await(ctx context.Context, what string, yes func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*process.ReadyTimeout)
	defer cancel()
	for !yes() {
		if err := process.Pause(ctx, 5*time.Millisecond); err != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			return fmt.Errorf("loadgen: %s is not %s after %v (%w): %s", e.name, what, 3*process.ReadyTimeout, err, &e.said)
		}
	}
	return nil
}

// newest is the process that serves, and how many have.
func (e *restarted) newest() (pid, served int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.serving[len(e.serving)-1], len(e.serving)
}

// upgrade has the newest process start another and waits until that serves.
func (e *restarted) upgrade(ctx context.Context) error {
	pid, served := e.newest()
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		return fmt.Errorf("loadgen: upgrade %s: %w", e.name, err)
	}
	return e.await(ctx, "upgraded", func() bool { n, _ := e.count(); return n > served })
}

// again ends the process as an operator does and starts another.
func (e *restarted) again(ctx context.Context) error {
	if err := e.term(); err != nil {
		return err
	}
	return e.start(ctx)
}

// term ends the process that was started last, and waits for it.
func (e *restarted) term() error {
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("loadgen: end %s: %w", e.name, err)
	}
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("loadgen: %s did not end well: %w: %s", e.name, err, &e.said)
	}
	return nil
}

// end ends whoever is left, in order.
func (e *restarted) end(ctx context.Context) error {
	newest, _ := e.newest()
	if newest == e.cmd.Process.Pid {
		return e.term()
	}
	if err := e.cmd.Wait(); err != nil { // the first, which has been replaced
		return fmt.Errorf("loadgen: %s did not end well: %w: %s", e.name, err, &e.said)
	}
	if err := syscall.Kill(newest, syscall.SIGTERM); err != nil {
		return fmt.Errorf("loadgen: end %s: %w", e.name, err)
	}
	return e.await(ctx, "gone, all of it", func() bool { served, stopped := e.count(); return stopped == served })
}

// kill ends what a failure has left, and what holds on to it.
func (e *restarted) kill() {
	if e.cmd != nil && e.cmd.Process != nil {
		// They are one process group, whose number is nobody else's while one of them lives.
		if _, stopped := e.count(); e.cmd.ProcessState == nil || stopped < len(e.serving) {
			_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
		}
		if e.cmd.ProcessState == nil {
			_ = e.cmd.Wait()
		}
	}
	if e.held != nil {
		e.held.Close()
	}
	if e.log != nil {
		e.log.Close()
		<-e.watched
	}
}

// balancerAsks is how often the balancer asks. A busy machine may keep it from asking for a while; an edge gives it so long to
// notice.
const (
	balancerAsks    = 100 * time.Millisecond
	balancerNotices = 2 * time.Second
)

// A balancer sends each new connection to the next edge that was ready when it was asked last.
type balancer struct {
	edges []*restarted
	ready atomic.Pointer[[]string]
	turn  atomic.Uint32
}

func (b *balancer) next() string {
	ready := *b.ready.Load()
	return ready[int(b.turn.Add(1))%len(ready)]
}

// ask asks every edge. With none ready it stays with those that were.
func (b *balancer) ask() {
	var ready []string
	for _, e := range b.edges {
		if scrape.OK(e.admin, "/readyz") == nil {
			ready = append(ready, e.addr.String())
		}
	}
	if len(ready) > 0 {
		b.ready.Store(&ready)
	}
}

func (b *balancer) watch(ctx context.Context) {
	for process.Pause(ctx, balancerAsks) == nil {
		b.ask()
	}
}
