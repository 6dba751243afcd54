package http1_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// What a head may list, and how long and odd its path may be: up to a bound it goes on, beyond it is refused. So one that names thousands
// of headers in Connection costs no comparison of each with every line.
func TestBoundsOfHeads(t *testing.T) {
	const begin = "GET / HTTP/1.1\r\nHost: a\r\n"
	list := func(n int) string { return strings.Repeat("x,", n-1) + "x" }
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_lines: 20}")
	for _, test := range []struct {
		name, head string
		want       int
	}{
		{"names in Connection", begin + "Connection: " + list(64) + "\r\n", 200},
		{"more of them", begin + "Connection: " + list(65) + "\r\n", 431},
		{"empty ones", begin + "Connection: " + strings.Repeat(",", 64) + "\r\n", 431},
		{"names in Trailer", begin + "Trailer: " + list(65) + "\r\n", 431},
		{"names in TE", begin + "TE: " + list(65) + "\r\n", 431},
		{"names in several lines", begin + "Connection: " + list(20) + "\r\nConnection: " + list(20) + "\r\nTrailer: " + list(20) + "\r\nTE: " + list(5) + "\r\n", 431},
		{"names in other lines", begin + "Accept: " + list(3000) + "\r\nCookie: " + list(3000) + "\r\n", 200},
		{"lines", begin + strings.Repeat("X: y\r\n", 19), 200},
		{"more lines", begin + strings.Repeat("X: y\r\n", 20), 431},
		{"a long path", "GET /" + strings.Repeat("a", 8<<10-1) + " HTTP/1.1\r\nHost: a\r\n", 200},
		{"a longer one", "GET /" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\nHost: a\r\n", 414},
		{"a long query", "GET /?" + strings.Repeat("a", 16<<10) + " HTTP/1.1\r\nHost: a\r\n", 200},
		{"plain segments", "GET " + strings.Repeat("/a", 4000) + " HTTP/1.1\r\nHost: a\r\n", 200},
		{"empty segments", "GET " + strings.Repeat("/", 65) + "a HTTP/1.1\r\nHost: a\r\n", 200},
		{"more of them", "GET " + strings.Repeat("/", 66) + "a HTTP/1.1\r\nHost: a\r\n", 400},
		{"backslashes", "GET /" + strings.Repeat(`\`, 65) + "a HTTP/1.1\r\nHost: a\r\n", 400},
		{"encoded slashes", "GET /" + strings.Repeat("%2f", 65) + "a HTTP/1.1\r\nHost: a\r\n", 400},
		{"dots", "GET " + strings.Repeat("/.", 64) + " HTTP/1.1\r\nHost: a\r\n", 200},
		{"more dots", "GET " + strings.Repeat("/.", 65) + " HTTP/1.1\r\nHost: a\r\n", 400},
		{"encoded dots", "GET " + strings.Repeat("/%2e%2E", 65) + " HTTP/1.1\r\nHost: a\r\n", 400},
		{"segments of each kind", "GET /a" + strings.Repeat("//./a/..", 22) + " HTTP/1.1\r\nHost: a\r\n", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := e.StatusLine(test.head + "\r\n")
			if want := fmt.Sprintf("HTTP/1.1 %d ", test.want); !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	e.Rest()
}

// All names that Connection lists end at this hop, in whatever case, however many there are; and so do an origin's.
func TestManyNominatedNames(t *testing.T) {
	var names, lines []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("X-Name-%d", i))
		lines = append(lines, fmt.Sprintf("x-NAME-%d: drop", i))
	}
	head := "Connection: " + strings.Join(names, ", ") + "\r\n" + strings.Join(lines, "\r\n") + "\r\nX-Name-60: keep\r\n"
	o := edgetest.StartRecorder(t, func(int, string) string { return "HTTP/1.1 200 OK\r\n" + head + "Content-Length: 2\r\n\r\nok" })
	e := edgetest.Start(t, o.URL(), "")
	answer := e.Raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + head + "\r\n")
	for who, text := range map[string]string{"origin": o.Requests()[0], "client": answer} {
		if strings.Contains(text, "drop") || !strings.Contains(text, "X-Name-60: keep\r\n") {
			t.Errorf("the %s got %q", who, text)
		}
	}
	e.Rest()
}

// An origin may not list more either, nor put more around the bytes of its chunks.
func TestBoundsOfAnswers(t *testing.T) {
	const ask = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n"
	answer := ""
	o := edgetest.StartRecorder(t, func(int, string) string { return answer })
	e := edgetest.Start(t, o.URL(), "")
	for _, name := range []string{"Connection", "Trailer", "Keep-Alive"} {
		for n, want := range map[int]int{64: 200, 65: 502} {
			answer = "HTTP/1.1 200 OK\r\n" + name + ": x" + strings.Repeat(",x", n-1) + "\r\nContent-Length: 2\r\n\r\nok"
			if resp, _ := e.Talk().Say(ask); resp.StatusCode != want {
				t.Errorf("%d names in %s: %d, want %d", n, name, resp.StatusCode, want)
			}
		}
	}
	const chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	answer = chunks + strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\na\r\n", 100) + "0\r\n\r\n"
	if _, body := e.Talk().Say(ask); !strings.HasSuffix(body, "unexpected EOF") {
		t.Errorf("extensions without end came as %d bytes", len(body))
	}
	answer = chunks + strings.Repeat("1;x\r\na\r\n", 50_000) + "0\r\n\r\n"
	if _, body := e.Talk().Say(ask); body != strings.Repeat("a", 50_000) {
		t.Errorf("small chunks came as %d bytes", len(body))
	}
	e.Rest()
}

// A head of limits.header_bytes is served however it is spelled: fasthttp is shown one in which a space stands after each colon, and
// that must fit its buffer as well.
func TestLongestHeadIsServed(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for _, most := range []int{1 << 10, 32 << 10, 1 << 20} {
		e := edgetest.Start(t, o.URL(), fmt.Sprintf("limits: {header_bytes: %d, header_lines: 1024}", most))
		for _, colon := range []string{": ", ":"} {
			for _, framing := range []string{"", "Content-Length: 0\r\n"} {
				head := "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + framing
				for range 100 {
					head += "x" + colon + "y\r\n"
				}
				head += "p: " + strings.Repeat("z", most-len(head)-len("p: \r\n\r\n")) + "\r\n\r\n"
				if got, _, _ := strings.Cut(e.Raw(head), "\r\n"); got != "HTTP/1.1 200 OK" || len(head) != most {
					t.Errorf("%d bytes, %q %q: %s", len(head), colon, framing, got)
				}
			}
		}
	}
}
