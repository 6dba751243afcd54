package cors_test

import (
	"net/http"
	"slices"
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/modules/cors"
)

// A page of an origin that is named may read what the edge refuses it with, and its preflights are
// not counted; pages of others may not, and count.
func TestCORS(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartUsing(t, o.URL(), "cors: {origins: [\"https://app.example\", \"https://*.apps.example\"]}\n"+
		"deny: [192.0.2.66]\nsource: {trust: [127.0.0.1]}\n"+
		"rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h}, {name: asked, match: {path: /asked, methods: [OPTIONS]}, limit: 1, window: 1h}]\n", cors.Module())
	send := func(method, path, client string, lines ...string) (status int, header func(string) string) {
		t.Helper()
		c := e.Talk()
		defer c.Close()
		resp, _ := c.Say(method + " " + path + " HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: " + client + "\r\n" + edgetest.Lines(lines) + "\r\n")
		return resp.StatusCode, resp.Header.Get
	}
	want := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	const page, asks = "Origin: https://app.example", "Access-Control-Request-Method: PUT"
	for range 5 {
		status, header := send("OPTIONS", "/", "192.0.2.1", page, asks)
		want("a preflight goes to the origin", status, 200)
		want("what the edge says of an answer that is the origin's", header("Access-Control-Allow-Origin"), "")
	}
	for range 2 {
		status, _ := send("GET", "/", "192.0.2.1", page)
		want("a request within the limit", status, 200)
	}
	status, header := send("GET", "/", "192.0.2.1", page)
	want("a request over the limit", status, 429)
	want("who may read that", header("Access-Control-Allow-Origin"), "https://app.example")
	want("with cookies", header("Access-Control-Allow-Credentials"), "true")
	want("what else of it", header("Access-Control-Expose-Headers"), "Retry-After, RateLimit, RateLimit-Policy")
	want("for whom a cache may keep it", header("Vary"), "Origin")
	status, header = send("OPTIONS", "/", "192.0.2.1", page, asks, "Access-Control-Request-Headers: x-a,x-b")
	want("a preflight of who is blocked", status, 204)
	want("its methods", header("Access-Control-Allow-Methods"), "PUT")
	want("its headers", header("Access-Control-Allow-Headers"), "x-a,x-b")
	want("how long it holds", header("Access-Control-Max-Age"), "0")
	status, header = send("GET", "/", "192.0.2.1", "Origin: https://evil.example")
	want("a request over the limit, of another page", status, 429)
	want("who may read that", header("Access-Control-Allow-Origin"), "")
	status, _ = send("OPTIONS", "/", "192.0.2.1", "Origin: https://evil.example", asks)
	want("a preflight of who is blocked, of another page", status, 429)
	status, header = send("GET", "/", "192.0.2.66", "Origin: https://a.apps.example")
	want("a request of who is denied", status, 403)
	want("who may read that", header("Access-Control-Allow-Origin"), "https://a.apps.example")
	for _, odd := range []string{"https://.apps.example", "https://apps.example", "http://a.apps.example", "https://app.example.evil", "null", "https://APP.example"} {
		_, header := send("GET", "/", "192.0.2.66", "Origin: "+odd)
		want(odd+" may read", header("Access-Control-Allow-Origin"), "")
	}
	for i, status := range []int{200, 204} { // one that a rule names
		got, _ := send("OPTIONS", "/asked", "192.0.2.2", page, asks)
		want(string(rune('1'+i))+". preflight under a rule about OPTIONS", got, status)
	}
	for range 3 { // those of others count
		status, _ = send("OPTIONS", "/", "192.0.2.3", "Origin: https://evil.example", asks)
	}
	want("the third preflight of another page", status, 429)
}

// Preflights of who is blocked reach no origin, whichever rules there are beside the one that blocks,
// and a page may follow a rule's redirect.
func TestPreflightsOfBlockedClients(t *testing.T) {
	for _, rules := range []string{"{name: r, limit: 1, window: 1h}",
		"{name: r, match: {path: /*}, limit: 1, window: 1h}",
		"{name: r, limit: 1, window: 1h}, {name: other, match: {path: /other}, limit: 1}",
		"{name: r, limit: 1, window: 1h, action: redirect, response: {location: 'https://b.example/'}}",
	} {
		o := edgetest.StartRecorder(t, edgetest.Hello)
		e := edgetest.StartUsing(t, o.URL(), "cors: {origins: [\"https://app.example\"]}\nrules: ["+rules+"]\n", cors.Module())
		const page, asks = "Origin: https://app.example\r\n", "Access-Control-Request-Method: PUT\r\n"
		c := e.Talk()
		defer c.Close()
		for i, test := range []struct {
			method, more string
			want         []int
		}{{"GET", page, []int{200}}, {"OPTIONS", page + asks, []int{200}}, {"GET", page, []int{429, 302}},
			{"OPTIONS", page + asks, []int{204}}, {"GET", page, []int{429, 302}}} {
			resp, _ := c.Say(test.method + " / HTTP/1.1\r\nHost: example.com\r\n" + test.more + "\r\n")
			if !slices.Contains(test.want, resp.StatusCode) || resp.StatusCode > 200 &&
				resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
				t.Errorf("%s: request %d, %s: %d %v, want %v", rules, i, test.method, resp.StatusCode, resp.Header, test.want)
			}
		}
	}
}

// A proxy that asks for a verdict sends on what gets a success, so no refusal of a preflight becomes
// one: the client of it would reach the origin as often as it likes.
func TestPreflightsAtCheckPath(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartUsing(t, o.URL(), "cors: {origins: [\"https://app.example\"]}\nsource: {trust: [127.0.0.1]}\n"+
		"check_path: /check\ndeny: [192.0.2.66]\nrules: [{name: r, limit: 1, window: 1h, match: {not: {path: /b}}}, "+
		"{name: b, match: {path: /b}, limit: 1, window: 1h, action: redirect, response: {location: 'https://b.example/'}}]\n", cors.Module())
	check := func(method, path, client string) *http.Response {
		resp, _ := e.Get("/check", "X-Forwarded-For: "+client, "X-Original-Method: "+method, "X-Original-URI: "+path,
			"Origin: https://app.example", "Access-Control-Request-Method: PUT")
		return resp
	}
	for _, test := range []struct {
		method, path, client string
		want                 int
	}{{"OPTIONS", "/", "192.0.2.66", 403}, {"OPTIONS", "/", "192.0.2.1", 200}, {"GET", "/", "192.0.2.1", 200},
		{"GET", "/", "192.0.2.1", 429}, {"OPTIONS", "/", "192.0.2.1", 429},
		{"GET", "/b", "192.0.2.2", 200}, {"GET", "/b", "192.0.2.2", 302}, {"OPTIONS", "/b", "192.0.2.2", 302}} {
		resp := check(test.method, test.path, test.client)
		if resp.StatusCode != test.want || test.want >= 300 && resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
			t.Errorf("%+v: %d %v", test, resp.StatusCode, resp.Header)
		}
	}
}

// With "*" every page may read, without cookies.
func TestAllOrigins(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartUsing(t, o.URL(), "cors: {origins: [\"*\"], expose: []}\ndeny: [127.0.0.1]\n", cors.Module())
	resp, _ := e.Get("/", "Origin: https://a.example")
	if h := resp.Header; resp.StatusCode != 403 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Access-Control-Expose-Headers") != "" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	if resp, _ := e.Get("/"); resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", resp.Header)
	}
}
