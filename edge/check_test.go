package edge_test

import (
	"strings"
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/modules/accesslog/accesslogtest"
)

const checkRules = `
rules:
- {name: login, match: {hosts: [a.example], path: /login, methods: [POST]}, limit: 1, window: 1h}
- {name: all, limit: 1000, window: 1h}
`

// Which request a check is taken for: the rule login, of which there is one, shows it.
func TestCheckedRequest(t *testing.T) {
	const asked = "X-Original-URI: /login?a=b\r\nX-Original-Method: POST\r\nX-Forwarded-Host: A.example:80\r\nX-Forwarded-For: 192.0.2.1\r\n"
	for _, test := range []struct {
		name, path, request string
		trust               bool
		status              int
		login               bool // counted under login
	}{
		{"nginx", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\n" + asked, true, 200, true},
		{"Traefik and Caddy", "/check", "GET /check HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Uri: /./login\r\nX-Forwarded-Method: POST\r\n", true, 200, true},
		{"Envoy", "/check/*", "POST /check//x/../login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n", true, 200, true},
		{"a path that leads out", "/check/*", "POST /check/../login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n", true, 200, true},
		{"a path in other letters", "/check", "GET //x/../%63heck?a HTTP/1.1\r\nHost: sluice\r\n" + asked, true, 200, true},
		{"an absolute target", "/check", "GET /check HTTP/1.1\r\nHost: a.example\r\nX-Original-URI: http://b/login\r\nX-Original-Method: POST\r\n", true, 200, true},
		{"another method", "/check", "GET /check HTTP/1.1\r\nHost: a.example\r\nX-Original-URI: /login\r\n", true, 200, false},
		{"it says nothing", "/check", "GET /check HTTP/1.1\r\nHost: a.example\r\n", true, 200, false},
		{"a stranger's word", "/check", "GET /check HTTP/1.1\r\nHost: a.example\r\n" + asked, false, 200, false},
		{"a stranger's path", "/check/*", "POST /check/login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n", false, 200, false},
		{"what a prefix does not ask for", "/check/*", "GET /check/x HTTP/1.1\r\nHost: sluice\r\n" + asked, true, 200, false},
		{"a body", "/check", "POST /check HTTP/1.1\r\nHost: sluice\r\nContent-Length: 3\r\n" + asked, true, 200, true},
		{"given twice alike", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Forwarded-Uri: /login?a=b\r\n" + asked, true, 200, true},
		{"given in two ways", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Forwarded-Uri: /\r\n" + asked, true, 400, false},
		{"two methods", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Forwarded-Method: GET\r\n" + asked, true, 400, false},
		{"two hosts", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Forwarded-Host: b\r\n" + asked, true, 400, false},
		{"no target", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: login\r\n", true, 400, false},
		{"an empty target", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI:\r\n", true, 400, false},
		{"a long path", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: /" + strings.Repeat("x", 8<<10) + "\r\n", true, 400, false},
		{"a long path that origins read in several ways", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: /;" + strings.Repeat("x", 1<<10) + "\r\n", true, 400, false},
		{"a path of any length that they read alike", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: /" + strings.Repeat("x", 1<<10) + "\r\n", true, 200, false},
		{"a fragment", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: /x?a=b#c\r\n", true, 400, false},
		{"two words", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-URI: /x?a=b c\r\n", true, 400, false},
		{"no method", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Original-Method: A B\r\n", true, 400, false},
		{"no host", "/check", "GET /check HTTP/1.1\r\nHost: sluice\r\nX-Forwarded-Host: a, b\r\n", true, 400, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			yaml := "check_path: " + test.path + "\n" + checkRules
			if test.trust {
				yaml += "source: {trust: [127.0.0.1]}\n"
			}
			e := edgetest.Start(t, o.URL(), yaml)
			body := ""
			if strings.Contains(test.request, "Content-Length: 3") {
				body = "abc"
			}
			c := e.Talk()
			for range 2 { // the connection stays open
				resp, text := c.Say(test.request + "\r\n" + body)
				want := test.status
				if m := e.Rest(); test.login && m["sluice_requests_total{rule=login,verdict=limited}"] == 1 {
					want = 429
				}
				if resp.StatusCode != want || resp.Close || want == 200 && (text != "" || resp.Header.Get("RateLimit") == "" ||
					resp.Header.Get("Cache-Control") != "no-store") || want == 429 && resp.Header.Get("Retry-After") == "" {
					t.Fatalf("%d %v %q, want %d", resp.StatusCode, resp.Header, text, want)
				}
			}
			m := e.Rest()
			counted := m["sluice_requests_total{rule=login,verdict=pass}"] == 1 && m["sluice_requests_total{rule=login,verdict=limited}"] == 1
			if counted != test.login {
				t.Errorf("counted under login: %t; %v", counted, m)
			}
			if got := o.Requests(); len(got) > 0 {
				t.Errorf("the origin got %q", got)
			}
		})
	}
}

// A check counts for the client that a trusted proxy names, and stands in the access log as the request that it is about;
// everything else is forwarded as ever, and lists hold.
func TestChecksOfClients(t *testing.T) {
	e, f, stop := accesslogtest.Start(t, "json", "check_path: /check\nsource: {trust: [127.0.0.1]}\ndeny: [198.51.100.1]\nallow: [198.51.100.2]\n"+checkRules)
	ask := func(client string) int {
		resp, _ := e.Get("/check", "X-Original-URI: /login", "X-Original-Method: POST", "X-Forwarded-Host: a.example", "X-Forwarded-For: "+client)
		return resp.StatusCode
	}
	for _, step := range []struct {
		client string
		want   int
	}{{"192.0.2.1", 200}, {"192.0.2.1", 429}, {"192.0.2.2", 200}, {"198.51.100.1", 403}, {"198.51.100.2", 200}, {"198.51.100.2", 200}} {
		if got := ask(step.client); got != step.want {
			t.Errorf("%s: %d, want %d", step.client, got, step.want)
		}
	}
	if resp, body := e.Get("/checks"); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("another path: %d %q", resp.StatusCode, body)
	}
	stop()
	first := `"source":"192.0.2.1","host":"a.example","method":"POST","path":"/login","status":200`
	if text := f.Text[0].String(); !strings.Contains(text, first) {
		t.Errorf("no %s in %s", first, text)
	}
}

// Rules that count by the origin's answer have none here: they count nothing, and hold nothing either.
func TestChecksHaveNoStatus(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "check_path: /check\nrules: [{name: r, limit: 2, window: 1h, count: {statuses: [200]}}]\n")
	for range 5 {
		if resp, _ := e.Get("/check"); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
	}
}

// An edge may do nothing but answer checks: then it needs no origin.
func TestChecksWithoutOrigin(t *testing.T) {
	c := edgetest.Parse(t, "check_path: /check\nrules: [{name: r, limit: 1, window: 1h}]\n")
	e := edgetest.StartConfig(t, c)
	for i, want := range []int{200, 429} {
		if resp, _ := e.Get("/check"); resp.StatusCode != want {
			t.Errorf("check %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	if resp, body := edgetest.StartConfig(t, c).Get("/"); resp.StatusCode != 421 {
		t.Errorf("what is no check: %d %s", resp.StatusCode, body)
	}
}

// Whether an answer has a body is a matter of the request that it answers, not of the one that is asked about: else what follows on
// the connection is not where the asker looks for it.
func TestAnswersToChecksAreFramedByTheAsker(t *testing.T) {
	e, f, stop := accesslogtest.Start(t, "json", "check_path: /check\nsource: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 1, window: 1h}]\n")
	e.Get("/check")
	c := e.Talk()
	for _, test := range []struct{ asks, about string }{{"GET", "HEAD"}, {"HEAD", "GET"}, {"HEAD", "HEAD"}, {"GET", "GET"}} {
		for _, header := range []string{"X-Forwarded-Method: ", "X-Original-Method: "} {
			resp, body := c.Say(test.asks + " /check HTTP/1.1\r\nHost: a\r\n" + header + test.about + "\r\n\r\n")
			if resp.StatusCode != 429 || resp.ContentLength <= 0 || len(body) > 0 != (test.asks == "GET") {
				t.Errorf("%s about %s: %d, length %d, %q", test.asks, test.about, resp.StatusCode, resp.ContentLength, body)
			}
		}
	}
	resp, _ := c.Say("HEAD /check HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: nowhere\r\n\r\n")
	if resp.StatusCode != 400 {
		t.Errorf("a malformed check: %d", resp.StatusCode)
	}
	if resp, body := c.Say("GET /check HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 429 || body == "" {
		t.Errorf("the next: %d %q", resp.StatusCode, body)
	}
	stop()
	if n := strings.Count(f.Text[0].String(), `"bytes":0,`); n != 6 { // the first, and those to HEAD
		t.Errorf("%d answers without a body in %s", n, f.Text[0].String())
	}
}
