//go:build system

package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"sluice/cmd/internal/labtest"
)

// A walled is an edge that listens on port 18080, its helper, and the kernel's table, in a network of their own.
type walled struct {
	t              *testing.T
	program        string // sluice-wall
	config, socket string
	edge           *process
	helper         *exec.Cmd
	log            *labtest.Buffer // of the helper
}

// walledIn makes the files, and starts nothing.
func walledIn(t *testing.T) *walled {
	dir := t.TempDir()
	w := &walled{t: t, program: filepath.Join(dir, "sluice-wall"), socket: filepath.Join(dir, "wall.sock")}
	if out, err := exec.Command("go", "build", "-o", w.program, "sluice/cmd/sluice-wall").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	w.config = write(t, "shed: kernel\nwall: {socket: "+w.socket+"}\norigins: [{servers: [\""+origin(t)+"\"]}]\n"+
		"rules: [{name: all, limit: 2, window: 1h, mitigation_timeout: 1h}]\n")
	return w
}

// guard starts the helper, and returns once its table is made.
func (w *walled) guard(lease string) {
	w.t.Helper()
	w.helper = exec.Command(w.program, "--socket", w.socket, "--ports", "18080", "--user", strconv.Itoa(os.Getuid()), "--lease", lease)
	log := new(labtest.Buffer)
	w.helper.Stderr, w.log = log, log
	must(w.t, w.helper.Start())
	helper := w.helper
	w.t.Cleanup(func() {
		if helper.ProcessState == nil {
			_ = helper.Process.Kill()
			_ = helper.Wait()
		}
	})
	w.until("a helper that guards", func() bool { return strings.Contains(log.String(), "msg=guarding ") })
}

// serve starts the edge, and returns once it uses the helper.
func (w *walled) serve() {
	w.t.Helper()
	w.edge = start(w.t, "", "--config", w.config, "--listen", ":18080")
	w.up("1")
}

// up waits until the edge says that it uses the helper, or "0", that it does not.
func (w *walled) up(is string) {
	w.t.Helper()
	w.until("sluice_wall_up "+is, func() bool { return w.isUp(is) })
}

func (w *walled) isUp(is string) bool {
	_, metrics := w.edge.admin("GET", "/metrics")
	return strings.Contains(metrics, "\nsluice_wall_up "+is+"\n")
}

func (w *walled) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("not %s after %v; the helper said:\n%s\nthe edge said:\n%s", what, patience, w.log, w.edge.log)
		}
	}
}

// What becomes of a connection.
const (
	refused = "refused by the kernel"
	closed  = "closed by the edge"
)

// ask sends a request from an address on a connection of its own, and returns its status, or what became of the connection.
func (w *walled) ask(from string) string {
	w.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	to := "198.18.0.1:18080"
	if strings.Contains(from, ":") {
		to = "[2001:db8:1::1]:18080"
	}
	c, err := d.Dial("tcp", to)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return refused
	}
	must(w.t, err)
	defer c.Close()
	must(w.t, c.SetDeadline(time.Now().Add(patience)))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if len(answer) < len("HTTP/1.1 200") {
		return closed
	}
	return string(answer[len("HTTP/1.1 "):][:3])
}

// cross has a source go over its limit and go on, and returns once the kernel refuses it. Before that it is told why.
func (w *walled) cross(from string) {
	w.t.Helper()
	for _, want := range []string{"200", "200", "429"} {
		if got := w.ask(from); got != want {
			w.t.Fatalf("%s: %s, want %s", from, got, want)
		}
	}
	crossed := time.Now()
	w.until("refused by the kernel: "+from, func() bool { return w.ask(from) == refused })
	w.t.Logf("%s: %v from the answer that said why to the first SYN refused", from, time.Since(crossed))
}

