package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// What one client can do to be counted as many, or not at all: thirty requests, each written otherwise, that an origin takes for the
// same, under a rule that admits three. What is refused as malformed is no way round it either.
func TestLimitsCannotBeBypassed(t *testing.T) {
	const key, cookie, credentials = "key: header:x-api-key", "key: cookie:sid", "key: header:authorization"
	get := func(format string) func(int) string {
		return func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\n" + strings.ReplaceAll(format, "NNN", fmt.Sprint(n)) + "\r\n\r\n"
		}
	}
	target := func(format string) func(int) string {
		return func(n int) string {
			return "GET " + strings.ReplaceAll(format, "NNN", fmt.Sprint(n)) + " HTTP/1.1\r\nHost: a\r\n\r\n"
		}
	}
	oneOf := func(spellings ...string) func(int) string {
		return func(n int) string { return "GET / HTTP/1.1\r\nHost: a\r\n" + spellings[n%len(spellings)] + "\r\n\r\n" }
	}
	spaces := func(before, after string) func(int) string {
		return func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\n" + before + strings.Repeat(" ", n+1) + after + "\r\n\r\n"
		}
	}
	letters := func(before, word, after string) func(int) string { // word in small letters and capitals
		return func(n int) string {
			b := []byte(word)
			for i := range b {
				if n>>i&1 == 1 {
					b[i] ^= 0x20
				}
			}
			return "GET / HTTP/1.1\r\nHost: a\r\n" + before + string(b) + after + "\r\n\r\n"
		}
	}
	octal := func(n int) string { // five letters, each plain or as Python reads it in quotes
		value := ""
		for i, c := range []byte("abcde") {
			if n>>i&1 == 1 {
				value += fmt.Sprintf(`\%03o`, c)
			} else {
				value += string(c)
			}
		}
		return "GET / HTTP/1.1\r\nHost: a\r\nCookie: sid=\"" + value + "\"\r\n\r\n"
	}
	percent := func(n int) string { // as octal, but as PHP, Rack and Express read it
		value := ""
		for i, c := range []byte("abcde") {
			if n>>i&1 == 1 {
				value += fmt.Sprintf("%%%02x", c)
			} else {
				value += string(c)
			}
		}
		return "GET / HTTP/1.1\r\nHost: a\r\nCookie: sid=" + value + "\r\n\r\n"
	}
	for _, test := range []struct {
		name, rule string
		request    func(n int) string
		want       int // status of the fourth and all that follow
	}{
		{"a header that Connection names", key, get("Connection: x-api-key\r\nX-Api-Key: NNN"), 429},
		{"a header of which untrusted peers may not speak", "key: header:x-forwarded-user", get("X-Forwarded-User: NNN"), 429},
		{"a header that is written anew", "key: header:x-forwarded-for", get("X-Forwarded-For: 192.0.2.NNN"), 429},
		{"a header with underscores", "key: header:x_real_ip", get("X_Real_IP: NNN"), 429},
		{"two lines of one name", key, get("X-Api-Key: good\r\nX-Api-Key: NNN"), 400},
		{"two lines alike and one", key, oneOf("X-Api-Key: 1\r\nX-Api-Key: 1", "X-Api-Key: 1"), 429},
		{"case of a scheme", credentials, letters("Authorization: ", "bearer", " X"), 429},
		{"spaces after a scheme", credentials, spaces("Authorization: Bearer", "X"), 429},
		{"spaces and case of Basic", credentials, oneOf("Authorization: Basic YTpi", "Authorization: basic  YTpi", "Authorization: BASIC\tYTpi"), 429},
		{"other bytes in Basic", credentials, spaces("Authorization: Basic YT", "pi"), 400},
		{"a tail of Basic", credentials, oneOf("Authorization: Basic YTpiYh==", "Authorization: Basic YTpiYg", "Authorization: Basic YTpi!Yg=="), 400},
		{"white space of Latin-1 behind a token", credentials, func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer X" + strings.Repeat("\xa0", n+1) + "\r\n\r\n"
		}, 400},
		{"and behind a key", key, func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: X" + strings.Repeat("\xa0", n+1) + "\r\n\r\n"
		}, 400},
		{"a second word", credentials, get("Authorization: Bearer X xNNN"), 400},
		{"any scheme", credentials, get("Authorization: sNNN X"), 429},
		{"parameters beside a token", credentials, get(`Authorization: Token token="X", nonce="NNN"`), 429},
		{"parameters that tell nobody", credentials, get(`Authorization: Digest a="X", nonce="NNN"`), 429},
		{"spare bits of a signature", credentials, func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer eyJ.eyJ.c" + string("ABCDEFGHIJKLMNOP"[n%16]) + "\r\n\r\n"
		}, 429},
		{"a condition, with white space of Latin-1", "match: {headers: {x-api-key: X}}", get("X-Api-Key: X\xa0"), 400},
		{"white space at the end of a parameter", "key: query:key", func(n int) string {
			return "GET /?key=X" + strings.Repeat([]string{"+", "%20", "%C2%A0", "%0a"}[n%4], n) + " HTTP/1.1\r\nHost: a\r\n\r\n"
		}, 429},
		{"Host as a key", "key: header:host", func(n int) string {
			return fmt.Sprintf("GET / HTTP/1.1\r\nHost: a:%d\r\n\r\n", 1+n)
		}, 429},
		{"octal cookies", cookie, octal, 400},
		{"percent cookies", cookie, percent, 429},
		{"quotes and plusses of cookies", cookie, oneOf("Cookie: sid=a%20b", `Cookie: sid="a+b"`, "Cookie: sid=a+b", "Cookie: a=b; sid = a%2Bb"), 429},
		{"a quote that never ends", cookie, get(`Cookie: sid="aNNN`), 400},
		{"case of a cookie's name", cookie, letters("Cookie: ", "sid", "=1"), 429},
		{"a cookie several times", cookie, get("Cookie: sid=good; sid=NNN"), 400},
		{"a cookie in several lines", cookie, get("Cookie: sid=good\r\nCookie: sid=NNN"), 400},
		{"a cookie that Connection names", cookie, get("Connection: Cookie\r\nCookie: sid=NNN"), 429},

		{"white space of Latin-1 before a cookie", cookie, get("Cookie: \xa0sid=good; sid=NNN"), 400},
		{"commas between cookies", cookie, get("Cookie: $Version=1;x=y,sid=good; sid=NNN"), 400},
		{"spaces between cookies", cookie, get("Cookie: sid=NNN; x=y sid=good"), 400},
		{"JSON in a cookie", cookie, func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nCookie: sid=j:" + strings.Repeat("%20", n) + "%22good%22\r\n\r\n"
		}, 400},
		{"letters within the signature of a session", "key: cookie:session", func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nCookie: session=eyJ1IjoxfQ.aSQ1XQ.c2lnbmF0dXJl" + strings.Repeat("!", 4*n+4) + "\r\n\r\n"
		}, 400},
		{"equals signs behind a token in a header", key, func(n int) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: eyJ1IjoxfQ.aSQ1XQ.c2lnbmF0dXJl" + strings.Repeat("=", n) + "\r\n\r\n"
		}, 429},
		{"a character set with shifts", "key: query:key", func(n int) string {
			return "GET /?key=" + strings.Repeat("~{~}", n) + "X HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain; charset=hz\r\n\r\n"
		}, 400},
		{"a condition in UTF-7", "match: {query: {q: login}}", func(int) string {
			return "GET /?q=+AGw-ogin HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain; charset=utf-7\r\n\r\n"
		}, 400},
		{"dots in a header's name", "match: {headers: {x-api-key: X}}", get("X.Api.Key: X"), 429},
		{"brackets around a parameter", "match: {query: {q: login}}", target("/?[q]=login&NNN"), 429},
		{"encoded brackets", "match: {query: {q: login}}", target("/?%5Bq%5D=login&NNN"), 429},
		{"a bracket behind a parameter", "key: query:key", func(n int) string {
			return "GET /?" + strings.Repeat("[", n) + "key" + strings.Repeat("]", n) + "=X HTTP/1.1\r\nHost: a\r\n\r\n"
		}, 429},
		{"a query after a semicolon", "match: {path: /c, query: {q: login}}", target("/c;q=login&NNN"), 429},
		{"a path that ends at a semicolon", "match: {path: /login}", target("/login;NNN/x"), 429},

		{"encoded slashes", "match: {path: /api/*}", target("/api/search%2f..%2f..%2fzNNN"), 400},
		{"encoded slashes, and not the dots", "match: {path: /api/*}", target("/zNNN%2fx/../../api/x"), 400},
		{"dots that the origin keeps", "match: {path: /api/*}", target("/api/x/../../zNNN"), 429},
		{"dots that the origin keeps, encoded", "match: {path: /api/*}", target("/api/%2e%2e/zNNN"), 429},
		{"a project with a slash in its name", `match: {path: "~^/projects/[^/]+/issues$"}`, target("/projects/group%2fproject/issues?NNN"), 429},
		{"the same, as most read it", "match: {path: /projects/group/*}", target("/projects/group%2fproject/issues?NNN"), 429},
		{"backslashes", "match: {path: /api/*}", target(`/api\x\..\..\zNNN`), 400},
		{"a backslash", "match: {path: /api/x}", target(`/api\x?NNN`), 429},
		{"parameters", "match: {path: /api/x}", target("/api;NNN/x"), 429},
		{"parameters at the end", "match: {path: /api/x}", target("/api/x;NNN"), 429},
		{"nothing but parameters", "match: {path: /api/x}", target("/;NNN/api/x"), 429},
		{"parameters of dots", "match: {path: /zzz}", target("/api/..;NNN/zzz"), 400},
		{"parameters with a slash", "match: {path: /api/x}", target("/api;NNN%2fy/x"), 429},
		{"a host in the path", "match: {path: /api/x}", target("//hNNN/api/x"), 429},
		{"an empty segment, and back over it", "match: {path: /api/x}", target("/api//../x?NNN"), 400},
		{"a line feed", "match: {path: /api/x}", target("/api/x%0a?NNN"), 400},
		{"overlong UTF-8", "match: {path: /api/x}", target("/api%c0%afx?NNN"), 400},
		{"the encoding of IIS", "match: {path: /api/x}", target("/api%u002fx?NNN"), 400},

		{"HEAD for GET", "match: {methods: [GET]}", func(int) string { return "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" }, 429},
		{"case, port and dot of a host", "match: {hosts: [shop.example]}", func(n int) string {
			return "GET / HTTP/1.1\r\nHost: " + []string{"shop.example", "SHOP.example.", "shop.example:8080", "shop.example.:1"}[n%4] + "\r\n\r\n"
		}, 429},
		{"no host, and the origin's own name", "match: {hosts: [127.0.0.1]}", func(int) string { return "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" }, 429},
		{"no Host but one in the target", "match: {hosts: [a]}", func(int) string { return "GET http://A:80/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" }, 429},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 3, window: 1h, mitigation_timeout: 1h, "+test.rule+"}]")
			answers := make(map[int]int)
			var c *edgetest.Talk
			for n := range 30 {
				if c == nil {
					c = e.Talk()
				}
				resp, _ := c.Say(test.request(n))
				if answers[resp.StatusCode]++; resp.Close {
					c = nil
				}
			}
			admitted := 3
			if test.want == 400 {
				admitted = min(3, answers[200]) // what the first spellings of several are admitted for
			}
			if answers[200] > 3 || answers[200] != admitted || answers[200]+answers[400]+answers[429] != 30 || answers[test.want] < 20 {
				t.Errorf("answers %v, want three of 200 and else %d", answers, test.want)
			}
			if got := o.Requests(); len(got) != answers[200] {
				t.Errorf("the origin got %d requests, such as %q", len(got), got[0])
			}
		})
	}
}

