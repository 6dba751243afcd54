//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/operator"
)

// startMemcached starts a node of its own, and returns once it listens.
func startMemcached(t *testing.T) string {
	t.Helper()
	addr, _ := startNode(t)
	return addr
}

// startNode is startMemcached, and tells the process.
func startNode(t *testing.T) (addr string, process *os.Process) {
	t.Helper()
	addr = freePort(t)
	_, port, _ := net.SplitHostPort(addr)
	node := exec.Command("memcached", "-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", port)
	if err := node.Start(); err != nil {
		t.Fatalf("this test needs a memcached on the PATH: install it (apt-get install memcached): %v", err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C { // until it listens
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return addr, node.Process
		}
		if time.Now().After(deadline) {
			t.Fatalf("memcached does not listen: %v", err)
		}
	}
}

// pause stops a process of several threads, and returns when the last of them has stopped: the signal comes to each when it next leaves the kernel.
// (Where there is no /proc they are not waited for.)
func pause(t *testing.T, process *os.Process) {
	t.Helper()
	must(t, process.Signal(syscall.SIGSTOP))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Pid))
		must(t, err)
		if !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(text), ") T ") // else the thread has ended
		}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d has not stopped", process.Pid)
		}
	}
}

// knows waits until an edge knows of so many hits of this machine, which the tier tells for each sub-window by itself.
func knows(t *testing.T, p *process, hits float64) {
	t.Helper()
	estimate := 0.0
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v hits are known, want %v", estimate, hits)
		}
	})
	p.until("told of all hits", func() bool {
		_, body := p.admin("GET", "/v1/sources/127.0.0.1")
		var looked control.Looked
		if json.Unmarshal([]byte(body), &looked) == nil && len(looked.Rules) == 1 {
			estimate = looked.Rules[0].Estimate
		}
		return estimate == hits
	})
}

// What an edge has counted and not yet reported reaches the tier before it ends: the next one knows of it.
func TestUnreportedHitsReachTheTier(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	args := []string{"--memcached", node, "--limit", "100000", "--window", "1h"}
	p := start(t, origin(t), args...)
	const hits = 200
	for range hits {
		if got := p.get(); got != 200 {
			t.Fatal(got)
		}
	}
	p.stop(syscall.SIGTERM)
	next := start(t, origin(t), args...)
	next.get() // it has not seen the source, and asks
	knows(t, next, hits+1)
	next.stop(syscall.SIGTERM)
}

// What cannot be reported is named, and does not take long.
func TestLastReportToNobody(t *testing.T) {
	t.Parallel()
	p := start(t, origin(t), "--memcached", freePort(t))
	const hits = 42
	for range hits {
		if got := p.get(); got != 200 {
			t.Fatal(got)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	began := time.Now()
	_ = p.cmd.Wait()
	if took, code := time.Since(began), p.cmd.ProcessState.ExitCode(); code != operator.ExitFailed || took > patience {
		t.Errorf("exit %d after %v", code, took)
	}
	if want := fmt.Sprintf("%d hits did not reach the tier", hits); !strings.Contains(p.log.String(), want) {
		t.Errorf("not in its log: %s\n%s", want, p.log)
	}
}

// A process that another has taken over from has done what it should, even where the tier is away: the edge goes on.
func TestLastReportAfterHandover(t *testing.T) {
	t.Parallel()
	l := startLineage(t, origin(t), nil, "--memcached", freePort(t))
	if got := l.get(); got != 200 {
		t.Fatal(got)
	}
	http.DefaultClient.CloseIdleConnections()
	l.replace()
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, l.text())
	}
	if want := "1 hits did not reach the tier"; !strings.Contains(l.text(), want) {
		t.Errorf("not in its log: %s\n%s", want, l.text())
	}
	l.signal(syscall.SIGTERM)
}
