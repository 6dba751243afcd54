// Package process starts programs on this machine and ends them, children included; it reports
// their last output, what processor time and memory they used, and which ports are free.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that a lab runs. It leads a process group of its own, so that a signal to
// the lab's terminal does not reach it before the lab has decided, and where the system can it dies
// with the lab even if that is killed.
type Process struct {
	Name     string // as in "edge/1"
	Path     string
	Args     []string
	AsNobody bool // started by root, it runs as nobody

	mu      sync.Mutex // guards what follows
	command *exec.Cmd
	tail    *Tail
	exited  chan struct{} // closed when the process is gone and waited for
	wanted  bool          // it was asked to end
}

// How long programs are waited for.
const (
	ReadyTimeout = 30 * time.Second // to be ready
	StopTimeout  = 8 * time.Second  // to end
)

// Start runs the program. It must not be running.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	command := exec.Command(p.Path, p.Args...)
	out := &Tail{}
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = Attributes(p.AsNobody)
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		return fmt.Errorf("loadgen: start %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	p.command, p.tail, p.exited, p.wanted = command, out, exited, false
	go func() {
		command.Wait()
		close(exited)
	}()
	return nil
}

// Running reports whether the process lives, and a channel that is closed once it does not.
func (p *Process) Running() (<-chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited == nil {
		return nil, false
	}
	select {
	case <-p.exited:
		return p.exited, false
	default:
		return p.exited, true
	}
}

// Signal sends a signal to the process's group. A process that has ended is not an error.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return nil
	}
	select {
	case <-p.exited:
		return nil // its number may belong to another by now
	default:
	}
	if sig == syscall.SIGTERM || sig == syscall.SIGKILL {
		p.wanted = true
	}
	if err := syscall.Kill(-p.command.Process.Pid, sig); err != nil &&
		!errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("loadgen: signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop ends the process: politely, then after the grace time not. It returns when the process is
// gone.
func (p *Process) Stop(grace time.Duration) {
	exited, running := p.Running()
	if !running {
		return
	}
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT) // one that was stopped could not heed the first
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-exited:
		return
	case <-timer.C:
	}
	p.Signal(syscall.SIGKILL)
	<-exited
}

// Await calls ready until it succeeds. It fails when the process ends, after the patience, or with
// ctx, and says what the process said last.
func (p *Process) Await(ctx context.Context, patience time.Duration, ready func() error) error {
	exited, _ := p.Running()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("loadgen: %s ended at once: %s", p.Name, p.Output())
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("loadgen: %s is not ready after %v: %w; it said: %s", p.Name,
				patience, err, p.Output())
		case <-tick.C:
		}
	}
}

// Crashed reports a process that ended without being asked to.
func (p *Process) Crashed() error {
	_, running := p.Running()
	p.mu.Lock()
	defer p.mu.Unlock()
	if running || p.wanted || p.command == nil {
		return nil
	}
	return fmt.Errorf("loadgen: %s ended by itself (%v): %s", p.Name, p.command.ProcessState,
		p.tail)
}

// Output is the last lines that the process wrote.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tail.String()
}

// Tail keeps the last bytes written to it.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if extra := len(t.buf) - tailSize; extra > tailSize {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(b), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf[max(0, len(t.buf)-tailSize):]
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(b, nil))), "\n")
	if s := strings.Join(lines[max(0, len(lines)-5):], " | "); s != "" {
		return s
	}
	return "(nothing)"
}

// Find finds an executable by path or on the PATH. The hint says how to get it.
func Find(name, hint string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		// Debian keeps nutcracker in a directory that is on root's PATH alone.
		if at := "/usr/sbin/" + name; !strings.Contains(name, "/") && executable(at) {
			return at, nil
		}
		return "", fmt.Errorf("loadgen: there is no %s: %s", name, hint)
	}
	return path, nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// kept are the UDP sockets that keep ports for this process; without a mention they would be
// closed.
var kept struct {
	mu      sync.Mutex
	sockets []net.PacketConn
}

// FreeAddresses finds n free TCP ports of 127.0.0.1, and keeps them for this process until it ends.
// They lie below the range from which systems take the ports of outgoing connections, so that none
// of the thousands that a replay opens takes one before its server does; and a UDP socket of the
// same number, which nothing here listens on, shows other processes that look for ports, labs and
// tests, that this one is taken.
func FreeAddresses(n int) ([]netip.AddrPort, error) {
	const first, last = 20000, 31999
	var out []netip.AddrPort
	kept.mu.Lock()
	defer kept.mu.Unlock()
	at := first + rand.IntN(last-first) // several at once start looking in different places
	for range last - first {
		if len(out) == n {
			return out, nil
		}
		if at++; at > last {
			at = first
		}
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at))
		keep, err := net.ListenPacket("udp4", address.String())
		if err != nil {
			continue
		}
		ln, err := net.Listen("tcp4", address.String())
		if err != nil {
			keep.Close()
			continue
		}
		ln.Close()
		kept.sockets = append(kept.sockets, keep)
		out = append(out, address)
	}
	return nil, fmt.Errorf("loadgen: fewer than %d ports are free between %d and %d of 127.0.0.1",
		n, first, last)
}

// Pause waits, unless ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// PID is the number of the process that was started last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command.Process.Pid
}
