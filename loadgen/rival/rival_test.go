package rival

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// What nginx is told is the limit in whole requests, and never less than it: else sources within the limit would be refused for our arithmetic.
func TestNginxRate(t *testing.T) {
	f := func(limit uint32, window time.Duration, rate, burst string) {
		t.Helper()
		if r, b := nginxRate(limit, window), nginxBurst(limit); r != rate || b != burst {
			t.Errorf("%d in %v: %s %s, want %s %s", limit, window, r, b, rate, burst)
		}
	}
	f(20, time.Second, "20r/s", "burst=19")
	f(100, 50*time.Second, "2r/s", "burst=99")
	f(20, time.Minute, "20r/m", "burst=19")
	f(100, 7*time.Second, "858r/m", "burst=99") // 857.14
	f(1, 10*time.Minute, "1r/m", "")
	f(1, time.Second, "1r/s", "")
}

// Each configuration has the limit, the window, who is counted and where it goes.
func TestConfigurations(t *testing.T) {
	at := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	f := func(name, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w+"\n") {
				t.Errorf("%s has no %q:\n%s", name, w, text)
			}
		}
	}
	nginx := nginxConfig("/run/lab", at(1), at(9), 20, time.Second)
	f("nginx", nginx, "limit_req_zone $binary_remote_addr zone=sources:64m rate=20r/s;", "limit_req zone=sources burst=19 nodelay;", "limit_req_status 429;",
		"listen 127.0.0.1:1 backlog=4096;", "server 127.0.0.1:9;", "pid /run/lab/nginx.pid;", "proxy_set_header X-Forwarded-For $remote_addr;")
	f("nginx", nginxConfig("/run/lab", at(1), at(9), 1, time.Second), "limit_req zone=sources;")

	haproxy := haproxyConfig(1, "/run/1.sock", at(2), at(9), []netip.AddrPort{at(5), at(6)}, 20, 1500*time.Millisecond)
	f("haproxy", haproxy, "localpeer edge1", "peer edge0 127.0.0.1:5", "peer edge1 127.0.0.1:6", "bind 127.0.0.1:2 backlog 4096",
		"http-request track-sc0 src table sources", "http-request deny deny_status 429 if { sc_http_req_rate(0,sources) gt 20 }",
		"stick-table type ip size 1m expire 3000ms store http_req_rate(1500ms) peers pop", "server origin 127.0.0.1:9")

	f("ratelimit", ratelimitConfig("minute", 20), "- key: remote_address", "rate_limit: {unit: minute, requests_per_unit: 20}")
	f("its environment", strings.Join(ratelimitEnvironment("/run/lab", []string{"127.0.0.1:3", "127.0.0.1:4"}, at(7), at(8), at(10)), "\n")+"\n",
		"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=127.0.0.1:3,127.0.0.1:4", "GRPC_PORT=7", "PORT=8", "DEBUG_PORT=10", "RUNTIME_ROOT=/run/lab")
}

// What cannot be started says what is missing, and how to get it; nothing is started then, not the origin either.
func TestStartSaysWhatIsMissing(t *testing.T) {
	f := func(l Lab, want ...string) {
		t.Helper()
		l.Origin, l.Limit = []string{"/nowhere/origin"}, 20
		_, err := l.Start(t.Context())
		if err == nil {
			t.Fatalf("%s starts", l.Limiter)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want something with %q", l.Limiter, err, w)
			}
		}
	}
	f(Lab{Limiter: "envoy-ratelimit", Window: 10 * time.Second}, "window of 10s", "--window 1m")
	f(Lab{Limiter: "envoy-ratelimit", Window: time.Second, RateLimit: "/nowhere/ratelimit"}, "/nowhere/ratelimit", "make ratelimit")
	f(Lab{Limiter: "none"}, `"none"`, "nginx")
}