// Who is refused for how something is written that a rule looks at is told what it was; what no rule in force looks at is passed on as it is.
func TestRefusalsNameTheMalformedPart(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
plans: {key: "header:x-plan", default: free}
rules:
  - {name: a, limit: 1000, match: {path: /a}, key: header:authorization}
  - {name: b, limit: 1000, match: {path: /b}, key: "header:x-api.key"}
  - {name: c, limit: 1000, match: {path: /c}, key: cookie:sid}
  - {name: d, limit: 1000, match: {path: /d, query: {q: login}}}
  - {name: e, limit: 1000, match: {path: "/e*"}, key: path}
  - {name: f, limit: 1000, match: {path: /f}, key: header:x-plan, plans: {pro: {limit: 2000}}}
`)
	for _, test := range []struct{ target, line, code, says string }{
		{"/a", "Authorization: Bearer a b", "bad_authorization", "The header authorization is"},
		{"/b", "X-Api.Key: \xa0", "bad_x_api_key", "The header x-api.key is"},
		{"/c", "Cookie: sid=a,b", "bad_cookie", "The cookie sid is"},
		{"/d?q=%ff", "X: y", "bad_query", "The parameter q is"},
		{"/e%2fx", "X: y", "bad_path", "The path is"},
		{"/f", "X-Plan: \xff", "bad_x_plan", "The header x-plan is"},
		{"/z?q=%ff", "Authorization: Bearer a b", "", ""},
		{"/z", "Cookie: sid=a,b, sid=\xa0", "", ""},
	} {
		resp, body := e.Talk().Say("GET " + test.target + " HTTP/1.1\r\nHost: a\r\n" + test.line + "\r\n\r\n")
		if test.code == "" {
			if resp.StatusCode != 200 {
				t.Errorf("%s with %q: %d %s", test.target, test.line, resp.StatusCode, body)
			}
			continue
		}
		if resp.StatusCode != 400 || !strings.Contains(body, `"code":"`+test.code+`"`) || !strings.Contains(body, test.says) {
			t.Errorf("%s with %q: %d %s, want %s", test.target, test.line, resp.StatusCode, body, test.code)
		}
	}
	if got := o.Requests(); len(got) != 2 || !strings.Contains(got[1], "sid=a,b, sid=\xa0") {
		t.Errorf("the origin got %q", got)
	}
}

// What is one header for the rules is one for the origin, and what is none for the rules does not reach it.
func TestOriginGetsWhatRulesSee(t *testing.T) {
	const override = "X-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\nX-HTTP-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\nx-method-override: DELETE\r\n" +
		"X-Original-Method: DELETE\r\nX-Original-Host: b\r\nX-HTTP-Host-Override: b\r\nX_Original_URL: /admin\r\n" +
		"SCRIPT_NAME: /admin\r\nPATH_INFO: /admin\r\nX-Script-Name: /admin\r\nX.Original+URL: /admin\r\n"
	for _, test := range []struct{ name, yaml, request, want, never string }{
		{"nominated", "", "GET / HTTP/1.1\r\nHost: a\r\nConnection: cookie, x-api-key\r\nCookie: a=b\r\nX-Api-Key: 1\r\nX-Other: 1\r\n\r\n", "X-Other: 1\r\n", "cookie|x-api-key"},
		{"what must not be nominated", "", "POST / HTTP/1.1\r\nHost: a\r\nConnection: host, content-length\r\nContent-Length: 3\r\n\r\nabc", "Host: a\r\n|Content-Length: 3\r\n", "cookie"},
		{"a trusted proxy's word", "source: {trust: [127.0.0.1]}", "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-forwarded-for, x-forwarded-proto, x-real-ip, forwarded, via, x-original-url\r\n" +
			"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\nVia: 1.1 p\r\nX-Original-URL: /x\r\n\r\n",
			"X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n|X-Forwarded-Proto: https\r\n|X-Real-IP: 192.0.2.1\r\n|Forwarded: for=192.0.2.1\r\n|Via: 1.1 p, 1.1 sluice\r\n|X-Original-URL: /x\r\n", "cookie"},
		{"another target, method or host", "", "GET / HTTP/1.1\r\nHost: a\r\n" + override + "\r\n", "GET / HTTP/1.1\r\n", "original|rewrite|override|x-http|script|path_info"},
		{"another target, by a trusted proxy", "source: {trust: [127.0.0.1]}", "GET / HTTP/1.1\r\nHost: a\r\n" + override + "\r\n",
			"X-Original-URL: /admin\r\n|X-HTTP-Method-Override: DELETE\r\n|SCRIPT_NAME: /admin\r\n", "x_original|x.original"},
		{"names that are like those", "", "GET / HTTP/1.1\r\nHost: a\r\nX-Origin: 1\r\nX-Rewritten: 1\r\nScript: 1\r\nX.Y: 1\r\n\r\n", "X-Origin: 1\r\n|X-Rewritten: 1\r\n|Script: 1\r\n|X.Y: 1\r\n", "cookie"},
		{"who asks, in names that lighttpd takes for these", "", "GET / HTTP/1.1\r\nHost: a\r\nX.Forwarded.For: 192.0.2.1\r\nX-Real!IP: 192.0.2.1\r\n\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "192.0.2.1"},

		{"the usual port", "", "GET http://a:80/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x HTTP/1.1\r\nHost: a:80\r\n", "cookie"},
		{"the usual port of the other", "", "GET http://a/x HTTP/1.1\r\nHost: a:80\r\n\r\n", "GET /x HTTP/1.1\r\nHost: a\r\n", "cookie"},
		{"the usual port of https", "", "GET HTTPS://a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a:443\r\n", "cookie"},
		{"case and a dot", "", "GET http://A./ HTTP/1.1\r\nHost: a:\r\n\r\n", "GET / HTTP/1.1\r\nHost: A.\r\n", "cookie"},
		{"another port", "", "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
		{"a port that is usual elsewhere", "", "GET http://a:443/ HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
		{"another host", "", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
		{"an authority that is none", "", "GET http://a:x/ HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
		{"an address with a port", "", "GET http://[2001:DB8::1]:80/ HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", "Host: [2001:DB8::1]:80\r\n", "cookie"},
		{"HTTP/1.0 with its host in the target", "", "GET http://b/ HTTP/1.0\r\n\r\n", "Host: b\r\n|X-Forwarded-Host: b\r\n", "cookie"},

		{"PROXY UNKNOWN", "source: {trust: [127.0.0.1], proxy_protocol: true}", "PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n\r\n",
			"X-Forwarded-For: 127.0.0.1\r\n", "192.0.2.1|x-real-ip"},
		{"PROXY LOCAL", "source: {trust: [127.0.0.1], proxy_protocol: true}", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
			"X-Forwarded-For: 127.0.0.1\r\n", "192.0.2.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			resp, _ := edgetest.Start(t, o.URL(), test.yaml).Talk().Say(test.request)
			got := strings.Join(o.Requests(), "|")
			if test.want == "" {
				if resp.StatusCode != 400 || got != "" {
					t.Errorf("answered %d, and the origin got %q", resp.StatusCode, got)
				}
				return
			}
			for _, want := range strings.Split(test.want, "|") {
				if resp.StatusCode != 200 || !strings.Contains(got, want) {
					t.Errorf("answered %d, and the origin got %q, want %q", resp.StatusCode, got, want)
				}
			}
			for _, never := range strings.Split(test.never, "|") {
				if strings.Contains(strings.ToLower(got), never) {
					t.Errorf("the origin got %q, want nothing of %s", got, never)
				}
			}
		})
	}
}

// A path that is longer than regular expressions may see is no way around a rule with one: where that is about the request in all else, it is refused,
// and counts as what is refused for its form does.
func TestLongPathsDoNotBypassRegexps(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: export, match: {path: '~/export$', methods: [POST]}, limit: 1, window: 1h}, {name: all, limit: 4, window: 1h}]")
	long, c := "/"+strings.Repeat("x", 1100)+"/export", e.Talk()
	for i, test := range []struct {
		method, path string
		status       int
		code         string
	}{{"GET", long, 200, ""}, {"POST", "/export", 200, ""}, {"POST", "/export", 429, "rate_limited"}} {
		if resp, body := c.Say(test.method + " " + test.path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"); resp.StatusCode != test.status || !strings.Contains(body, test.code) {
			t.Errorf("request %d: %s %q, want %d", i, resp.Status, body, test.status)
		}
	}
	for i, want := range []string{"target_too_long", "target_too_long", "rate_limited"} {
		if resp, body := c.Say("POST " + long + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"); !strings.Contains(body, want) || resp.StatusCode != map[bool]int{true: 414, false: 429}[want == "target_too_long"] {
			t.Errorf("long request %d: %s %q, want %s", i, resp.Status, body, want)
		}
	}
	if n := len(o.Requests()); n != 2 {
		t.Errorf("the origin got %d requests, want 2", n)
	}
	if m := e.Rest(); m["sluice_requests_total{rule=all,verdict=pass}"] < 4 {
		t.Errorf("%v", m)
	}
}

// PHP takes a space, a dot and an unmatched bracket in the name of a cookie for an underscore, and of cookies of one name the first.
func TestCookieNamesAsPHPReadsThem(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for _, name := range []string{"user.id", "user id", "user[id"} {
		e := edgetest.Start(t, o.URL(), "rules: [{name: k, key: 'cookie:user_id', limit: 3, window: 1m, mitigation_timeout: 1m}]")
		c, passed := e.Talk(), 0
		for i := range 20 {
			resp, _ := c.Say(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nCookie: %s=the-same; user_id=%d\r\n\r\n", name, i))
			if resp.StatusCode == 200 {
				passed++
			}
		}
		if passed > 3 {
			t.Errorf("%q: %d of 20 requests passed a limit of 3", name, passed)
		}
	}
}

// A key is what the origin gets. Many servers take X_Api_Key for X-Api-Key, which is how the edge treats the names that route.
func TestKeySpelledWithUnderscoresIsOneKey(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: k, key: 'header:x-api-key', limit: 3, window: 1m, mitigation_timeout: 1m}]")
	c, passed := e.Talk(), 0
	for i := range 20 {
		resp, _ := c.Say(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: %d\r\nX_Api_Key: the-same\r\n\r\n", i))
		if resp.StatusCode == 200 {
			passed++
		}
	}
	if passed > 3 {
		t.Errorf("%d of 20 requests passed a limit of 3; the origin got %q", passed, o.Requests()[19])
	}
}
