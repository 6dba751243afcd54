//go:build system

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
	"sluice/counter"
	"sluice/counter/member"
	"sluice/pop/presence"
	"sluice/pop/secret"
)

// A lineage is sluice and the processes that take over from it. They log into one file.
type lineage struct {
	*process
	file string
}

func startLineage(t *testing.T, origin string, env []string, args ...string) *lineage {
	t.Helper()
	front := freePort(t)
	l := startLineageOf(t, env, append([]string{"--listen", front, "--origin", origin}, args...)...)
	l.front = front
	return l
}

// startLineageOf starts one that listens for clients where its configuration says.
func startLineageOf(t *testing.T, env []string, args ...string) *lineage {
	t.Helper()
	l := &lineage{process: &process{t: t, back: freePort(t), log: new(labtest.Buffer)}, file: filepath.Join(t.TempDir(), "log")}
	out, err := os.Create(l.file)
	must(t, err)
	defer out.Close()
	l.cmd = exec.Command(os.Args[0], append([]string{"--admin", l.back, "--grace", "5s"}, args...)...)
	l.cmd.Env = append(append(os.Environ(), "SLUICE_UNDER_TEST=1"), env...)
	l.cmd.Stderr = out
	must(t, l.cmd.Start())
	t.Cleanup(func() {
		for _, pid := range l.pids() { // what has ended already is not there
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = l.cmd.Wait()
	})
	l.until("serving", func() bool { return len(l.pids()) > 0 })
	return l
}

func (l *lineage) text() string {
	text, err := os.ReadFile(l.file)
	must(l.t, err)
	return string(text)
}

var servingPID = regexp.MustCompile(`msg=serving .*pid=(\d+)`)

// pids are all processes that have served, the newest last.
func (l *lineage) pids() (pids []int) {
	for _, m := range servingPID.FindAllStringSubmatch(l.text(), -1) {
		pid, _ := strconv.Atoi(m[1])
		pids = append(pids, pid)
	}
	return pids
}

func (l *lineage) signal(s syscall.Signal) {
	l.t.Helper()
	pids := l.pids()
	if err := syscall.Kill(pids[len(pids)-1], s); err != nil {
		l.t.Fatalf("%v\n%s", err, l.text())
	}
}

// replace starts a new process and returns once it serves.
func (l *lineage) replace() {
	l.t.Helper()
	n := len(l.pids())
	l.signal(syscall.SIGUSR2)
	l.until("replaced", func() bool { return len(l.pids()) > n })
}

// New processes under load, one after the other, with connections that stay and connections that are new: nobody is refused, reset or
// served an error.
func TestRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	const restarts = 8
	l := startLineage(t, origin(t), nil, "--limit", "1000000000")
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var served, failed atomic.Int64
	var firsts sync.Map
	for i := range 4 {
		transport := &http.Transport{DisableKeepAlives: i%2 == 0, MaxIdleConnsPerHost: 4}
		client := &http.Client{Transport: transport, Timeout: patience}
		clients.Go(func() {
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get("http://" + l.front + "/")
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil && (resp.StatusCode != 200 || string(body) != "hello") {
						err = fmt.Errorf("%d %q", resp.StatusCode, body)
					}
				}
				if err != nil {
					failed.Add(1)
					firsts.LoadOrStore(err.Error(), true)
				}
				served.Add(1)
			}
		})
	}
	for range restarts {
		before := served.Load()
		l.replace()
		l.until("served", func() bool { return served.Load() > before+20 })
	}
	close(stop)
	clients.Wait()
	if failed.Load() > 0 {
		firsts.Range(func(k, _ any) bool { t.Error(k); return true })
		t.Errorf("%d of %d requests failed", failed.Load(), served.Load())
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("the first process: %v\n%s", err, l.text())
	}
	l.signal(syscall.SIGTERM)
	l.until("stopped", func() bool { return strings.Count(l.text(), "msg=stopped") == restarts+1 })
}

