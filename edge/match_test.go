package edge

import (
	"encoding/json"
	"testing"

	"sluice/edge/config"
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
		o := startRecorder(t, hello)
		e := startEdge(t, o.url(), "rules: [{name: r, limit: 1, window: 1h, match: "+test.match+"}]")
		c := e.talk()
		first := 200
		if test.status == 400 {
			first = 400
		}
		for i, want := range []int{first, test.status} {
			if resp, body := c.say(test.request + "\r\n"); resp.StatusCode != want {
				t.Errorf("%s: %q: request %d: %d, want %d: %s", test.match, test.request, i, resp.StatusCode, want, body)
			}
		}
		shown, err := json.Marshal(e.Rules()[0].Match)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.Parse("again", []byte("rules: [{name: r, limit: 1, window: 1h, match: "+string(shown)+"}]"))
		if err != nil || config.RuleJSON(again.Rules[0]) != config.RuleJSON(parse(t, "rules: [{name: r, limit: 1, window: 1h, match: "+test.match+"}]").Rules[0]) {
			t.Errorf("%s is shown as %s: %v", test.match, shown, err)
		}
	}
}
