package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
	programs "sluice/loadgen/process"
)

// TestMain lets the test binary be sluice itself, so that signals and exit codes can be tested.
func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_UNDER_TEST") == "1" {
		main()
		return
	}
	labtest.Prepare()
	os.Exit(m.Run())
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// Bad input gets one sentence that names the thing and the remedy, and nothing is started.
func TestBadInput(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	origin := "http://" + busy.Addr().String()
	taken := busy.Addr().String()
	const anywhere = "{listen: ':0', admin: '127.0.0.1:0'"
	rules := write(t, anywhere+", rules: [{name: a, limit: 1}]}")
	wrong := write(t, "rules: [{name: a, limit: 0}]\nlisten: x\n")
	nodes := write(t, "pop:\n memcached:\n - ''\n - 10.0.0.1\n - LOCALHOST:11211\n - localhost:11211\n -\n")
	hosts := write(t, anywhere+", origins: [{servers: [\"http://10.0.0.1\"]}], rules: [{name: shop, match: {hosts: [shop.example]}, limit: 1}]}")
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 1, "sluice: no origin: give one with --origin URL or under origins in the configuration file\n"},
		{"--origin localhost:3000", 1, `sluice: --origin: "localhost:3000" is not the URL of an origin: want http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH` + "\n"},
		{"--origin http://no-such-host.invalid:1", 1, "sluice: origin http://no-such-host.invalid:1: the name no-such-host.invalid cannot be found: check its spelling or the name server\n"},
		{"--origin " + origin + " --listen " + taken, 1, "sluice: listen " + taken + ": the port is in use: stop what uses it or choose another with --listen\n"},
		{"--origin " + origin + " --listen 127.0.0.1:0 --admin " + taken, 1, "sluice: admin " + taken + ": the port is in use: stop what uses it or choose another with --admin\n"},
		{"--origin " + origin + " --listen 203.0.113.99:1", 1, "sluice: listen 203.0.113.99:1: one cannot listen there (listen tcp 203.0.113.99:1: bind: cannot assign requested address): give an address of this machine with --listen\n"},
		{"--origin " + origin + " --listen nowhere", 1, `sluice: --listen: "nowhere" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535` + "\n"},
		{"--origin " + origin + " --admin 0.0.0.0:0", 1, "sluice: admin is 0.0.0.0:0, which others than this machine may reach, and anyone who does may change rules and blocks: " +
			"give admin_token_file, listen on 127.0.0.1, or say admin_insecure: true\n"},
		{"--origin " + origin + " --limit 0", 1, "sluice: --limit 0 is out of range: want 1 to 1000000000\n"},
		{"--origin " + origin + " --limit 1000000001", 1, "sluice: --limit 1000000001 is out of range: want 1 to 1000000000\n"},
		{"--origin " + origin + " --window 1ms", 1, "sluice: --window 1ms is out of range: want 1s to 24h\n"},
		{"--origin " + origin + " --mitigation-timeout 25h", 1, "sluice: --mitigation-timeout 25h0m0s is out of range: want 0 to 24h\n"},
		{"--origin " + origin + " --estimate best", 1, `sluice: --estimate "best": want nearest or lower` + "\n"},
		{"--origin " + origin + " --pop a/b", 1, `sluice: --pop: "a/b" is not a name for a PoP: want 1 to 64 letters, digits, dots, dashes or underscores` + "\n"},
		{"--origin " + origin + " --memcached nowhere", 1, `sluice: --memcached: "nowhere" is not the address of a node: it has no port: want HOST:PORT, such as nowhere:11211` + "\n"},
		{"--origin " + origin + " --memcached a:1,,b:2", 1, "sluice: --memcached: a node without a name: want HOST:PORT\n"},
		{"--origin " + origin + " --memcached=", 1, "sluice: --memcached names no node: leave it out to count alone\n"},
		{"--origin " + origin + " --memcached LOCALHOST:11211,localhost:11211", 1, `sluice: --memcached: "LOCALHOST:11211" and "localhost:11211" are the same node: name it once` + "\n"},
		{"check " + nodes, 1, nodes + `:3:4: pop.memcached: a node without a name: want HOST:PORT` + "\n" +
			nodes + `:4:4: pop.memcached: "10.0.0.1" is not the address of a node: it has no port: want HOST:PORT, such as 10.0.0.1:11211` + "\n" +
			nodes + `:6:4: pop.memcached: "LOCALHOST:11211" and "localhost:11211" are the same node: name it once` + "\n" +
			nodes + ":7:4: pop.memcached: want a value, not nothing\n"},
		{"--config /nonexistent/x.yaml", 1, "sluice: /nonexistent/x.yaml: cannot be read: no such file or directory: give the path of a readable file\n"},
		{"--config " + wrong, 1, "sluice: " + wrong + ":1:26: limit: 0 is out of range: want 1 to 1000000000 (and 1 more: sluice check FILE shows all)\n"},
		{"--config " + rules + " --origin " + origin + " --limit 5", 1, "sluice: --limit: " + rules + " gives rules, so there is no default rule to set: remove the flag or the rules\n"},
		{"--frobnicate", 2, "sluice: unknown flag: --frobnicate (sluice --help tells more)\n"},
		{"--window 1d", 2, "sluice: --window 1d: want a time with a unit, such as 30s, 10m or 48h (sluice --help tells more)\n"},
		{"--limit many", 2, `sluice: --limit many: want a number (sluice --help tells more)` + "\n"},
		{"--log-level loud", 2, `sluice: --log-level "loud": want debug, info, warn or error (sluice --help tells more)` + "\n"},
		{"--log-format xml", 2, `sluice: --log-format "xml": want text or json (sluice --help tells more)` + "\n"},
		{"--origin x y", 2, `sluice: unexpected argument "y" (sluice --help tells more)` + "\n"},
		{"frobnicate", 2, `sluice: unknown command "frobnicate": sluice help lists them; flags alone serve (sluice --help tells more)` + "\n"},
		{"check", 2, "sluice: check wants one file: sluice check FILE (sluice --help tells more)\n"},
		{"check " + wrong, 1, wrong + ":1:26: limit: 0 is out of range: want 1 to 1000000000\n" +
			wrong + `:2:9: listen: "x" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535` + "\n"},
		{"check " + rules, 0, ""},
		{"-t " + rules, 0, ""},
		{"-t", 2, "sluice: check wants one file: sluice check FILE (sluice --help tells more)\n"},
		{"check " + hosts, 0, hosts + ": warning: rule shop is about the host shop.example, but http://10.0.0.1 answers for every host, so a request with another Host gets there without the rule: " +
			"name the hosts under origins.hosts, or leave match.hosts out\n"},
		{"version", 0, ""},
		{"--version", 0, ""},
		{"--version x", 2, "sluice: version wants --json or nothing (sluice --help tells more)\n"},
		{"--help", 0, ""},
	} {
		t.Run(strings.ReplaceAll(test.args, "/", "_"), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(strings.Fields(test.args), &stdout, &stderr)
			if code != test.code || stderr.String() != test.says {
				t.Errorf("exit %d\n got %swant %s", code, stderr.String(), test.says)
			}
			if (code == 0) != (stdout.Len() > 0) {
				t.Errorf("standard output: %q", stdout.String())
			}
		})
	}
}

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
	p := &process{t: t, front: freePort(t), back: freePort(t), log: new(labtest.Buffer)}
	if origin != "" { // else the configuration has one
		args = append([]string{"--origin", origin}, args...)
	}
	args = append([]string{"--listen", p.front, "--admin", p.back, "--grace", "5s"}, args...)
	p.cmd = exec.Command(os.Args[0], args...)
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

func origin(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(s.Close)
	return s.URL
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

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
