package http1_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// Requests that two servers could read differently, or that no server should take: refused with the right status, the
// connection closed, and the origin left alone. nginx and HAProxy each take some of them; there is none that both refuse and
// this edge takes.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	const get, post, chunks = "GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\n", "3\r\nabc\r\n0\r\n\r\n"
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_bytes: 8KiB, header_timeout: 300ms}")
	for _, test := range []struct {
		name, request string
		status        int
	}{
		// The request line.
		{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
		{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"HTTP/0.9", "GET /\r\n\r\n", 400},
		{"HTTP/0.9 that says so", "GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505},
		{"HTTP/1.10", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
		{"version in small letters", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
		{"no version", "GET / \r\nHost: a\r\n\r\n", 400},
		{"space after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
		{"two carriage returns", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400},
		{"bare line feed after the line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
		{"bare line feed after a line alone", "GET / HTTP/1.0\n\r\n\r\n", 400},
		{"carriage return in the line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"two spaces before the target", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"two spaces after the target", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"tabs for spaces", "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"space before the method", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"method in small letters", "post /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 400},
		{"odd method", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"null byte in the method", "G\x00T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
		{"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405},

		// The target.
		{"host and target differ", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400},
		{"an absolute target alone", "GET http://a/ HTTP/1.1\r\n\r\n", 400},
		{"an account in the target", "GET http://b@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"no authority", "GET http:///login HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"fragment", "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"asterisk for GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"no slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"only a query", "GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"backslash first", "GET \\login HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"control byte in the target", "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"null byte in the target", "GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"encoded null byte in the path", "GET /login%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"long target", "GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},

		// The host.
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"two hosts", get + "Host: b\r\n\r\n", 400},
		{"one host twice", get + "Host: a\r\n\r\n", 400},
		{"two hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"list of hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
		{"odd host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"host with an account", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
		{"host with an empty label", "GET / HTTP/1.1\r\nHost: a..b\r\n\r\n", 400},
		{"host with a null byte", "GET / HTTP/1.1\r\nHost: a\x00\r\n\r\n", 400},
		{"host with half an address", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
		{"port that is no number", "GET / HTTP/1.1\r\nHost: a:-1\r\n\r\n", 400},

		// Header lines.
		{"space in a name", get + "X Y: 1\r\n\r\n", 400},
		{"space before the colon", get + "X : 1\r\n\r\n", 400},
		{"tab before the colon", get + "X\t: 1\r\n\r\n", 400},
		{"space before Content-Length's colon", post + "Content-Length : 3\r\n\r\nabc", 400},
		{"space before Transfer-Encoding's colon", post + "Transfer-Encoding : chunked\r\n\r\n" + chunks, 400},
		{"folded line", get + "X: 1\r\n 2\r\n\r\n", 400},
		{"line folded with a tab", get + "X: 1\r\n\t2\r\n\r\n", 400},
		{"folded first line", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
		{"folded length", post + "Content-Length:\r\n 3\r\n\r\nabc", 400},
		{"folded coding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n" + chunks, 400},
		{"line of white space", get + " \r\n\r\n", 400},
		{"bare line feed", get + "X: 1\nY: 2\r\n\r\n", 400},
		{"bare line feed at the end", get + "X: 1\r\n\n" + edgetest.Smuggled, 400},
		{"carriage return in a value", get + "X: 1\rY: 2\r\n\r\n", 400},
		{"carriage return before the end of a line", get + "X: 1\r\r\n\r\n", 400},
		{"null byte", get + "X: \x00\r\n\r\n", 400},
		{"control byte", get + "X: \x01\r\n\r\n", 400},
		{"DEL", get + "X: \x7f\r\n\r\n", 400},
		{"control byte in a name", get + "X\x01: 1\r\n\r\n", 400},
		{"null byte after a name", post + "Content-Length\x00: 3\r\n\r\nabc", 400},
		{"byte beyond ASCII in a name", get + "X\xff: 1\r\n\r\n", 400},
		{"delimiter in a name", get + "X(: 1\r\n\r\n", 400},
		{"no name", get + ": 1\r\n\r\n", 400},
		{"no colon", get + "XY\r\n\r\n", 400},
		{"many headers", get + strings.Repeat("X: y\r\n", 130) + "\r\n", 431},
		{"long head", get + "X: " + strings.Repeat("x", 9000) + "\r\n\r\n", 431},

		// Content-Length.
		{"two lengths", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
		{"two lengths that differ", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
		{"a list of lengths", post + "Content-Length: 3, 3\r\n\r\nabc", 400},
		{"signed length", post + "Content-Length: +3\r\n\r\nabc", 400},
		{"negative length", post + "Content-Length: -1\r\n\r\nabc", 400},
		{"hexadecimal length", post + "Content-Length: 0x3\r\n\r\nabc", 400},
		{"fraction", post + "Content-Length: 3.0\r\n\r\nabc", 400},
		{"underscore", post + "Content-Length: 3_0\r\n\r\nabc", 400},
		{"two numbers", post + "Content-Length: 3 3\r\n\r\nabc", 400},
		{"quoted length", post + "Content-Length: \"3\"\r\n\r\nabc", 400},
		{"length with a parameter", post + "Content-Length: 3;a\r\n\r\nabc", 400},
		{"length after a vertical tab", post + "Content-Length: \x0b3\r\n\r\nabc", 400},
		{"empty length", post + "Content-Length:\r\n\r\nabc", 400},
		{"huge length", post + "Content-Length: 99999999999999999999\r\n\r\nabc", 400},
		{"length beyond 63 bits", post + "Content-Length: 9223372036854775808\r\n\r\nabc", 400},
		{"length beyond 64 bits", post + "Content-Length: 18446744073709551619\r\n\r\nabc", 400},

		// Transfer-Encoding.
		{"length and chunks", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
		{"another coding", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked for HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
		{"identity", post + "Transfer-Encoding: identity\r\n\r\n", 501},
		{"identity and length", post + "Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", 501},
		{"nearly chunked", post + "Transfer-Encoding: xchunked\r\n\r\n" + chunks, 501},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked twice in a line", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked, then identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
		{"chunked, then a line of identity", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501},
		{"identity, then a line of chunked", post + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked with a parameter", post + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 501},
		{"chunked in quotes", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 501},
		{"chunked after a comma", post + "Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked before a comma", post + "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", 501},
		{"no coding", post + "Transfer-Encoding:\r\nContent-Length: 3\r\n\r\nabc", 501},
		{"chunked after a vertical tab", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
		{"chunked before a null byte", post + "Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n", 400},

		// Expect.
		{"other expectation", get + "Expect: wonders\r\n\r\n", 417},
		{"more than one expectation", post + "Expect: 100-continue, wonders\r\nContent-Length: 3\r\n\r\nabc", 417},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := e.Raw(test.request + edgetest.Smuggled)
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.status)) || !strings.Contains(got, "Connection: close\r\n") ||
				strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("%q, want %d once and the connection closed", got, test.status)
			}
		})
	}
	if got := e.Raw("GET / HTTP/1.1\nHost: a\n\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "Connection: close\r\n") {
		t.Errorf("line feeds alone: %q, want 400 and the connection closed", got)
	}
	for name, request := range map[string]string{
		"half a head":               "GET / HTTP/1.1\r\nHost:",
		"half a request line":       "GE",
		"half a chunk":              post + "Transfer-Encoding: chunked\r\n\r\n3\r\na",
		"no last chunk":             post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"no line after the last":    post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
		"less than the length says": post + "Content-Length: 4\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			if got := e.Raw(request); !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close\r\n") {
				t.Errorf("%q, want 408 and the connection closed", got)
			}
		})
	}
	for _, got := range o.Requests() {
		if !strings.HasPrefix(got, "BROKEN POST ") {
			t.Errorf("the origin got %q", got)
		}
	}
	e.Rest()
}

// limits.header_bytes is exact, also where it is less than what is read at once.
func TestHeaderBytes(t *testing.T) {
	const least = 1 << 10
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "limits: {header_bytes: 1KiB}")
	head := func(size int) string {
		text := "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: "
		return text + strings.Repeat("x", size-len(text)-len("\r\n\r\n")) + "\r\n\r\n"
	}
	for request, want := range map[string]string{
		head(least):     "200",
		head(least + 1): "431",
		head(5 * least): "431",
		"GET /" + strings.Repeat("x", least) + " HTTP/1.1\r\nHost: a\r\n\r\n": "414",
	} {
		if got := e.Raw(request); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%d bytes: %.20q, want %s", len(request), got, want)
		}
	}
	e.Rest()
}

// Malformed chunks: refused, and the origin never sees the end of such a request. What is around a body's bytes on the wire
// has a bound.
func TestRefusedChunks(t *testing.T) {
	t.Parallel()
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 2s}")
	for _, test := range []struct{ name, body string }{
		{"endless extension", "3;" + strings.Repeat("x", 400_000)},
		{"extensions without end", strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\na\r\n", 100)},
		{"endless trailer", "0\r\n" + strings.Repeat("X: y\r\n", 70_000)},
		{"line feed in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n"},
		{"line feed after an extension", "3;a\nabc\r\n0\r\n\r\n"},
		{"carriage return in an extension", "3;\rx\r\nabc\r\n0\r\n\r\n"},
		{"bare line feeds", "3\nabc\n0\n\n"},
		{"bare line feed after a size", "3\nabc\r\n0\r\n\r\n"},
		{"bare line feed after a chunk", "3\r\nabc\n0\r\n\r\n"},
		{"bare line feed after the last size", "3\r\nabc\r\n0\n\r\n"},
		{"bare carriage return after a chunk", "3\r\nabc\r0\r\n\r\n"},
		{"no end of a chunk", "3\r\nabc0\r\n\r\n"},
		{"something else at the end of a chunk", "3\r\nabcXX0\r\n\r\n"},
		{"longer than it says", "3\r\nabcd\r\n0\r\n\r\n"},
		{"sign", "+3\r\nabc\r\n0\r\n\r\n"},
		{"negative", "-3\r\nabc\r\n0\r\n\r\n"},
		{"prefix", "0x3\r\nabc\r\n0\r\n\r\n"},
		{"space before the size", " 3\r\nabc\r\n0\r\n\r\n"},
		{"space before the extension", "3 ;a\r\nabc\r\n0\r\n\r\n"},
		{"comma", "3,\r\nabc\r\n0\r\n\r\n"},
		{"no digit", "3g\r\nabc\r\n0\r\n\r\n"},
		{"no size", ";a\r\nabc\r\n0\r\n\r\n"},
		{"empty line", "\r\nabc\r\n0\r\n\r\n"},
		{"too large by a digit", "10000000000000003\r\nabc\r\n0\r\n\r\n"},
		{"as large as numbers get", strings.Repeat("f", 16) + "\r\nabc\r\n0\r\n\r\n"},
		{"beyond numbers", strings.Repeat("f", 17) + "\r\nabc\r\n0\r\n\r\n"},
		{"trailer without a colon", "3\r\nabc\r\n0\r\nXY\r\n\r\n"},
		{"trailer that frames", "3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n"},
		{"trailer that codes", "3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"trailer that routes", "3\r\nabc\r\n0\r\nHost: b\r\n\r\n"},
		{"null byte in a trailer", "3\r\nabc\r\n0\r\nX: \x00\r\n\r\n"},
		{"carriage return in a trailer", "3\r\nabc\r\n0\r\nX: y\rz\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := e.Talk()
			go func() { _, _ = io.WriteString(c, head+test.body+edgetest.Smuggled) }() // the edge may stop reading before its end
			resp, _ := c.Hear("POST")
			if resp.StatusCode != 400 && resp.StatusCode != 431 || !resp.Close {
				t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
			}
		})
	}
	for _, got := range o.Requests() {
		if !strings.HasPrefix(got, "BROKEN ") || strings.HasSuffix(got, "0\r\n\r\n") || strings.Contains(got, "smuggled") {
			t.Errorf("the origin got %q", got)
		}
	}
	// Small chunks with short extensions are odd, and allowed.
	if resp, _ := e.Talk().Say(head + strings.Repeat("1;x\r\na\r\n", 50_000) + "0\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("small chunks: %d", resp.StatusCode)
	}
	e.Rest()
}

// What HTTP lets a server take, odd as it is, reaches the origin in one plain form: as many requests as were counted, each with
// the body that was.
func TestOddRequestsBecomePlain(t *testing.T) {
	const post, added = "POST / HTTP/1.1\r\nHost: a\r\n", "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\n"
	const get, fixed, chunks = "GET / HTTP/1.1\r\nHost: a\r\n" + added + "\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\n" + added + "Content-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\n" + added + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	for _, test := range []struct {
		name, request string
		want          []string
	}{
		{"empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", []string{get}},
		{"no space after the colon", "GET / HTTP/1.1\r\nHost:a\r\n\r\n", []string{get}},
		{"white space around a value", post + "Content-Length: \t 3 \t\r\n\r\nabc", []string{fixed}},
		{"zeros before a length", post + "Content-Length: 0003\r\n\r\nabc", []string{fixed}},
		{"chunked in capitals", post + "Transfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{chunks}},
		{"chunked after a tab", post + "Transfer-Encoding:\tchunked \r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{chunks}},
		{"space after a size", post + "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", []string{chunks}},
		{"zeros before a size", post + "Transfer-Encoding: chunked\r\n\r\n0003\r\nabc\r\n00\r\n\r\n", []string{chunks}},
		{"extensions", post + "Transfer-Encoding: chunked\r\n\r\n3;a=\"b\";c\r\nabc\r\n0;d\r\n\r\n", []string{chunks}},
		{"Connection names what frames", post + "Connection: content-length, transfer-encoding\r\nContent-Length: 3\r\n\r\nabc", []string{fixed}},
		{"no length", post + "\r\n", []string{"POST / HTTP/1.1\r\nHost: a\r\n" + added + "Content-Length: 0\r\n\r\n"}},
		{"a length that only looks like one", post + "Content_Length: 9\r\nContent-Length: 3\r\n\r\nabc",
			[]string{fixed}},
		{"addresses that only look like the edge's", "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 192.0.2.1\r\nX-Forwarded_Proto: https\r\nX_FORWARDED_PORT: 1\r\nx_real_ip: 192.0.2.1\r\n\r\n",
			[]string{get}},
		{"underscores that look like nothing", "GET / HTTP/1.1\r\nHost: a\r\nX_Y: z\r\n\r\n", []string{strings.Replace(get, "X-", "X_Y: z\r\nX-", 1)}},
		{"a body that looks like a request", post + "Content-Length: 35\r\n\r\n" + edgetest.Smuggled,
			[]string{strings.Replace(fixed, "3\r\n\r\nabc", "35\r\n\r\n", 1) + edgetest.Smuggled}},
		{"a body of GET that looks like a request", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n" + edgetest.Smuggled,
			[]string{strings.TrimSuffix(get, "\r\n") + "Content-Length: 35\r\n\r\n" + edgetest.Smuggled}},
		{"chunks of GET", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			[]string{strings.TrimSuffix(get, "\r\n") + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}},
		{"an empty line after a body", post + "Content-Length: 3\r\n\r\nabc\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", []string{fixed, get}},
		{"two at once", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", []string{chunks, get}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), "")
			c := e.Talk()
			_, _ = io.WriteString(c, test.request)
			for range test.want {
				if resp, body := c.Hear("POST"); resp.StatusCode != 200 || body != "hello" {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
			}
			if got, want := strings.Join(o.Requests(), "|"), strings.Join(test.want, "|"); got != want {
				t.Errorf("the origin got\n%q\nwant\n%q", got, want)
			}
			if m := e.Rest(); m["sluice_received_total"] != float64(len(test.want)) {
				t.Errorf("%v requests were counted, want %d", m["sluice_received_total"], len(test.want))
			}
		})
	}
}

// After a request that is the last one by its own word, nothing on its connection is a request (RFC 9112, 9.6).
func TestNothingFollowsTheLastRequest(t *testing.T) {
	for _, last := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	} {
		o := edgetest.StartRecorder(t, edgetest.Hello)
		e := edgetest.Start(t, o.URL(), "")
		c := e.Dial()
		_, _ = io.WriteString(c, last+edgetest.Smuggled)
		all, err := io.ReadAll(c) // up to the end of the connection
		got := string(all)
		if err != nil || strings.Count(got, "HTTP/1.1 200 ") != 1 || !strings.Contains(got, "Connection: close\r\n") || len(o.Requests()) != 1 {
			t.Errorf("%q: the client got %q, %v, the origin %q", last, got, err, o.Requests())
		}
		if m := e.Rest(); m["sluice_received_total"] != 1 {
			t.Errorf("%q: %v requests were counted", last, m["sluice_received_total"])
		}
	}
}

// A client of HTTP/1.0 knows no interim answers: it is not invited to send its body (RFC 9110, 10.1.1).
func TestOldClientsAreNotInvited(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "")
	got := e.Raw("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || len(o.Requests()) != 1 || !strings.HasSuffix(o.Requests()[0], "\r\n\r\nabc") || strings.Contains(o.Requests()[0], "Expect") {
		t.Errorf("the client got %q, the origin %q", got, o.Requests())
	}
}
