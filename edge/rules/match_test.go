package rules_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice/edge/config"
	"sluice/edge/edgetest"
)

// Each of these rules admits one request an hour, so the second of a kind tells whether it is about it: through a whole edge, as it stands in a
// file and as the API shows it.
func TestMatch(t *testing.T) {
	const get = "GET /x HTTP/1.1\r\nHost: a.example\r\n"
	for _, test := range []struct {
		match, request string
		status         int // of the second such request
	}{
		{`{sources: [127.0.0.0/8]}`, get, 429},
		{`{sources: [192.0.2.0/24]}`, get, 200},
		{`{not: {sources: ["127.0.0.1"]}}`, get, 200},
		{`{headers: {X-Api-Key: "*"}}`, get + "x-api-key: 1\r\n", 429},
		{`{headers: {X-Api-Key: "*"}}`, get, 200},
		{`{headers: {X-Api-Key: "*"}}`, get + "X-Api-Key: 1\r\nConnection: x-api-key\r\n", 200},
		{`{headers: {X-Api-Key: "*"}}`, get + "X-Api-Key: 1\r\nX-Api-Key: 2\r\n", 400},
		{`{headers: {user-agent: "curl/*"}}`, get + "User-Agent: Curl/8\r\n", 429},
		{`{not: {headers: {user-agent: "curl/*"}}}`, get + "User-Agent: curl/8\r\n", 200},
		{`{query: {a: "1"}}`, "GET /x?b&%61=1 HTTP/1.1\r\nHost: a\r\n", 429},
		{`{query: {a: "1"}}`, "GET /x?b=1&a=1&a=2 HTTP/1.1\r\nHost: a\r\n", 400},
		{`{query: {a: "1"}, path: /y}`, "GET /x?b=1&a=1&a=2 HTTP/1.1\r\nHost: a\r\n", 200},
		{`{not: {query: {a: "*"}}}`, "GET /x?a=1 HTTP/1.1\r\nHost: a\r\n", 200},
		{`{cookies: {sid: ""}}`, get + "Cookie: a=b; sid=\r\n", 429},
		{`{not: {cookies: {sid: "*"}}}`, get, 429},
		{`{not: {cookies: {sid: "*"}}}`, get + "Cookie: sid=1\r\n", 200},
		{`{not: {path: "/x"}}`, get, 200},
		{`{not: {path: "/x"}}`, "GET /x%2fy HTTP/1.1\r\nHost: a\r\n", 429},
		{`{not: {methods: [GET]}}`, get, 200},
		{`{not: {hosts: ["*.example"]}}`, get, 200},
	} {
		o := edgetest.StartRecorder(t, edgetest.Hello)
		e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1, window: 1h, match: "+test.match+"}]")
		c := e.Talk()
		first := 200
		if test.status == 400 {
			first = 400
		}
		for i, want := range []int{first, test.status} {
			if resp, body := c.Say(test.request + "\r\n"); resp.StatusCode != want {
				t.Errorf("%s: %q: request %d: %d, want %d: %s", test.match, test.request, i, resp.StatusCode, want, body)
			}
		}
		shown, err := json.Marshal(e.Rules()[0].Match)
		edgetest.Must(t, err)
		again, err := config.Parse("again", []byte("rules: [{name: r, limit: 1, window: 1h, match: "+string(shown)+"}]"))
		if err != nil || config.RuleJSON(again.Rules[0]) != config.RuleJSON(edgetest.Parse(t, "rules: [{name: r, limit: 1, window: 1h, match: "+test.match+"}]").Rules[0]) {
			t.Errorf("%s is shown as %s: %v", test.match, shown, err)
		}
	}
}

// Two requests, one after the other, of which a rule admits one if they have the same key; 400 is what nobody can key. Sources are
// told apart by who says so here: the peer is trusted.
func TestKeys(t *testing.T) {
	get := func(target string, header ...string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.1\r\n" + edgetest.Lines(header) + "\r\n"
	}
	other := strings.NewReplacer("192.0.2.1", "192.0.2.2")
	for _, test := range []struct {
		key, first, second string
		status             int // of the second
	}{
		{"query:k", get("/?k=%61+b"), get("/x?a&%6b=a%20b"), 429},
		{"query:k", get("/?k=a"), get("/?k=b"), 200},
		{"query:k", get("/?k="), other.Replace(get("/?k")), 429},
		{"query:k", get("/?k="), get("/"), 200},
		{"query:k", get("/"), get("/?x"), 429},
		{"query:k", get("/"), other.Replace(get("/")), 200},
		{"query:k", get("/"), get("/?k=a&k=b"), 400},
		{"query:k", get("/"), get("/?k=a;x"), 400},
		{"query:k", get("/?k=a"), get("/?x;k=a"), 429},
		{"query:k", get("/?k=a"), get("/x;k=a"), 429},
		{"query:k", get("/?k=a"), get("/x;jsessionid=1/y?k=a"), 429},
		{"query:k", get("/"), get("/x;k=b?k=a"), 400},
		{"query:k", get("/"), get("/?x;y"), 429},
		{"header:X-K", get("/", "X-K:"), other.Replace(get("/", "x-k: ")), 429},
		{"header:X-K", get("/", "X-K:"), get("/"), 200},
		{"cookie:k", get("/", "Cookie: k="), get("/", "Cookie: l="), 200},
		{"host", get("/"), strings.Replace(get("/"), "a.example", "A.example:80", 1), 429},
		{"host", get("/"), strings.Replace(get("/"), "a.example", "b.example", 1), 200},
		{"path", get("/a/b?c"), other.Replace(get("/%61//b?d")), 429},
		{"path", get("/a/b"), get("/a/c"), 200},
		{"path", get("/a/b"), get("/a%2fb"), 400},
		{"'path:1'", get("/a/b"), get("/a/c"), 429},
		{"'path:1'", get("/a"), get("/a/"), 429},
		{"'path:1'", get("/a/b"), get("/a/b%2fc"), 429},
		{"'path:1'", get("/a/b"), get("/b/b"), 200},
		{"'path:2'", get("/a/b"), get("/a/c"), 200},
		{"global", get("/a"), other.Replace(get("/b")), 429},
		{"[source, 'path:1']", get("/a/b"), get("/a/c"), 429},
		{"[source, 'path:1']", get("/a/b"), other.Replace(get("/a/c")), 200},
		{"[source, 'path:1']", get("/a/b"), get("/b"), 200},
		{"[global, host]", get("/a"), other.Replace(get("/b")), 429},
	} {
		o := edgetest.StartRecorder(t, edgetest.Hello)
		e := edgetest.Start(t, o.URL(), "source: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 1, window: 1h, key: "+test.key+"}]")
		c := e.Talk()
		if resp, _ := c.Say(test.first); resp.StatusCode != 200 {
			t.Errorf("%s: %q: %d", test.key, test.first, resp.StatusCode)
		}
		if resp, _ := c.Say(test.second); resp.StatusCode != test.status {
			t.Errorf("%s: after %q %q: %d, want %d", test.key, test.first, test.second, resp.StatusCode, test.status)
		}
		if key := strings.Join(e.Rules()[0].Key, ", "); key != strings.ReplaceAll(strings.Trim(test.key, "[]'"), "'", "") {
			t.Errorf("%s is shown as %s", test.key, key)
		}
	}
}
