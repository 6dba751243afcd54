//go:build system

package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
	programs "sluice/loadgen/process"
)

// A process is sluice, run as a child.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	log         *labtest.Buffer
	front, back string
}

// start runs sluice before an origin, on ports of its own, and returns once it is ready.
func start(t *testing.T, origin string, args ...string) *process {
	t.Helper()
	return launch(t, os.Args[0], origin, args...)
}

// launch runs a program that is sluice, this one or another release of it.
func launch(t *testing.T, program, origin string, args ...string) *process {
	t.Helper()
	p := &process{t: t, front: freePort(t), back: freePort(t), log: new(labtest.Buffer)}
	if origin != "" { // else the configuration has one
		args = append([]string{"--origin", origin}, args...)
	}
	args = append([]string{"--listen", p.front, "--admin", p.back, "--grace", "5s"}, args...)
	p.cmd = exec.Command(program, args...)
	p.cmd.Stderr = p.log
	p.run()
	return p
}

// run starts the command and returns once it is ready.
func (p *process) run() {
	p.t.Helper()
	p.cmd.Env = append(os.Environ(), "SLUICE_UNDER_TEST=1")
	must(p.t, p.cmd.Start())
	p.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	p.until("ready", func() bool { status, _ := p.admin("GET", "/readyz"); return status == 200 })
}

// freePort is an address of this machine that nobody listens on, and nobody else will.
func freePort(t *testing.T) string {
	t.Helper()
	free, err := programs.FreeAddresses(1)
	must(t, err)
	return free[0].String()
}

// patience is how long what must come is waited for, on a machine that has much else to do.
const patience = time.Minute

// until tries again until ok, which is a matter of another process.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
			p.t.Fatalf("not %s after %v; it said:\n%s", what, patience, p.log)
		}
	}
}

func (p *process) admin(method, path string) (int, string) {
	return fetch(method, "http://"+p.back+path)
}

func (p *process) get() int { status, _ := fetch("GET", "http://"+p.front+"/"); return status }

func fetch(method, url string) (int, string) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// request sends one, with headers by name and value, to one of the process's listeners, and returns the answer and its body.
func (p *process) request(method, address, path, body string, header ...string) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
	must(p.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

// stop ends it by a signal. Connections that lie idle here are closed before: it would give them notice for a second.
func (p *process) stop(signal os.Signal) {
	p.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	must(p.t, p.cmd.Process.Signal(signal))
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v: %v; it said:\n%s", signal, err, p.log)
	}
}

func TestServeAndStop(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := start(t, origin(t), "--limit", "2", "--log-format", "json")
		for i, want := range []int{200, 200, 429, 429} {
			if got := p.get(); got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		p.until("counting two refusals", func() bool { // once they are written
			_, body := p.admin("GET", "/metrics")
			return strings.Contains(body, `sluice_answers_total{code="429",from="limit"} 2`)
		})
		p.stop(signal)
		if !strings.Contains(p.log.String(), `"msg":"stopped"`) {
			t.Errorf("it said %s", p.log)
		}
	}
}

// A rule that another Host gets round is said at the start and at a reload.
func TestWarnings(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: [{name: shop, match: {hosts: [shop.example]}, limit: 1}]")
	p := start(t, origin(t), "--config", file)
	must(t, os.WriteFile(file, []byte("rules: [{name: cart, match: {hosts: [cart.example]}, limit: 1}]"), 0o600))
	if status, body := p.admin("POST", "/v1/reload"); status != 200 {
		t.Errorf("reload: %d %s", status, body)
	}
	p.stop(syscall.SIGTERM)
	for _, want := range []string{"rule shop is about the host shop.example", "rule cart is about the host cart.example"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("no %q in %s", want, p.log)
		}
	}
}

// A request under way is finished within the grace time, and cut after it; either way the edge ends well.
func TestGrace(t *testing.T) {
	t.Parallel()
	f := func(grace string, released bool) {
		arrived, leave := make(chan struct{}), make(chan struct{})
		slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(arrived)
			<-leave
		}))
		defer slow.Close()
		p := start(t, slow.URL, "--grace", grace)
		status := make(chan int, 1)
		go func() { status <- p.get() }()
		<-arrived
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.until("not ready", func() bool { status, _ := p.admin("GET", "/readyz"); return status != 200 })
		if released {
			close(leave)
		} else {
			defer close(leave)
		}
		if got := <-status; (got == 200) != released {
			t.Errorf("grace %s: the request got %d", grace, got)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("grace %s: %v", grace, err)
		}
		if cut := strings.Contains(p.log.String(), "connections were cut at the end of the grace time"); cut == released {
			t.Errorf("grace %s: it said %s", grace, p.log)
		}
	}
	f("30s", true)
	f("10ms", false)
}

