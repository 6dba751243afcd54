package edge_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// Every answer has one date: an origin's own, or when it came (RFC 9110, 6.6.1), and the edge's own have theirs.
func TestDate(t *testing.T) {
	const theirs = "Date: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
	now := theirs[:0]
	for _, test := range []struct{ name, request, Answer, date string }{
		{"none", "GET / HTTP/1.1\r\n", edgetest.OKHead + "Content-Length: 0\r\n\r\n", now},
		{"none, of unknown length", "GET / HTTP/1.1\r\n", edgetest.OKHead + "\r\nabc\x00", now},
		{"none, to HTTP/1.0", "GET / HTTP/1.0\r\n", edgetest.OKHead + "Content-Length: 0\r\n\r\n", now},
		{"none, HEAD", "HEAD / HTTP/1.1\r\n", edgetest.OKHead + "\r\n", now},
		{"none, 204", "GET / HTTP/1.1\r\n", "HTTP/1.1 204 No Content\r\n\r\n", now},
		{"none, after an interim answer that has one", "GET / HTTP/1.1\r\n", "HTTP/1.1 103 Early Hints\r\n" + theirs + "\r\n" + edgetest.OKHead + "Content-Length: 0\r\n\r\n", now},
		{"one that ends here", "GET / HTTP/1.1\r\n", edgetest.OKHead + "Connection: date\r\n" + theirs + "Content-Length: 0\r\n\r\n", now},
		{"the origin's", "GET / HTTP/1.1\r\n", edgetest.OKHead + theirs + "Content-Length: 0\r\n\r\n", theirs},
		{"in other letters", "GET / HTTP/1.1\r\n", edgetest.OKHead + strings.Replace(theirs, "Date", "dAtE", 1) + "Content-Length: 0\r\n\r\n", theirs},
		{"no valid answer", "GET / HTTP/1.1\r\n", "nonsense", now},
		{"a refusal", "GET /limited HTTP/1.1\r\n", "", now},
		{"no valid request", "GET / HTTP/1.1\r\nX Y\r\n", "", now},
		{"a check", "GET /check HTTP/1.1\r\n", "", now},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, func(n int, request string) string {
				if strings.HasPrefix(request, "GET /limited ") {
					return edgetest.Hello(n, request)
				}
				return test.Answer
			})
			e := edgetest.Start(t, o.URL(), "check_path: /check\nrules: [{name: r, match: {path: /limited}, limit: 1, window: 1h}]\n")
			e.Get("/limited") // the next is one too many
			c := e.Talk()
			before := time.Now().Truncate(time.Second).Add(-10 * time.Second) // fasthttp's clock, for the edge's own answers, ticks once a second, or later
			resp, _ := c.Say(test.request + "Host: a\r\nConnection: close\r\n\r\n")
			after := time.Now()
			dates := resp.Header.Values("Date")
			if test.date != now {
				if fmt.Sprintf("Date: %s\r\n", strings.Join(dates, "|")) != test.date {
					t.Errorf("%q, want the origin's", dates)
				}
				return
			}
			if len(dates) != 1 {
				t.Fatalf("%q: want one", dates)
			}
			if at, err := http.ParseTime(dates[0]); err != nil || at.Before(before) || at.After(after) {
				t.Errorf("%s, %v; want between %v and %v", dates[0], err, before, after)
			}
		})
	}
}

// A refusal says which limit it was: the one that is in force for this client, in which window, and what is counted, but nothing of the key.
func TestRefusalSaysItsLimit(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
plans: {key: "header:X-Api-Key", default: free}
rules: [{name: api, key: ["header:X-Api-Key", path], limit: 10, window: 1h, plans: {free: 1}}]
`)
	e.Get("/", "X-Api-Key: secret-4711")
	resp, body := e.Get("/", "X-Api-Key: secret-4711")
	if resp.StatusCode != 429 || !strings.Contains(body, `"rule":"api","limit":1,"window":3600,"scope":"header:X-Api-Key,path","message"`) || strings.Contains(body, "4711") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	m := e.Rest()
	for _, verdict := range []string{"pass", "limited"} {
		if n := m["sluice_plan_requests_total{plan=free,rule=api,verdict="+verdict+"}"]; n != 1 {
			t.Errorf("%s: %v", verdict, n)
		}
	}
}