// kill ends a process by a signal that it cannot see.
func (w *walled) kill(cmd *exec.Cmd) {
	w.t.Helper()
	must(w.t, cmd.Process.Kill())
	_ = cmd.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// left returns how long the kernel would go on refusing whoever is in its sets, by what it says itself: the most of all. None: nobody is in them.
func (w *walled) left() (most time.Duration) {
	w.t.Helper()
	c, err := nftables.New()
	must(w.t, err)
	table, err := c.ListTableOfFamily("sluice", nftables.TableFamilyINet)
	must(w.t, err)
	sets, err := c.GetSets(table)
	must(w.t, err)
	for _, s := range sets {
		if !s.HasTimeout {
			continue
		}
		elements, err := c.GetSetElements(s)
		must(w.t, err)
		for _, e := range elements {
			most = max(most, e.Expires)
		}
	}
	return most
}

// heals: whoever is in the kernel's sets is there for no longer than a lease, and leaves with its end.
func (w *walled) heals(what string, lease time.Duration) {
	w.t.Helper()
	if left := w.left(); left > lease {
		w.t.Errorf("%s: the kernel goes on for %v, want %v at most", what, left, lease)
	}
	w.until("an empty set: "+what, func() bool { return w.left() == 0 })
}

// stale fails if the kernel refuses nobody, or somebody for so short that he might be gone by himself before the next process looks.
func (w *walled) stale(what string) {
	w.t.Helper()
	if left := w.left(); left < 20*time.Second {
		w.t.Fatalf("%s: the kernel goes on for %v, want 20s or more", what, left)
	}
}

func (w *walled) want(from, what, why string) {
	w.t.Helper()
	if got := w.ask(from); got != what {
		w.t.Errorf("%s: %s: %s, want %s", why, from, got, what)
	}
}

// TestWallIsLifted: a source that knocks while it is blocked is refused by the kernel until it is lifted, and nobody else is. Leases are so long here
// that nothing ends by itself.
func TestWallIsLifted(t *testing.T) {
	t.Parallel()
	if !labtest.Namespace(t) {
		return
	}
	w := walledIn(t)
	w.guard("1m")
	w.serve()
	for _, from := range []string{"198.18.1.1", "2001:db8:1:1::1"} {
		w.cross(from)
		if code, _, errs := sluice("unblock", from, "--admin", w.edge.back); code != 0 {
			t.Errorf("unblock %s: %s", from, errs)
		}
		lifted := time.Now()
		w.until("admitted: "+from, func() bool { return w.ask(from) == "200" })
		took := time.Since(lifted)
		t.Logf("%s: admitted %v after the lift", from, took)
		if took > 20*time.Second { // a second, on a machine that has nothing else to do; the entry has 40 left
			t.Errorf("%s: admitted %v after the lift", from, took)
		}
	}
	w.want("198.18.9.9", "200", "it has asked for nothing before")

	// A process that is killed leaves its entries; the next one begins without any.
	w.cross("198.18.1.2")
	w.kill(w.edge.cmd)
	w.stale("an edge is killed")
	w.serve()
	w.want("198.18.1.2", "200", "an edge has started anew")

	w.cross("198.18.1.3")
	w.kill(w.edge.cmd)
	w.kill(w.helper)
	w.stale("both are killed")
	w.guard("1m")
	if left := w.left(); left != 0 {
		t.Errorf("a helper has started anew, and the kernel still goes on for %v", left)
	}
	w.serve()
	w.want("198.18.1.3", "200", "both have started anew")

	page := browse(t)
	page.open("http://" + w.edge.back + "/")
	figures := func(text string) string {
		return `document.querySelector("#figures").textContent.includes("` + text + `")`
	}
	page.until(figures("In the kernel's set0 of 65,536"))
	w.cross("198.18.1.4")
	page.until(figures("In the kernel's set1 of 65,536"))
	page.until(figures("SYNs refused a second"))
	if code, out, errs := sluice("blocked", "--admin", w.edge.back); code != 0 || !strings.Contains(squeezed(out), "\n198.18.1.4 all enforce refuse kernel edge ") {
		t.Errorf("blocked: %s%s", out, errs)
	}
	if code, out, errs := sluice("why", "198.18.1.4", "--admin", w.edge.back); code != 0 || !strings.Contains(out, "; refused by the kernel since ") || !strings.Contains(out, " attempts\n") {
		t.Errorf("why: %s%s", out, errs)
	}
	must(t, w.helper.Process.Signal(syscall.SIGTERM))
	if err := w.helper.Wait(); err != nil {
		t.Errorf("SIGTERM: %v; it said:\n%s", err, w.log)
	}
	w.want("198.18.1.4", closed, "the helper has stopped")
	c, err := nftables.New()
	must(t, err)
	tables, err := c.ListTables()
	if err != nil || len(tables) != 0 {
		t.Errorf("the helper has stopped, and there are %d tables (%v)", len(tables), err)
	}
	w.up("0")
	page.until(figures("In the kernel's setnone: away"))
	page.until(`document.querySelector("#warning").textContent.includes("sluice-wall cannot be used: wall: ")`)
	w.edge.stop(syscall.SIGTERM)
}

// TestWallIsKilled: whoever is killed, the helper, the edge or both, a source that was refused is admitted within a lease.
func TestWallIsKilled(t *testing.T) {
	t.Parallel()
	if !labtest.Namespace(t) {
		return
	}
	const lease = 2 * time.Second
	w := walledIn(t)
	w.guard(lease.String())
	w.serve()

	w.cross("198.18.1.1")
	w.kill(w.helper)
	w.heals("the helper is killed", lease)
	w.want("198.18.1.1", closed, "the helper is killed")
	w.up("0")
	w.guard(lease.String())
	w.up("1")

	w.until("refused by the next helper", func() bool { return w.ask("198.18.1.1") == refused })
	w.kill(w.edge.cmd)
	w.heals("the edge is killed", lease)
	w.serve()

	w.cross("198.18.1.2")
	w.kill(w.edge.cmd)
	w.kill(w.helper)
	w.heals("both are killed", lease)
}
