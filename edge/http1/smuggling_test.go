package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/http1"
)

// Streams of bytes put together at random from what request smuggling is made of, each on a connection of its own, with a rule
// that refuses some of the requests. Whatever they are: every request that was counted is answered; the origin's parser, which is
// another, sees the requests that were counted as passed on, and no connection to it ever holds anything else; and they are the
// first of those that this parser sees in the stream itself.
func TestNothingIsSmuggled(t *testing.T) {
	t.Parallel()
	const streams = 3000
	var (
		lines = []string{"GET / HTTP/1.1", "POST / HTTP/1.1", "PUT /x HTTP/1.1", "HEAD / HTTP/1.1", "GET http://a/ HTTP/1.1", "OPTIONS * HTTP/1.1", "POST / HTTP/1.0",
			"GET /%2f..//y?a HTTP/1.1", "\r\nGET / HTTP/1.1", "GET / HTTP/1.2", "GET  / HTTP/1.1", "GET /", "get / HTTP/1.1"}
		headers = []string{"Host: a", "Host: a", "Host: a", "Host: b", "Content-Length: 3", "Content-Length: 35", "Content-Length: 0", "Content-Length: 03", "content-length:3 ",
			"Content-Length: 3, 3", "Content-Length: +3", "Content-Length : 3", "Content-Length: 1000", "Content_Length: 3", "Transfer-Encoding: chunked",
			"Transfer-Encoding: chunked", "transfer-encoding:\tChunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Transfer-Encoding : chunked",
			"Transfer-Encoding: chunked, identity", "X: y\r\n Transfer-Encoding: chunked", "X: y\nContent-Length: 3", "X: y\rContent-Length: 3", "X: \x00", "X\x00: y",
			"Connection: close", "Connection: Close", "Connection: keep-alive, content-length", "Connection: transfer-encoding", "Expect: 100-continue", "Expect: x",
			"Upgrade: websocket\r\nConnection: upgrade", "Trailer: X", "TE: trailers", "X-Forwarded-For: 1.2.3.4", ": x", "X", " ", "Cookie: a=b"}
		ends   = []string{"\r\n\r\n", "\r\n\r\n", "\r\n\r\n", "\r\n\r\n", "\n\n", "\r\n\n", "\r\n", "\n\r\n"}
		bodies = []string{"", "", "abc", "3\r\nabc\r\n0\r\n\r\n", "3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n", "3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n", "3\nabc\n0\n\n", "0\r\n\r\n",
			"0x3\r\nabc\r\n0\r\n\r\n", "ffffffffffffffff\r\nabc", "3\r\nabcd\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\n", "3\r\nabc0\r\n\r\n", "-1\r\n\r\n", edgetest.Smuggled, "0\r\n\r\n" + edgetest.Smuggled, "abc" + edgetest.Smuggled,
			"3\r\nabc\r\n0\r\n\r\n" + edgetest.Smuggled}
	)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(plain string, odd []string) string {
		if random.IntN(3) > 0 {
			return plain
		}
		return odd[random.IntN(len(odd))]
	}
	o := edgetest.StartRecorder(t, edgetest.Hello)
	config := edgetest.Parse(t, "rules: [{name: refuse, match: {path: /x}, limit: 1, window: 24h, mitigation_timeout: 24h}]")
	config.Origins = edgetest.WithoutRules(t, o.URL()).Origins
	e := edgetest.StartConfig(t, config, edgetest.HalfClosed(time.Hour)) // however slow the machine is
	e.Get("/x")
	answers := "sluice_origin_requests_total{code=200,origin=" + o.URL() + "}"
	status := regexp.MustCompile(`HTTP/1\.1 ([2-5]\d\d) `)
	m := e.Rest()
	received, passed, seen := m["sluice_received_total"], m[answers], 1
	for range streams {
		var s strings.Builder
		for range 1 + random.IntN(3) {
			s.WriteString(pick("POST / HTTP/1.1", lines) + "\r\nHost: a")
			for range random.IntN(3) {
				s.WriteString("\r\n" + pick("Content-Length: 35", headers))
			}
			s.WriteString(pick("\r\n\r\n", ends) + pick(edgetest.Smuggled, bodies))
		}
		c := e.Dial()
		_, _ = io.WriteString(c, s.String())
		_ = c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		c.Close()
		m = e.Rest()
		if n := len(status.FindAll(all, -1)); float64(n) != m["sluice_received_total"]-received {
			t.Fatalf("%q: %v requests were counted, %d answered: %q", s.String(), m["sluice_received_total"]-received, n, all)
		}
		got := o.RequestsFrom(seen)
		want := requestsIn(s.String())
		whole := 0
		for _, request := range got {
			text, broken := strings.CutPrefix(request, "BROKEN ")
			seen, err := readRequest(bufio.NewReader(strings.NewReader(text)))
			if !broken && err == nil {
				if whole >= len(want) || seen != want[whole] {
					t.Fatalf("%q: the origin got %q, want some of %q", s.String(), got, want)
				}
				whole++
			} else if !broken || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%q: the origin got %q: %v", s.String(), request, err)
			}
		}
		if float64(whole) != m[answers]-passed {
			t.Fatalf("%q: the origin got %q, but answers to %v were counted", s.String(), got, m[answers]-passed)
		}
		received, passed, seen = m["sluice_received_total"], m[answers], seen+len(got)
	}
	if passed < streams/4 || received-passed < streams/4 {
		t.Errorf("%v of %v requests were passed on: no good mix", passed, received)
	}
}

// requestsIn is what the other parser sees in a stream, without what the rule refuses.
func requestsIn(stream string) []string {
	var all []string
	r := bufio.NewReader(strings.NewReader(stream))
	for {
		for c, _ := r.ReadByte(); c == '\r' || c == '\n'; c, _ = r.ReadByte() { // empty lines before a request
		}
		_ = r.UnreadByte()
		request, err := readRequest(r)
		if err != nil {
			return all
		}
		if strings.Fields(request)[1] != "/x" {
			all = append(all, request)
		}
	}
}

// readRequest gives a request as method, target in the form for an origin, and body.
func readRequest(r *bufio.Reader) (string, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	return fmt.Sprintf("%s %s %q", req.Method, http1.OriginForm([]byte(req.RequestURI)), body), err
}
