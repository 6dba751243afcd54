package process

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := &Process{Name: "shell/0", Path: "/bin/sh", Args: []string{"-c", script}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.exited
	})
	return p
}

// gone reports whether the process has ended, be it that init has yet to collect it.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// waitFor is ready once the process has written the word.
func waitFor(p *Process, word string) func() error {
	return func() error {
		if !strings.Contains(p.Output(), word) {
			return errors.New("not heard")
		}
		return nil
	}
}

func TestProcessStops(t *testing.T) {
	f := func(name, script string, before func(*Process), grace time.Duration) {
		t.Helper()
		p := shell(t, script)
		if err := p.Await(t.Context(), time.Minute, waitFor(p, "up")); err != nil {
			t.Fatal(err)
		}
		if before != nil {
			before(p)
		}
		p.Stop(grace)
		if _, running := p.Running(); running {
			t.Errorf("%s: it runs after stop", name)
		}
		if err := p.Crashed(); err != nil {
			t.Errorf("%s: told to end, it counts as crashed: %v", name, err)
		}
		p.Stop(grace) // again: nothing to do
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: a signal to one that has ended: %v", name, err)
		}
	}
	f("polite", "echo up; exec sleep 1000", nil, time.Minute)
	f("stopped", "echo up; exec sleep 1000", func(p *Process) { p.Signal(syscall.SIGSTOP) }, time.Minute)
	f("deaf", "trap '' TERM; echo up; while :; do sleep 1000; done", nil, 50*time.Millisecond)
}

func TestProcessTakesItsChildrenAlong(t *testing.T) {
	p := shell(t, "sleep 1000 & echo child $! up; wait")
	if err := p.Await(t.Context(), time.Minute, waitFor(p, "up")); err != nil {
		t.Fatal(err)
	}
	child := strings.Fields(p.Output())[1]
	if gone(child) {
		t.Fatalf("process %s is not there to begin with", child)
	}
	p.Stop(time.Minute)
	if err := eventually(t.Context(), func() bool { return gone(child) }); err != nil {
		t.Errorf("its child outlives it: %v", err)
	}
}

// eventually asks until the answer is yes, or gives up after a minute.
func eventually(ctx context.Context, yes func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func TestProcessThatEndsByItself(t *testing.T) {
	p := shell(t, "echo first; echo no such port >&2; exit 3")
	never := func() error { return errors.New("not ready") }
	err := p.Await(t.Context(), time.Minute, never)
	if err == nil || !strings.Contains(err.Error(), "shell/0") || !strings.Contains(err.Error(), "no such port") {
		t.Errorf("awaiting it: %v", err)
	}
	if err := p.Crashed(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("crashed: %v", err)
	}
	p = shell(t, "exec sleep 1000")
	if err := p.Await(t.Context(), time.Millisecond, never); err == nil || !strings.Contains(err.Error(), "not ready after 1ms") {
		t.Errorf("awaiting one that is never ready: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Await(ctx, time.Minute, never); !errors.Is(err, context.Canceled) {
		t.Errorf("awaiting one when told to stop: %v", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var out Tail
	for range 10_000 {
		out.Write([]byte("a line that is written many times\n"))
	}
	out.Write([]byte("the last\n"))
	if got := out.String(); !strings.HasSuffix(got, "| the last") || len(got) > 300 {
		t.Errorf("tail %q", got)
	}
	if len(out.buf) > 3*tailSize {
		t.Errorf("it keeps %d bytes", len(out.buf))
	}
	if got := new(Tail).String(); got != "(nothing)" {
		t.Errorf("empty tail %q", got)
	}
}

// Who looks for ports gets none that somebody has been given, this process or another, though nobody listens on it yet.
func TestFreeAddressesAreKept(t *testing.T) {
	given := make(map[netip.AddrPort]bool)
	for range 10 {
		addresses, err := FreeAddresses(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			if given[a] {
				t.Errorf("%v is given twice", a)
			}
			given[a] = true
			if c, err := net.ListenPacket("udp4", a.String()); err == nil { // as another process would
				c.Close()
				t.Errorf("%v is not kept", a)
			}
			ln, err := net.Listen("tcp4", a.String())
			if err != nil {
				t.Fatal(err)
			}
			ln.Close()
		}
	}
}