func TestReloads(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: [{name: a, limit: 1}]")
	p := start(t, origin(t), "--config", file)
	limit := func() string {
		resp, err := http.Get("http://" + p.front)
		must(t, err)
		resp.Body.Close()
		return resp.Header.Get("X-RateLimit-Limit")
	}
	becomes := func(how, want string) {
		t.Helper()
		p.until(how+": limit "+want, func() bool { return limit() == want })
	}
	put := func(text string) {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	becomes("start", "1")
	put("rules: [{name: a, limit: 2}]")
	becomes("changed", "2")
	next := file + ".next"
	must(t, os.WriteFile(next, []byte("rules: [{name: a, limit: 3}]"), 0o600))
	must(t, os.Rename(next, file))
	becomes("replaced", "3")

	put("rules: [{name: a, limit: 0}]")
	status, body := p.admin("POST", "/v1/reload")
	if status != 400 || !strings.Contains(body, file+":1:26: limit: 0 is out of range") {
		t.Errorf("reload of a bad file: %d %s", status, body)
	}
	if got := limit(); got != "3" {
		t.Errorf("after a bad file: limit %s", got)
	}
	must(t, os.Remove(file))
	if status, _ := p.admin("POST", "/v1/reload"); status != 400 {
		t.Errorf("reload without a file: %d", status)
	}
	if got := limit(); got != "3" {
		t.Errorf("without a file: limit %s", got)
	}
	put("rules: [{name: a, limit: 4}]")
	must(t, p.cmd.Process.Signal(syscall.SIGHUP))
	becomes("SIGHUP", "4")
	p.stop(syscall.SIGTERM)
	if !strings.Contains(p.log.String(), "the old one stays in force") {
		t.Errorf("it said %s", p.log)
	}
}

// An origin that is not there yet is a warning: requests get 502 until it is.
func TestOriginMayComeLater(t *testing.T) {
	t.Parallel()
	nowhere := freePort(t)
	p := start(t, "http://"+nowhere)
	if got := p.get(); got != 502 {
		t.Errorf("%d, want 502", got)
	}
	ln, err := net.Listen("tcp", nowhere)
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})}
	go func() { _ = s.Serve(ln) }()
	defer s.Close()
	if got := p.get(); got != 200 {
		t.Errorf("%d, want 200", got)
	}
	p.stop(syscall.SIGTERM)
	if !strings.Contains(p.log.String(), "http://"+nowhere+" cannot be reached: requests get 502 until it is there") {
		t.Errorf("it said %s", p.log)
	}
}

// Rules changed over the API are in force at once, and an impossible one changes nothing. The file is never written.
func TestRulesOverTheAPI(t *testing.T) {
	t.Parallel()
	const text = "# mine\nrules:\n  - name: a # first\n    limit: 1\n  - name: b\n    limit: 9\n"
	file := write(t, text)
	p := start(t, origin(t), "--config", file)
	put := func(method, path, body string) (int, string) {
		resp, answer := p.request(method, p.back, path, body)
		return resp.StatusCode, answer
	}
	if status, body := put("PUT", "/v1/rules/b", `{"limit":0}`); status != 400 || !strings.Contains(body, "limit: 0 is out of range") {
		t.Errorf("an impossible rule: %d %s", status, body)
	}
	_, was := p.admin("GET", "/v1/rules/b")
	if status, body := put("PUT", "/v1/rules/b", strings.Replace(was, `"limit": 9`, `"limit": 2`, 1)); status != 200 || !strings.Contains(body, `"limit": 2`) {
		t.Errorf("what GET gave: %d %s", status, body)
	}
	if _, body := p.admin("GET", "/v1/config"); strings.Count(body, `"origin": "file"`) != 1 || strings.Count(body, `"origin": "overlay"`) != 1 {
		t.Errorf("%s", body)
	}
	if _, body := p.admin("GET", "/v1/pop"); strings.Count(body, `"config_hash": `) != 1 || !strings.Contains(body, p.front) {
		t.Errorf("an edge that counts alone is the PoP: %s", body)
	}
	if status, body := put("DELETE", "/v1/rules/a", ""); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
	if status, _ := put("DELETE", "/v1/rules/a", ""); status != 404 {
		t.Errorf("deleted again: %d", status)
	}
	for i, want := range []int{200, 200, 429} {
		if got := p.get(); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if _, body := p.admin("GET", "/v1/top?by=refused"); !strings.Contains(body, `"source": "127.0.0.1"`) || !strings.Contains(body, `"count": 1`) {
		t.Errorf("top: %s", body)
	}
	p.stop(syscall.SIGTERM)
	if got, _ := os.ReadFile(file); string(got) != text {
		t.Errorf("the file holds %s, want %s", got, text)
	}
}