// Whom the old process has blocked the new one refuses; a lift by hand before it has ended is not undone by it.
func TestMitigationsAreHandedOver(t *testing.T) {
	t.Parallel()
	l := startLineage(t, origin(t), nil, "--limit", "1", "--window", "1h", "--mitigation-timeout", "1h")
	if a, b := l.get(), l.get(); a != 200 || b != 429 {
		t.Fatalf("%d %d", a, b)
	}
	l.replace()
	l.until("of the new process", func() bool {
		http.DefaultClient.CloseIdleConnections()
		_, body := l.admin("GET", "/v1/mitigations")
		return strings.Contains(body, `"by": "pop"`) && strings.Contains(body, "127.0.0.1")
	})
	if got := l.get(); got != 429 {
		t.Errorf("after the handover: %d", got)
	}
	if status, body := l.admin("DELETE", "/v1/mitigations/default/127.0.0.1"); status != 200 {
		t.Fatalf("lift: %d %s", status, body)
	}
	l.until("rid of the old process", func() bool { return strings.Contains(l.text(), "msg=stopped") })
	if _, body := l.admin("GET", "/v1/mitigations"); strings.Contains(body, "127.0.0.1") {
		t.Errorf("the old process undid the lift: %s", body)
	}
}

var edgeBlocks = regexp.MustCompile(`sluice_mitigations_started_total\{by="edge",mode="enforce",rule="r"\} (\d+)`)

// Who comes back, when nothing counts any more, is blocked for longer, also by the process that took over since, and by an edge that has just started beside it.
func TestWhoComesBackIsBlockedForLonger(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	file := write(t, `rules: [{name: r, limit: 1, window: 1s, mitigation_timeout: 2s, escalate: [10s, 20m], escalate_within: 10m, key: header:x-who},
		{name: other, match: {path: /other}, limit: 1, window: 1h, mitigation_timeout: 1h}]`)
	get := func(p *process, who string) (status, wait int) {
		req, _ := http.NewRequest("GET", "http://"+p.front+"/", nil)
		req.Header.Set("X-Who", who)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, 0
		}
		resp.Body.Close()
		wait, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
		return resp.StatusCode, wait
	}
	over := func(p *process, who string, least, most int) {
		t.Helper()
		p.until("admitting "+who, func() bool { status, _ := get(p, who); return status == 200 })
		wait := 0
		p.until("refusing "+who, func() (refused bool) {
			var status int
			status, wait = get(p, who)
			return status == 429
		})
		if wait < least || wait > most { // more requests might begin the next block
			t.Errorf("%s is blocked for %d seconds, want %d to %d", who, wait, least, most)
		}
		// This is its first block there, or it would know of one before by itself.
		_, metrics := p.admin("GET", "/metrics")
		if m := edgeBlocks.FindStringSubmatch(metrics); m == nil || m[1] != "1" {
			t.Errorf("blocks begun by the edge itself: %v, want 1", m)
		}
	}
	l := startLineage(t, origin(t), nil, "--config", file) // no tier could tell it
	over(l.process, "a", 1, 2)
	l.until("done with the blocks", func() bool {
		_, body := l.admin("GET", "/v1/mitigations")
		return !strings.Contains(body, `"source"`)
	})
	l.replace()
	http.DefaultClient.CloseIdleConnections()
	l.until("rid of the old process", func() bool { return strings.Contains(l.text(), "msg=stopped") })
	over(l.process, "a", 8, 10)

	p := start(t, origin(t), "--config", file, "--memcached", node)
	over(p, "b", 1, 2)
	for _, want := range []int{200, 429} { // a block that lasts, after the one of b
		if got, _ := fetch("GET", "http://"+p.front+"/other"); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	beside := start(t, origin(t), "--config", file, "--memcached", node)
	beside.until("told of all blocks so far", func() bool {
		_, body := beside.admin("GET", "/v1/mitigations")
		return strings.Contains(body, `"rule": "other"`)
	})
	over(beside, "b", 8, 10)
	p.until("told of b", func() bool { // it is not asked: it would block b by itself
		_, body := p.admin("GET", "/v1/mitigations")
		return strings.Contains(body, `"by": "pop"`)
	})
}

