package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

func TestRefusal(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), fmt.Sprintf(edgetest.OneRule, 2))
	c := e.Talk()
	for i := range 2 {
		resp, body := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp.StatusCode != 200 || body != "hello" {
			t.Fatalf("request %d: %d %q", i, resp.StatusCode, body)
		}
		want := map[string]string{
			"RateLimit-Policy":  `"r";q=2;w=60`,
			"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": strconv.Itoa(1 - i), "Retry-After": "",
		}
		for name, v := range want {
			if got := resp.Header.Get(name); got != v {
				t.Errorf("request %d: %s: %q, want %q", i, name, got, v)
			}
		}
		var left, wait int
		if n, _ := fmt.Sscanf(resp.Header.Get("RateLimit"), `"r";r=%d;t=%d`, &left, &wait); n != 2 || left != 1-i || wait < 40 || wait > 60 {
			t.Errorf("request %d: RateLimit: %s", i, resp.Header.Get("RateLimit"))
		}
		reset, _ := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Reset"), 10, 64)
		if left := time.Until(time.Unix(reset, 0)); left < 40*time.Second || left > 62*time.Second {
			t.Errorf("X-RateLimit-Reset is %v away, want about a minute", left)
		}
	}
	for i := range 3 { // on the same connection, which stays open
		resp, body := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 429 || wait < 40 || wait > 65 || resp.Header.Get("Cache-Control") != "no-store" ||
			resp.Header.Get("Content-Type") != "application/json" || resp.Close {
			t.Fatalf("refusal %d: %d %v", i, resp.StatusCode, resp.Header)
		}
		for name, want := range map[string]string{
			"RateLimit": fmt.Sprintf(`"r";r=0;t=%d`, wait), "RateLimit-Policy": `"r";q=2;w=60`, "X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0",
			"Cache-Control": "no-store",
		} {
			if got := resp.Header.Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("refusal %d: %s: %q, want %q once", i, name, got, want)
			}
		}
		want := fmt.Sprintf(`{"error":{"code":"rate_limited","rule":"r","limit":2,"window":60,"scope":"source","message":"Too many requests. Try again in %d seconds.","retry_after":%d}}`+"\n", wait, wait)
		if body != want {
			t.Errorf("body %q, want %q", body, want)
		}
	}
	if n := len(o.Requests()); n != 2 {
		t.Errorf("the origin saw %d requests, want 2", n)
	}
	m := e.Rest()
	for name, want := range map[string]float64{
		"sluice_received_total": 5, "sluice_answers_total{code=200,from=origin}": 2, "sluice_answers_total{code=429,from=limit}": 3,
		"sluice_requests_total{rule=r,verdict=pass}": 2, "sluice_requests_total{rule=r,verdict=limited}": 1,
		"sluice_requests_total{rule=r,verdict=mitigated}": 2, "sluice_mitigations_active{mode=enforce,rule=r}": 1,
		"sluice_mitigations_started_total{by=edge,mode=enforce,rule=r}": 1,
	} {
		if m[name] != want {
			t.Errorf("%s %v, want %v", name, m[name], want)
		}
	}
}

func TestVerdictHeader(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, func(int, string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSluice-Verdict: pass;at=1;until=0;rule=\"forged\"\r\n\r\n"
	}).URL(), fmt.Sprintf(edgetest.OneRule, 1))
	parse := func(resp *http.Response) map[string]string {
		all := resp.Header.Values("Sluice-Verdict")
		if len(all) != 1 {
			t.Fatalf("%d verdicts: %q", len(all), all)
		}
		parts := strings.Split(all[0], ";")
		m := map[string]string{"verdict": parts[0]}
		for _, p := range parts[1:] {
			k, v, _ := strings.Cut(p, "=")
			m[k] = v
		}
		return m
	}
	before := time.Now().UnixNano()
	var got []map[string]string
	for range 3 {
		resp, _ := e.Get("/")
		got = append(got, parse(resp))
	}
	for i, want := range []map[string]string{
		{"verdict": "pass", "e": "1", "until": "0", "rule": `"r"`},
		{"verdict": "limited", "e": "2", "rule": `"r"`},
		{"verdict": "mitigated", "rule": `"r"`},
	} {
		for k, v := range want {
			if got[i][k] != v {
				t.Errorf("answer %d: %s=%s, want %s", i, k, got[i][k], v)
			}
		}
		if at, _ := strconv.ParseInt(got[i]["at"], 10, 64); at < before || at > time.Now().UnixNano() {
			t.Errorf("answer %d: at=%s is not during the test", i, got[i]["at"])
		}
	}
	if _, asked := got[2]["e"]; asked {
		t.Error("a mitigated request has an estimate, but no counter was asked")
	}
	if got[1]["until"] != got[2]["until"] || got[1]["until"] == "0" {
		t.Errorf("until %s, then %s", got[1]["until"], got[2]["until"])
	}
}

