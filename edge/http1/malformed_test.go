package http1_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// An answer to HEAD has no body, whoever refuses the request and whyever.
func TestRefusedHeadHasNoBody(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "")
	for _, rest := range []string{"Host: a\r\nContent-Length: x", "X: no host", "Host: a%zz", "Host: a\r\nTrailer: content-length", "Host: a\r\nExpect: x"} {
		_, body, _ := strings.Cut(e.Raw("HEAD / HTTP/1.1\r\n"+rest+"\r\n\r\n"), "\r\n\r\n")
		if body != "" {
			t.Errorf("%q: %q", rest, body)
		}
	}
}

// What is no head is charged to its source, with or without an end.
func TestUnfinishedMalformedHeadsCount(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for name, text := range map[string]string{"ended": "GARBAGE\r\n\r\n", "unended": "GARBAGE\r\n", "tls": "\x16\x03\x01\x00\x00"} {
		e := edgetest.Start(t, o.URL(), "rules: [{name: r, match: {path: '/*'}, limit: 2, window: 1m, mitigation_timeout: 1m}]")
		refused := 0
		for range 10 {
			c := e.Talk()
			_, _ = io.WriteString(c, text)
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			all, _ := io.ReadAll(c.R)
			if strings.HasPrefix(string(all), "HTTP/1.1 429 ") {
				refused++
			}
		}
		if refused != 8 {
			t.Errorf("%s: %d of 10 refused, with a limit of 2", name, refused)
		}
	}
}

// Requests that are refused for their form count for their source, in rules about all requests that count by source; and a
// source that is refused gets no further with them.
func TestMalformedRequestsCount(t *testing.T) {
	const garbage, good, other = "GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /other HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nConnection: close\r\n\r\n"
	status := func(answer string) string {
		return strings.TrimSpace(strings.TrimPrefix(answer[:min(12, len(answer))], "HTTP/1.1"))
	}
	type step struct{ request, want string }
	repeat := func(n int, s step) (list []step) {
		for range n {
			list = append(list, s)
		}
		return list
	}
	for _, test := range []struct {
		name, yaml string
		steps      []step
	}{
		{"they count, and then are refused", "rules: [{name: r, limit: 3}]",
			append(repeat(3, step{garbage, "400"}), step{garbage, "429"}, step{garbage, "429"}, step{good, "429"})},
		{"with others", "rules: [{name: r, limit: 3}]",
			[]step{{good, "200"}, {garbage, "400"}, {good, "200"}, {garbage, "429"}}},
		{"of whatever kind", "rules: [{name: r, limit: 6}]",
			[]step{{"GET / HTTP/3.0\r\n\r\n", "505"}, {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "405"}, {"GET / HTTP/1.1\r\n\r\n", "400"},
				{"GET /" + strings.Repeat("a", 40<<10) + " HTTP/1.1\r\n\r\n", "414"}, {"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", "431"},
				{"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n", "400"}, {garbage, "429"}}},
		{"not in rules about some requests", "rules: [{name: p, limit: 1, match: {path: /other}}, {name: k, limit: 1, key: 'header:X-Key'}, {name: m, limit: 1, match: {methods: [GET]}}]",
			append(repeat(3, step{garbage, "400"}), step{other, "200"}, step{other, "429"}, step{garbage, "400"})},
		{"nor in rules that count what an origin answers", "rules: [{name: r, limit: 1, count: {statuses: [400]}}]", repeat(3, step{garbage, "400"})},
		{"nor of addresses that are allowed", "rules: [{name: r, limit: 1}]\nallow: [127.0.0.1]", repeat(3, step{garbage, "400"})},
		{"a shadow refuses none", "rules: [{name: r, limit: 1, mode: shadow}]", repeat(3, step{garbage, "400"})},
		{"of a trusted proxy's nobody knows whose they are", "rules: [{name: r, limit: 1}]\nsource: {trust: [127.0.0.1]}", repeat(3, step{garbage, "400"})},
		{"unless it could say", "rules: [{name: r, limit: 1}]\nsource: {trust: [127.0.0.1]}",
			[]step{{"GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", "400"}, {"GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", "429"},
				{"GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.2\r\n\r\n", "400"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), test.yaml)
			for i, s := range test.steps {
				got := e.Raw(s.request)
				if status(got) != s.want || !strings.Contains(got, "\r\nConnection: close\r\n") {
					t.Fatalf("step %d, %.60q: %q, want %s", i, s.request, got, s.want)
				}
			}
			e.Rest()
		})
	}
}

// A head that breaks off is nobody's garbage: its client is gone.
func TestAbandonedHeadsDoNotCount(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 1}]")
	for range 3 {
		c := e.Talk()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX: ")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if resp, _ := c.Hear("GET"); resp.StatusCode != 400 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 200 {
		t.Errorf("the first whole request: %d", resp.StatusCode)
	}
	e.Rest()
}
