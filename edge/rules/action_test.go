package rules_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

func TestCustomResponse(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules: [{name: r, limit: 1, response: {status: 420, content_type: text/plain, body: "calm down"}}]
`)
	e.Get("/")
	resp, body := e.Get("/")
	if resp.StatusCode != 420 || body != "calm down" || resp.Header.Get("Content-Type") != "text/plain" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	head, _ := e.Talk().Say("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
	if head.StatusCode != 420 || head.ContentLength != 9 {
		t.Errorf("HEAD: %d, length %d", head.StatusCode, head.ContentLength)
	}
}

// Retry-After is by chance up to so much later than the end of the block, and never before it; what is exact stays so.
func TestJitter(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules: [{name: r, limit: 1, window: 1m, mitigation_timeout: 1000s, response: {jitter: 10%}}]
`)
	e.Get("/")
	seen := make(map[int]bool)
	for range 40 {
		resp, body := e.Get("/")
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		var name string
		var least, t1 int
		if _, err := fmt.Sscanf(resp.Header.Get("RateLimit"), "%3q;r=%d;t=%d", &name, &least, &t1); err != nil || resp.StatusCode != 429 {
			t.Fatalf("%d %v: %v", resp.StatusCode, resp.Header, err)
		}
		if t1 < 900 || t1 > 1000 || wait < t1 || wait > t1+(t1+9)/10 {
			t.Errorf("Retry-After: %d of a wait of %d", wait, t1)
		}
		if want := fmt.Sprintf(`{"error":{"code":"rate_limited","rule":"r","limit":1,"window":60,"scope":"source","message":"Too many requests. Try again in %d seconds.","retry_after":%d}}`+"\n", wait, wait); body != want {
			t.Errorf("body %q, want %q", body, want)
		}
		seen[wait] = true
	}
	if len(seen) < 10 {
		t.Errorf("40 clients would come back in %d different seconds", len(seen))
	}
}

// A client under a limit of fixed windows is told when the next one begins.
func TestFixedWindowResetHeader(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 9, window: 24h, algorithm: fixed}]")
	day := func() int {
		return int(24*time.Hour-time.Duration(time.Now().UnixNano())%(24*time.Hour)) / int(time.Second)
	}
	for {
		before := day()
		resp, _ := e.Get("/")
		after := day()
		if after > before {
			continue // a day has begun meanwhile
		}
		var name string
		var left, t1 int
		if _, err := fmt.Sscanf(resp.Header.Get("RateLimit"), "%3q;r=%d;t=%d", &name, &left, &t1); err != nil || t1 < after || t1 > before+2 {
			t.Errorf("%v: %q, want t from %d to %d", err, resp.Header.Get("RateLimit"), after, before+2)
		}
		return
	}
}

// A client that is refused is sent elsewhere, where the rule says so, and served there.
func TestRedirect(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
rules:
  - {name: r, match: {path: /shop/*}, limit: 1, action: redirect, response: {location: "/busy?a=b"}}
  - {name: own, match: {path: /own}, limit: 1, action: redirect, response: {status: 307, location: "https://a.example/", content_type: text/plain, body: gone}}
`)
	c := e.Talk()
	say := func(method, path string, status int, location, body string) {
		t.Helper()
		resp, got := c.Say(method + " " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp.StatusCode != status || resp.Header.Get("Location") != location || got != body || resp.Close {
			t.Errorf("%s %s: %d %q %q, want %d %q %q", method, path, resp.StatusCode, resp.Header.Get("Location"), got, status, location, body)
		}
		if status != 200 && (resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-RateLimit-Remaining") != "0") {
			t.Errorf("%s %s: %v", method, path, resp.Header)
		}
	}
	say("GET", "/shop/1", 200, "", "hello")
	say("GET", "/shop/1", 302, "/busy?a=b", "")
	say("HEAD", "/shop/1", 302, "/busy?a=b", "")
	say("GET", "/busy?a=b", 200, "", "hello")
	say("GET", "/own", 200, "", "hello")
	say("POST", "/own", 307, "https://a.example/", "gone")
	if m := e.Rest(); m["sluice_answers_total{code=302,from=limit}"] != 2 || m["sluice_requests_total{rule=r,verdict=limited}"] != 1 || m["sluice_requests_total{rule=r,verdict=mitigated}"] != 1 {
		t.Errorf("%v", m)
	}
}

// A rule with action: close ends the connections of those it refuses, and not those of proxies, which others use as well.
func TestActionClose(t *testing.T) {
	const rule = "rules: [{name: r, limit: 1, action: close}]\n"
	for yaml, want := range map[string]bool{rule: true, rule + "source: {trust: [127.0.0.0/8]}\n": false} {
		c := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), yaml).Talk()
		var closes []bool
		for range 2 {
			resp, _ := c.Say("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
			closes = append(closes, resp.Close)
		}
		if !slices.Equal(closes, []bool{false, want}) {
			t.Errorf("%s: ends its connection: %v, want only after a refusal, %v", yaml, closes, want)
		}
	}
}

// A client gets the body that it would rather have, and the first if it takes none.
func TestBodiesByAccept(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules:
  - name: r
    limit: 1
    response: {bodies: [{content_type: text/html; charset=utf-8, body: "<p>no"}, {content_type: text/plain, body: "no"}]}
`)
	e.Get("/")
	for accept, want := range map[string]string{
		"":    "application/json",
		"*/*": "application/json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
		"application/json": "application/json",
		"text/plain":       "text/plain",
		"TEXT/PLAIN;q=0.5, text/html; Q=0.4, application/json;q=0": "text/plain",
		"text/*":                                             "text/html; charset=utf-8",
		"text/*, text/html;q=0.1":                            "text/plain",
		"text/html;q=0.900, text/plain":                      "text/plain",
		"image/png":                                          "application/json",
		"text/html;q=x, */*;q=0.1":                           "application/json",
		"text/html;q=0;q=1, */*;q=0.1":                       "application/json",
		",,;;, /, text/html;level=1;q=0.2":                   "text/html; charset=utf-8",
		"application/json;q=0.1\r\nAccept: text/plain;q=0.2": "text/plain",
	} {
		header := "Accept: " + accept + "\r\n"
		if accept == "" {
			header = ""
		}
		resp, body := e.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n" + header + "\r\n")
		bodies := map[string]string{"text/html; charset=utf-8": "<p>no", "text/plain": "no"}
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 429 || got != want || resp.Header.Get("Vary") != "Accept" || bodies[want] != "" && body != bodies[want] {
			t.Errorf("Accept: %s: %d %s %q, Vary: %s; want %s", accept, resp.StatusCode, got, body, resp.Header.Get("Vary"), want)
		}
	}
}
