// Package etcdtest starts the real etcd for tests, one node on free ports of this machine, and ends
// it with the test.
package etcdtest

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/loadgen/process"
)

// Node is an etcd that keeps what is written until the test ends, killed or not.
type Node struct {
	Endpoint string

	t    testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// Start starts a node and returns when it answers. More arguments of etcd's may be given.
func Start(t testing.TB, args ...string) *Node {
	t.Helper()
	free, err := process.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	client, peer := "http://"+free[0].String(), "http://"+free[1].String()
	dir := filepath.Join(t.TempDir(), "data")
	n := &Node{t: t, dir: dir, Endpoint: client,
		args: append([]string{"--data-dir", dir, "--listen-client-urls", client,
			"--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
			"default=" + peer,
			"--heartbeat-interval", "20", "--election-timeout", "200", "--log-level",
			"error"}, args...)}
	t.Cleanup(n.Kill)
	n.Run()
	return n
}

// Run starts a node that was killed, on what it had.
func (n *Node) Run() {
	n.t.Helper()
	n.cmd = exec.Command("etcd", n.args...)
	n.cmd.Stderr = &n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatalf("this test needs an etcd on the PATH: install it (apt-get install etcd-server): %v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !n.healthy(); <-tick.C {
		if time.Now().After(end) {
			n.Kill()
			n.t.Fatalf("etcd does not answer: %s", n.log.String())
		}
	}
}

func (n *Node) healthy() bool {
	answer, err := http.Get(n.Endpoint + "/health")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return strings.Contains(string(text), `"true"`)
}

// Kill ends the node without notice.
func (n *Node) Kill() {
	if n.cmd.ProcessState == nil && n.cmd.Process != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
	}
}

// Forget has a node that was killed lose all that it had.
func (n *Node) Forget() {
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Fatal(err)
	}
}

// Signal sends a signal to the node: one that is stopped (SIGSTOP) still takes connections. It
// returns when all its threads have stopped.
func (n *Node) Signal(s os.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(n.cmd.Process.Pid, &state, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !state.Stopped() {
			n.t.Fatalf("etcd did not stop: %v, %v", state, err)
		}
		return
	}
}