// An origin's own limits give way to those of a rule, and stay where there is none; its verdict never comes through.
func TestOriginsOwnLimits(t *testing.T) {
	o := edgetest.StartRecorder(t, func(int, string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSluice-Verdict: forged\r\nX-RateLimit-Limit: 7\r\nratelimit: x\r\nX-RateLimit-Limit: 8\r\n\r\n"
	})
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, match: {path: /r}, limit: 9}]")
	for path, want := range map[string]string{"/r": `[9] ["r";r=8;t=60] []`, "/other": "[7 8] [x] []"} {
		resp, _ := e.Get(path)
		h := resp.Header
		if got := fmt.Sprint(h["X-Ratelimit-Limit"], h["Ratelimit"], h["Sluice-Verdict"]); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Requests may come before the answers to those before them: answers keep their order.
func TestPipelining(t *testing.T) {
	o := edgetest.StartRecorder(t, func(n int, _ string) string { return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", n) })
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 3}]")
	c := e.Talk()
	_, _ = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 5))
	for i, want := range []int{200, 200, 200, 429, 429} {
		resp, body := c.Hear("GET")
		if resp.StatusCode != want || want == 200 && body != strconv.Itoa(i) {
			t.Errorf("answer %d: %d %q", i, resp.StatusCode, body)
		}
	}
	if m := e.Rest(); m["sluice_received_total"] != 5 {
		t.Errorf("metrics: %v", m)
	}
}

func TestShadowAddsNoHeaders(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: s, limit: 1, mode: shadow}]")
	for range 4 {
		resp, _ := e.Get("/")
		if resp.StatusCode != 200 || resp.Header.Get("RateLimit") != "" || resp.Header.Get("X-Ratelimit-Limit") != "" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	if m := e.Rest(); m["sluice_requests_total{rule=s,verdict=shadow}"] != 3 {
		t.Errorf("%v", m)
	}
}

// Of the lists deny and allow the longer prefix is right, and deny at a tie.
func TestLists(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
deny: [198.51.100.0/24, "2001:db8::/32", 192.0.2.64/26, 192.0.2.9]
allow: [192.0.2.0/24, 192.0.2.9, 198.51.100.7]
source: {trust: [127.0.0.1]}
rules: [{name: r, limit: 1}]
`)
	for i, test := range []struct {
		source string
		want   int
	}{
		{"198.51.100.1", 403}, {"198.51.100.7", 200}, {"198.51.100.7", 200}, {"192.0.2.65", 403}, {"192.0.2.9", 403}, {"2001:db8::1", 403}, {"::ffff:198.51.100.1", 403},
		{"192.0.2.1", 200}, {"192.0.2.1", 200}, {"192.0.2.1", 200},
		{"203.0.113.1", 200}, {"203.0.113.1", 429},
	} {
		resp, _ := e.Get("/", "X-Forwarded-For: "+test.source)
		if resp.StatusCode != test.want {
			t.Errorf("request %d from %s: %d, want %d", i, test.source, resp.StatusCode, test.want)
		}
		if test.want == 200 && strings.HasPrefix(test.source, "192") && resp.Header.Get("RateLimit") != "" {
			t.Error("an allowed source gets limits in headers")
		}
	}
}

// Several rules, keys and matches in one file, each counted apart.
func TestRulesTogether(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
rules:
  - {name: login, match: {path: /login, methods: [POST]}, limit: 1}
  - {name: api, match: {path: "/api/*"}, key: "header:X-Key", limit: 2}
  - {name: shop, match: {hosts: ["*.shop.example"]}, key: [source, "cookie:sid"], limit: 1}
`)
	for i, test := range []struct {
		request string
		want    int
	}{
		{"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", 200},
		{"POST //login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", 429},
		{"POST /%6cogin HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", 429},
		{"POST /x/../login?y HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", 429},
		{"GET /login HTTP/1.1\r\nHost: a\r\n", 200},
		{"GET /api/1 HTTP/1.1\r\nHost: a\r\nX-Key: one\r\n", 200},
		{"GET /api/2 HTTP/1.1\r\nHost: a\r\nX-Key: one\r\n", 200},
		{"GET /api/3 HTTP/1.1\r\nHost: a\r\nx-key:one \r\n", 429},
		{"GET /api/3 HTTP/1.1\r\nHost: a\r\nX-Key: two\r\n", 200},
		{"GET /api/3 HTTP/1.1\r\nHost: a\r\n", 200},
		{"GET / HTTP/1.1\r\nHost: WWW.Shop.Example:80\r\nCookie: a=b; sid=1\r\n", 200},
		{"GET / HTTP/1.1\r\nHost: www.shop.example\r\nCookie: sid=1\r\n", 429},
		{"GET / HTTP/1.1\r\nHost: www.shop.example\r\nCookie: sid=2\r\n", 200},
		{"GET http://www.shop.example/ HTTP/1.1\r\nHost: www.shop.example\r\nCookie: sid=2\r\n", 429},
		{"GET / HTTP/1.1\r\nHost: shop.example\r\nCookie: sid=2\r\n", 200},
	} {
		resp, _ := e.Talk().Say(test.request + "\r\n")
		if resp.StatusCode != test.want {
			t.Errorf("request %d, %q: %d, want %d", i, test.request, resp.StatusCode, test.want)
		}
	}
	e.Rest()
}

// Many clients at once, of which some leave: every request is counted exactly once.
func TestBalance(t *testing.T) {
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			_, _ = w.Write(make([]byte, 8<<20))
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(204)
	})
	e := edgetest.Start(t, origin, fmt.Sprintf(edgetest.OneRule, 150))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			c := e.Talk()
			defer c.Close()
			for range 5 {
				if i%4 == 3 {
					_, _ = io.WriteString(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
					return // without waiting for it
				}
				c.Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
			}
		})
	}
	all.Wait()
	m := e.Rest()
	if m["sluice_received_total"] < 150 || m["sluice_received_total"] > 160 {
		t.Errorf("received %v", m["sluice_received_total"])
	}
	if got := m["sluice_answers_total{code=204,from=origin}"]; got != m["sluice_origin_requests_total{code=204,origin="+origin+"}"] {
		t.Errorf("%v answers of the origin passed on: %v", got, m)
	}
}
