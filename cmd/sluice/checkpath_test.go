//go:build system

package main

import (
	"bufio"
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
	"sync"
	"syscall"
	"testing"
	"time"
)

// checkedRules are what proxies ask about in these tests: a redirection, a body of the rule's own, and what is left for everything else.
const checkedRules = `
source: {trust: [127.0.0.1, 10.0.0.5]}
rules:
- {name: login, match: {hosts: [a.example], path: /login, methods: [POST]}, limit: 1, window: 1h}
- {name: shop, match: {path: "/shop/*"}, limit: 1, window: 1h, action: redirect, response: {location: "https://busy.example/?a=b"}}
- {name: all, limit: 1000, window: 1h}
`

// A visitor asks a proxy from an address of this machine.
type visitor struct {
	t      *testing.T
	client *http.Client
	proxy  string
}

func visit(t *testing.T, proxy, from string) *visitor {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{t, &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, proxy}
}

func (v *visitor) ask(method, target string, headers ...string) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequest(method, "http://"+v.proxy+target, nil)
	must(v.t, err)
	req.Host = "a.example"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := v.client.Do(req)
	must(v.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(v.t, err)
	return resp, string(body)
}

// startProxy starts a proxy by a configuration of deploy, with addresses of the test in place of its own, and returns where it listens.
func startProxy(t *testing.T, file, edge, origin, listen string, run func(config, dir string) *exec.Cmd) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	addr := freePort(t)
	_, port, _ := net.SplitHostPort(addr)
	with := strings.NewReplacer("127.0.0.1:8080", edge, "127.0.0.1:3000", strings.TrimPrefix(origin, "http://"), listen, strings.Replace(strings.Replace(listen, "80", port, 1), "listen ", "listen 127.0.0.1:", 1)).Replace(string(text))
	cmd, said := run(with, t.TempDir()), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs %s on the PATH: .ci/needs installs it: %v", cmd.Path, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("%s does not listen; it said:\n%s", cmd.Path, said)
		}
	}
}

func startNginx(t *testing.T, edge, origin string) string {
	return startProxy(t, "../../deploy/nginx/check.conf", edge, origin, "listen 80", func(config, dir string) *exec.Cmd {
		whole := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;\n%[2]s}\n", dir, config)
		file := filepath.Join(dir, "nginx.conf")
		must(t, os.WriteFile(file, []byte(whole), 0o600))
		path, err := exec.LookPath("nginx")
		if err != nil {
			path = "/usr/sbin/nginx" // which is on no user's PATH
		}
		return exec.Command(path, "-p", dir, "-e", "stderr", "-c", file)
	})
}

func startCaddy(t *testing.T, edge, origin string) string {
	return startProxy(t, "../../deploy/caddy/Caddyfile", edge, origin, ":80 {", func(config, dir string) *exec.Cmd {
		file := filepath.Join(dir, "Caddyfile")
		must(t, os.WriteFile(file, []byte("{\n\tadmin off\n}\n"+config), 0o600))
		cmd := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	})
}

