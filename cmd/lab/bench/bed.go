package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sluice/loadgen/process"
)

// A bed is what servers are measured on, one beside the other: a folder, a certificate, an origin.
// The server that is measured has one processor to itself; all else shares another.
type bed struct {
	dir      string
	pem      string // file of the certificate and its key
	originAt netip.AddrPort
	stops    []func()
}

// makeBed makes one for a trial. An origin is started where self is the program that can be one.
func makeBed(ctx context.Context, trial, self string) (b *bed, err error) {
	if runtime.NumCPU() < 2 {
		return nil,
			fmt.Errorf("loadgen: %s needs two processors: one for the server, one for the load",
				trial)
	}
	b = new(bed)
	if b.dir, err = os.MkdirTemp("", "sluice-"+trial+"-"); err != nil {
		return nil, fmt.Errorf("loadgen: %s: %w", trial, err)
	}
	b.stops = append(b.stops, func() { os.RemoveAll(b.dir) })
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if err := process.Pin(1); err != nil {
		return nil, err
	}
	if self == "" {
		return b, nil
	}
	if b.pem, err = b.certificate(); err != nil {
		return nil, err
	}
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	b.originAt = free[0]
	stop, err := launch(ctx, &process.Process{Name: "origin", Path: self, Args: []string{"origin",
		"--listen", b.origin(), "--size", "1000"}}, b.origin())
	if err == nil {
		b.stops = append(b.stops, stop)
	}
	return b, err
}

// stop ends everything, what came last first.
func (b *bed) stop() {
	for _, stop := range slices.Backward(b.stops) {
		stop()
	}
}

func (b *bed) origin() string { return b.originAt.String() }

// file writes a configuration file.
func (b *bed) file(name, text string) (string, error) {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("loadgen: %w", err)
	}
	return path, nil
}

// server is the process of a program with a configuration: the edge at a path, nginx, HAProxy or
// Caddy.
func (b *bed) server(name, path, config string) (*process.Process, error) {
	file, err := b.file(strings.ReplaceAll(name, " ", "-")+".conf", config)
	if err != nil {
		return nil, err
	}
	args := []string{"--config", file, "--log-level", "error"}
	switch program, _, _ := strings.Cut(name, " "); program {
	case "nginx":
		path, args = program, []string{"-p", b.dir, "-c", file}
	case "haproxy":
		path, args = program, []string{"-db", "-q", "-f", file}
	case "caddy":
		caddy, err := process.Find(program, "install it, or leave it out")
		if err != nil {
			return nil, err
		}
		path, args = "env", []string{"XDG_CONFIG_HOME=" + b.dir, "XDG_DATA_HOME=" + b.dir, caddy, "run", "--config", file, "--adapter", "caddyfile"} // it keeps files of its own there
	}
	path, err = process.Find(path, "install it, or leave it out")
	return &process.Process{Name: name, Path: path, Args: args}, err
}

// interleave has each of n measured in each round, to and fro, so that a machine which slows down
// favours none.
func interleave(rounds, n int, measure func(round, i int) error) error {
	for round := range rounds {
		for i := range n {
			if round%2 == 1 {
				i = n - 1 - i
			}
			if err := measure(round, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// medianOf is the median over n rounds.
func medianOf(n int, of func(round int) float64) float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = of(i)
	}
	slices.Sort(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// medians sets figures of one to the medians of those of all rounds.
func medians[T any](into *T, rounds []T, figures ...func(*T) *float64) {
	for _, figure := range figures {
		*figure(into) = medianOf(len(rounds), func(i int) float64 { return *figure(&rounds[i]) })
	}
}

// launchAlone starts a process that has the first processor to itself.
func launchAlone(ctx context.Context, proc *process.Process, at string) (stop func(), err error) {
	// taskset becomes the program, so its number and what is said of it are the program's.
	proc.Args = append([]string{"-c", "0", proc.Path}, proc.Args...)
	if proc.Path, err = process.Find("taskset", "it comes with util-linux"); err != nil {
		return nil, err
	}
	return launch(ctx, proc, at)
}

// launchMemcached starts a node.
func launchMemcached(ctx context.Context,
	at netip.AddrPort) (node *process.Process, stop func(), err error) {
	path, err := process.Find("memcached", "install it, or leave out what is measured with it")
	if err != nil {
		return nil, nil, err
	}
	node = &process.Process{Name: "memcached", Path: path, AsNobody: true,
		Args: []string{"-l", "127.0.0.1", "-p", fmt.Sprint(at.Port()), "-U", "0", "-m", "256", "-t",
			"1"}}
	stop, err = launch(ctx, node, at.String())
	return node, stop, err
}

// launch starts a process and waits until it listens.
func launch(ctx context.Context, proc *process.Process, at string) (stop func(), err error) {
	return launchUntil(ctx, proc, func() error {
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// launchUntil starts a process and waits until it is ready.
func launchUntil(ctx context.Context, proc *process.Process,
	ready func() error) (stop func(), err error) {
	if err := proc.Start(); err != nil {
		return nil, err
	}
	stop = func() { proc.Stop(2 * time.Second) }
	if err := proc.Await(ctx, 10*time.Second, ready); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// spent is the processor time that processes have had.
func spent(of ...*process.Process) (times []time.Duration, err error) {
	for _, p := range of {
		took := time.Duration(0)
		if p != nil {
			one, wrong := process.CPUTime(p.PID())
			took, err = one, errors.Join(err, wrong)
		}
		times = append(times, took)
	}
	return times, err
}

// Versions names the programs that are measured, and what this one was built with: figures say
// little without.
func Versions(ctx context.Context, measured []string) (list []string, err error) {
	for _, program := range []struct{ name, flag, measured string }{{"nginx", "-v", "nginx"},
		{"haproxy", "-v", "haproxy"}, {"caddy", "version", "caddy"}, {"memcached", "-V",
			"sluice memcached"}} {
		if !slices.ContainsFunc(measured, func(e string) bool {
			return e == program.measured || strings.HasPrefix(e, program.name+" ")
		}) {
			continue
		}
		path, err := process.Find(program.name, "install it, or leave it out")
		if err != nil {
			return nil, err
		}
		version, err := process.Version(ctx, path, program.flag)
		if err != nil {
			return nil, err
		}
		list = append(list, program.name+" "+version)
	}
	return append(list, "Go "+strings.TrimPrefix(runtime.Version(), "go")), nil
}