// The process that replaces the last edge of a PoP of 64 counts with the PoP from its first request
// on, while connections stay with the older one. Sixty-three others are presences in a real node.
func TestReplacedInAFullPoP(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	key := secret.Of([]byte(popKey)).At("fra1")
	var others [counter.MaxEdges - 1]presence.Slots
	for i := range others {
		others[i] = presence.New(key, uint64(i+1))
		others[i].Take(i)
	}
	conn, err := net.Dial("tcp", node)
	must(t, err)
	var sends sync.WaitGroup
	defer sends.Wait()
	defer conn.Close()
	sent := make(chan struct{}, 1)
	sends.Go(func() {
		replies := bufio.NewReader(conn)
		for tick := time.NewTicker(time.Second); ; <-tick.C {
			for i := range others {
				now := time.Now()
				about := member.About{Started: now}
				c := others[i].Fill(0, presence.Edge{Name: fmt.Sprint("other", i), About: about}, now)
				fmt.Fprintf(conn, "set %s 0 60 %d\r\n%s\r\n", c.Key, len(c.Value), c.Value)
				if line, err := replies.ReadString('\n'); err != nil || line != "STORED\r\n" {
					return
				}
			}
			select {
			case sent <- struct{}{}:
			default:
			}
		}
	})
	<-sent
	pop := "pop: {name: fra1, memcached: ['" + node + "'], secret_file: " + write(t, popKey) + "}\n"
	rules := "rules: [{name: r, limit: 100, window: 1h}]\n"
	l := startLineage(t, origin(t), nil, "--config", write(t, pop+rules))
	of := func(p *process, metric string) string {
		_, text := p.admin("GET", "/metrics")
		m := regexp.MustCompile(`(?m)^` + metric + ` (.*)$`).FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		return m[1]
	}
	l.until("one of 64", func() bool {
		return of(l.process, "sluice_tier_edges") == "64" && of(l.process, "sluice_pop_full") == "0"
	})

	kept := &http.Client{Transport: &http.Transport{}} // it stays with the older process
	ask := func(by *http.Client) {
		t.Helper()
		resp, err := by.Get("http://" + l.front + "/")
		must(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	ask(kept)
	l.replace()
	l.until("seen by the new process", func() bool {
		http.DefaultClient.CloseIdleConnections()
		return of(l.process, "sluice_tier_edges") == "64"
	})
	for range 5 {
		ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	}
	knows(t, l.process, 6) // with the one of the older process
	l.until("rid of the older process", func() bool {
		if of(l.process, "sluice_pop_full") == "1" {
			t.Fatalf("it counts alone while the older process ends\n%s", l.text())
		}
		return strings.Contains(l.text(), "msg=stopped")
	})
}

// A new process that cannot start changes nothing.
func TestFailedReplacement(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: [{name: a, limit: 7}]")
	l := startLineage(t, origin(t), nil, "--config", file)
	must(t, os.WriteFile(file, []byte("rules: [{name: a, limit: 0}]"), 0o600))
	l.signal(syscall.SIGUSR2)
	l.until("told", func() bool { return strings.Contains(l.text(), "no new process has taken over") })
	for range 3 {
		if got := l.get(); got != 200 {
			t.Errorf("%d", got)
		}
	}
	if status, _ := l.admin("GET", "/readyz"); status != 200 || len(l.pids()) != 1 {
		t.Errorf("ready: %d; %d have served", status, len(l.pids()))
	}
	must(t, os.WriteFile(file, []byte("rules: [{name: a, limit: 9}]"), 0o600))
	l.replace() // and now it can
	if got := l.get(); got != 200 {
		t.Errorf("%d", got)
	}
}

// A process that is told to stop while a new one starts to take its place does so at once, and leaves no new one behind.
func TestStopWhileTheNextOneStarts(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret") // whoever reads it waits until somebody writes it
	must(t, syscall.Mkfifo(secret, 0o600))
	go func() {
		if f, err := os.OpenFile(secret, os.O_WRONLY, 0); err == nil {
			_, _ = io.WriteString(f, strings.Repeat("secret", 4))
			f.Close()
		}
	}()
	l := startLineage(t, origin(t), nil, "--config", write(t, "pop: {secret_file: "+secret+"}"))
	l.signal(syscall.SIGUSR2)
	var reader int // the new process reads
	l.until("starting", func() (ok bool) {
		fd, err := syscall.Open(secret, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		reader = fd
		return err == nil
	})
	defer syscall.Close(reader)
	l.signal(syscall.SIGTERM)
	l.until("stopped", func() bool { return strings.Contains(l.text(), "msg=stopped") })
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, l.text())
	}
	l.until("rid of the new process", func() bool { _, err := syscall.Write(reader, []byte("x")); return err == syscall.EPIPE })
	if n := len(l.pids()); n != 1 {
		t.Errorf("%d processes have served\n%s", n, l.text())
	}
}

// A source goes on where it stood: what it has used of its limit it has not again, whichever process it used it with.
func TestCountersAreHandedOver(t *testing.T) {
	t.Parallel()
	l := startLineage(t, origin(t), nil, "--limit", "5", "--window", "1h", "--mitigation-timeout", "0s")
	f := func(want ...int) {
		t.Helper()
		for i, status := range want {
			if got := l.get(); got != status {
				t.Errorf("request %d: %d, want %d", i, got, status)
			}
		}
	}
	f(200, 200)
	l.replace()
	f(200) // on the connection that the old process has
	reported := func(times int) {
		l.until("told the last counters", func() bool { return strings.Count(l.text(), `msg="last counters taken over" counters=1`) == times })
	}
	reported(1)
	f(200)
	http.DefaultClient.CloseIdleConnections()
	l.replace()
	reported(2) // until then the old process may take a connection, too
	f(200, 429)
	l.signal(syscall.SIGTERM)
}

// What has happened, and who asks most, is known to the process that takes over, with what the old one adds to its end. The numbers of events go on.
func TestEventsAndTopAreHandedOver(t *testing.T) {
	t.Parallel()
	l := startLineage(t, origin(t), nil, "--config", write(t, "rules: [{name: r, limit: 3, window: 1h, key: header:X-Api-Key}]"))
	ask := func(times int) {
		for range times {
			l.request("GET", l.front, "/", "", "X-Api-Key", "a key")
		}
	}
	ask(5)
	if a := l.api("PUT", "/v1/deny/192.0.2.7/32", `{"for":"1h"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	type event struct {
		Number           uint64
		Kind, Text, Rule string
	}
	events := func() (list []event, kinds map[string]int) {
		_, text := l.admin("GET", "/v1/events")
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		kinds = make(map[string]int)
		for i, e := range list {
			kinds[e.Kind+" "+e.Text]++
			if i > 0 && e.Number >= list[i-1].Number {
				t.Errorf("event %d after %d", e.Number, list[i-1].Number)
			}
		}
		return list, kinds
	}
	before, kinds := events()
	if len(before) < 3 {
		t.Fatalf("%+v", before)
	}
	l.replace()
	http.DefaultClient.CloseIdleConnections()
	l.until("told by the new process", func() bool {
		status, _ := l.admin("GET", "/readyz")
		return status == 200 && strings.Contains(l.text(), "msg=stopped")
	})
	l.until("rid of the old process", func() bool {
		_, now := events()
		return now["process started"] == 2 && now["process draining"] == 1
	})
	after, now := events()
	for what, n := range kinds {
		if now[what] < n {
			t.Errorf("%s: %d, before %d", what, now[what], n)
		}
	}
	for i, e := range before {
		if got := after[len(after)-len(before)+i]; got != e {
			t.Errorf("%+v has become %+v", e, got)
		}
	}
	ask(2)
	for by, want := range map[string]int{"requests": 7, "refused": 4} {
		for _, kind := range []string{"address", "key"} {
			var top []struct{ Count int }
			_, text := l.admin("GET", "/v1/top?by="+by+"&kind="+kind)
			if err := json.Unmarshal([]byte(text), &top); err != nil || len(top) != 1 || top[0].Count != want {
				t.Errorf("%s of %s: %v %s, want %d", kind, by, err, text, want)
			}
		}
	}
}

// What a process was given by the one before it, it does not give to its own children.
func TestNothingIsInheritedTwice(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--memcached", "127.0.0.1:9"}} {
		l := startLineage(t, origin(t), nil, args...)
		inherited := func() map[string]string {
			pids := l.pids()
			folder := fmt.Sprintf("/proc/%d/", pids[len(pids)-1])
			list, err := os.ReadDir(folder + "fd")
			must(t, err)
			open := make(map[string]string)
			for _, d := range list {
				info, err := os.ReadFile(folder + "fdinfo/" + d.Name())
				target, _ := os.Readlink(folder + "fd/" + d.Name())
				if m := openFlags.FindSubmatch(info); err == nil && m != nil {
					if flags, _ := strconv.ParseInt(string(m[1]), 8, 64); flags&syscall.O_CLOEXEC == 0 {
						open[d.Name()] = target
					}
				}
			}
			return open
		}
		before := inherited() // standard input, output, errors, and what the test was given
		l.replace()
		for fd, what := range inherited() {
			if before[fd] == "" {
				t.Errorf("%v: children would have descriptor %s, %s", args, fd, what)
			}
		}
		l.signal(syscall.SIGTERM)
		l.until("stopped", func() bool { return strings.Count(l.text(), "msg=stopped") == 2 })
	}
}

var openFlags = regexp.MustCompile(`(?m)^flags:\s+([0-7]+)$`)

// A socket that systemd has opened is served on, where it is at an address of the configuration; elsewhere the edge does not start, and says why.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	must(t, err)
	defer f.Close()
	// LISTEN_PID is the process's own: a shell can know it.
	back := freePort(t)
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$SLUICE_TEST_BINARY" --admin `+back+" --origin "+origin(t)+" --listen "+ln.Addr().String())
	cmd.Env = append(os.Environ(), "SLUICE_UNDER_TEST=1", "SLUICE_TEST_BINARY="+os.Args[0], "LISTEN_FDS=1", "LISTEN_FDNAMES=web")
	cmd.ExtraFiles = []*os.File{f}
	log := new(labtest.Buffer)
	cmd.Stderr = log
	must(t, cmd.Start())
	p := &process{t: t, cmd: cmd, front: ln.Addr().String(), back: back, log: log}
	p.until("ready", func() bool { status, _ := p.admin("GET", "/readyz"); return status == 200 })
	if got := p.get(); got != 200 {
		t.Errorf("%d", got)
	}
	p.stop(syscall.SIGTERM)
	elsewhere := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$SLUICE_TEST_BINARY" --admin `+back+" --origin "+origin(t)+" --listen 127.0.0.1:0")
	elsewhere.Env, elsewhere.ExtraFiles = cmd.Env, cmd.ExtraFiles
	if said, err := elsewhere.CombinedOutput(); err == nil || !strings.Contains(string(said), "a socket at "+ln.Addr().String()) || !strings.Contains(string(said), "listen is 127.0.0.1:0") {
		t.Errorf("%v: %s", err, said)
	}
}