// nginx and Caddy, each by its configuration in deploy, ask a real edge: who is refused gets what the proxy can pass on, and nobody is judged
// as somebody else, or for another request.
func TestProxiesThatAsk(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		start   func(t *testing.T, edge, origin string) string
		body    string // of a refusal
		reports bool   // an admitted client what is left
		alone   int    // the status while no edge answers
	}{
		{"nginx", startNginx, "429 Too Many Requests", true, 200},
		{"caddy", startCaddy, `{"error":{"code":"rate_limited","rule":"login"`, false, 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var targets []string
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				targets = append(targets, r.Method+" "+r.RequestURI)
				fmt.Fprint(w, "hello")
			}))
			t.Cleanup(origin.Close)
			edge := start(t, origin.URL, "--config", write(t, "check_path: /check\n"+checkedRules))
			proxy := test.start(t, edge.front, origin.URL)
			one, other := visit(t, proxy, "127.0.0.2"), visit(t, proxy, "127.0.0.3")

			resp, body := one.ask("POST", "/login?next=/")
			if resp.StatusCode != 200 || body != "hello" || test.reports != (resp.Header.Get("RateLimit") == `"login";r=0;t=3600`) {
				t.Errorf("the first: %d %q %v", resp.StatusCode, body, resp.Header)
			}
			for _, trick := range []string{"X-Original-URI: /", "X-Forwarded-Uri: /", "X-Forwarded-Method: GET", "X-Original-Method: GET", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: b.example"} {
				resp, body = one.ask("POST", "/x/../login", trick)
				if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"login";r=0;t=`) || !strings.Contains(body, test.body) {
					t.Errorf("refused, with %q: %d %v %s", trick, resp.StatusCode, resp.Header, body)
				}
			}
			if resp, _ := other.ask("POST", "/login"); resp.StatusCode != 200 {
				t.Errorf("another client: %d", resp.StatusCode)
			}
			if resp, _ := one.ask("GET", "/login"); resp.StatusCode != 200 {
				t.Errorf("another method: %d", resp.StatusCode)
			}
			one.ask("GET", "/shop/1")
			if resp, _ := one.ask("GET", "/shop/2"); resp.StatusCode != 302 || resp.Header.Get("Location") != "https://busy.example/?a=b" || resp.Header.Get("Retry-After") == "" {
				t.Errorf("action: redirect: %d %v", resp.StatusCode, resp.Header)
			}
			edge.stop(syscall.SIGTERM)
			if resp, _ := one.ask("GET", "/"); resp.StatusCode != test.alone {
				t.Errorf("without an edge: %d, want %d", resp.StatusCode, test.alone)
			}
			want := []string{"POST /login?next=/", "POST /login", "GET /login", "GET /shop/1"}
			if test.alone == 200 {
				want = append(want, "GET /")
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(targets, ", "); got != strings.Join(want, ", ") {
				t.Errorf("the origin got %s, want %v", got, want)
			}
		})
	}
}

// What Envoy (ext_authz over HTTP, with path_prefix and allowed_headers as in deploy/envoy/check.yaml) and Traefik (ForwardAuth) send, in the form that
// we know of them, not taken from their connections: the request is judged as the client's own, and a refusal has all that they pass on.
func TestRequestsOfProxiesThatAsk(t *testing.T) {
	t.Parallel()
	const envoy = "%s /check%s HTTP/1.1\r\nhost: a.example\r\ncontent-length: 0\r\nx-forwarded-for: 198.51.100.7,10.0.0.5\r\nuser-agent: curl/8.5.0\r\nx-envoy-internal: true\r\nx-envoy-expected-rq-timeout-ms: 250\r\n\r\n"
	const traefik = "GET /check HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Host: a.example\r\n" +
		"X-Forwarded-Method: %s\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Server: traefik-1\r\nX-Forwarded-Uri: %s\r\nX-Real-Ip: 198.51.100.7\r\nAccept-Encoding: gzip\r\n\r\n"
	for name, test := range map[string]struct{ path, form string }{"envoy": {"/check/*", envoy}, "traefik": {"/check", traefik}} {
		t.Run(name, func(t *testing.T) {
			edge := start(t, origin(t), "--config", write(t, "check_path: \""+test.path+"\"\n"+checkedRules))
			c, err := net.Dial("tcp", edge.front)
			must(t, err)
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			r := bufio.NewReader(c)
			ask := func(request string) (*http.Response, string) {
				t.Helper()
				if _, err := io.WriteString(c, request); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(r, nil)
				must(t, err)
				body, err := io.ReadAll(resp.Body)
				must(t, err)
				return resp, string(body)
			}
			if resp, body := ask(fmt.Sprintf(test.form, "POST", "/login?next=%2F")); resp.StatusCode != 200 || body != "" || resp.Header.Get("RateLimit") != `"login";r=0;t=3600` {
				t.Errorf("the first: %d %v %s", resp.StatusCode, resp.Header, body)
			}
			resp, body := ask(fmt.Sprintf(test.form, "POST", "//login"))
			if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"rule":"login"`) || resp.Close {
				t.Errorf("refused: %d %v %s", resp.StatusCode, resp.Header, body)
			}
			if resp, _ := ask(strings.ReplaceAll(fmt.Sprintf(test.form, "POST", "/login"), "198.51.100.7", "198.51.100.8")); resp.StatusCode != 200 {
				t.Errorf("another client: %d", resp.StatusCode)
			}
			ask(fmt.Sprintf(test.form, "GET", "/shop/1"))
			if resp, body := ask(fmt.Sprintf(test.form, "GET", "/shop/2")); resp.StatusCode != 302 || resp.Header.Get("Location") != "https://busy.example/?a=b" || body != "" {
				t.Errorf("action: redirect: %d %v %s", resp.StatusCode, resp.Header, body)
			}
			if name == "traefik" { // it passes on what a client sends of these
				if resp, _ := ask(strings.Replace(fmt.Sprintf(test.form, "POST", "/login"), "Accept:", "X-Original-Uri: /\r\nAccept:", 1)); resp.StatusCode != 400 {
					t.Errorf("told in two ways: %d", resp.StatusCode)
				}
			}
			if _, text := edge.admin("GET", "/v1/top"); !strings.Contains(text, `"source": "198.51.100.7"`) {
				t.Errorf("the client is not known: %s", text)
			}
		})
	}
}
