package proxy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/edge/config"
	"sluice/edge/edgetest"
)

// Origin hits per client request, for an origin that fails in each way, on a new connection and on a kept one: at most two for
// idempotent methods whose body is held, and two only where a kept connection ended without a byte of an answer; one for all others; one
// after a timeout. What the client gets is an error in time, or a body that visibly breaks off, and the next client gets what is its
// own.
func TestOriginFaults(t *testing.T) {
	requests := [][2]string{ // the method, and what follows the host
		{"GET", "\r\n"}, {"HEAD", "\r\n"}, {"DELETE", "\r\n"},
		{"GET", "Content-Length: 1\r\n\r\nx"}, {"PUT", "Content-Length: 1\r\n\r\nx"}, {"POST", "Content-Length: 1\r\n\r\nx"}, {"PATCH", "\r\n"}, {"PUT", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	}
	const whole, part = true, false
	for _, test := range []struct {
		name, Answer string
		status       int
		whole        bool // the body is; no matter for HEAD
		again        bool // a kept connection that fails so is a reason to try once more
		slow         bool // the origin's time runs out
	}{
		{"closed at once", "\x00", 502, whole, true, false},
		{"reset at once", "\x01", 502, whole, true, false},
		{"silent", "", 504, whole, false, true},
		{"slow head", edgetest.OKHead + "Content-Le", 504, whole, false, true},
		{"closed in the status line", "HTTP/1.\x00", 502, whole, false, false},
		{"closed in the head", edgetest.OKHead + "X: \x00", 502, whole, false, false},
		{"reset in the head", edgetest.OKHead + "X: \x01", 502, whole, false, false},
		{"closed in a body", edgetest.OKHead + "Content-Length: 100000\r\n\r\nabc\x00", 200, part, false, false},
		{"reset in a body", edgetest.OKHead + "Content-Length: 100000\r\n\r\nabc\x01", 200, part, false, false},
		{"closed before a body", edgetest.OKHead + "Content-Length: 3\r\n\r\n\x00", 200, part, false, false},
		{"slow body", edgetest.OKHead + "Content-Length: 3\r\n\r\na", 200, part, false, true},
		{"closed between chunks", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x00", 200, part, false, false},
		{"closed in a chunk", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nab\x00", 200, part, false, false},
		{"closed before the last line", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\x00", 200, part, false, false},
		{"reset between chunks", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x01", 200, part, false, false},
		{"malformed chunk", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n0\r\n\r\n", 200, part, false, false},
		{"chunk longer than it says", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 200, part, false, false},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n\x00", 502, whole, false, false},
		{"64 KB of headers", edgetest.OKHead + "X: " + strings.Repeat("y", 64<<10) + "\r\nContent-Length: 0\r\n\r\n", 502, whole, false, false},
		{"unasked 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nsecret", 502, whole, false, false},
		{"length and chunks", edgetest.OKHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, whole, false, false},
		{"two lengths", edgetest.OKHead + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 502, whole, false, false},
		{"closed after an interim answer", "HTTP/1.1 103 Early Hints\r\n\r\n\x00", 502, whole, false, false},
		{"reset after an interim answer", "HTTP/1.1 100 Continue\r\n\r\n\x01", 502, whole, false, false},
		{"interim answers without end", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 200), 502, whole, false, false},
		{"extra bytes", edgetest.OKHead + "Content-Length: 3\r\n\r\nabcXYZ", 200, whole, false, false},
		{"an extra answer", edgetest.OKHead + "Content-Length: 3\r\n\r\nabc" + edgetest.OKHead + "Content-Length: 6\r\n\r\npoison", 200, whole, false, false},
		{"an extra answer after chunks", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + edgetest.OKHead + "Content-Length: 6\r\n\r\npoison", 200, whole, false, false},
		{"a body of 204", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", 204, whole, false, false},
		{"chunks of 204", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 204, whole, false, false},
		{"a body of 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc", 304, whole, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := edgetest.StartRecorder(t, func(_ int, request string) string {
				if strings.Contains(request, "/faulty") {
					return test.Answer
				}
				return edgetest.OKHead + "Content-Length: 3\r\n\r\nown"
			})
			config := edgetest.WithoutRules(t, o.URL())
			if test.slow {
				config.Origins[0].Timeout = 300 * time.Millisecond
			}
			e := edgetest.StartConfig(t, config)
			for _, request := range requests {
				method, rest := request[0], request[1]
				for _, kept := range []bool{false, true} {
					e.Upstreams().All[0].Sweep(time.Time{})
					if kept {
						e.Get("/")
					}
					before := len(o.Requests())
					c := e.Talk()
					resp, body := c.Say(method + " /faulty HTTP/1.1\r\nHost: a\r\n" + rest)
					c.Close()
					cut := strings.Contains(body, " then ")
					if resp.StatusCode != test.status || method != "HEAD" && cut == test.whole {
						t.Errorf("%s, kept %t: %d %q, want %d, the whole body: %t", method, kept, resp.StatusCode, body, test.status, test.whole)
					}
					if test.status >= 500 && method != "HEAD" && !strings.Contains(body, `{"error":`) {
						t.Errorf("%s, kept %t: body %q", method, kept, body)
					}
					want := 1
					if test.again && kept && method != "POST" && method != "PATCH" && !strings.HasPrefix(rest, "Transfer") {
						want = 2
					}
					if hits := len(o.Requests()) - before; hits != want {
						t.Errorf("%s, kept %t: %d hits, want %d", method, kept, hits, want)
					}
					if strings.HasSuffix(test.Answer, "\x00") || strings.HasSuffix(test.Answer, "\x01") {
						// A HEAD has its answer before the connection ends: the next request may or may not find it ended.
						e.Upstreams().All[0].Sweep(time.Time{})
					}
					if resp, body := e.Get("/"); resp.StatusCode != 200 || body != "own" {
						t.Errorf("%s, kept %t: the next client: %d %q", method, kept, resp.StatusCode, body)
					}
				}
			}
			attempts := "sluice_origin_attempts_total{origin=" + o.URL() + "}"
			if m := e.Rest(); m[attempts] != float64(len(o.Requests())) {
				t.Errorf("%v attempts were counted, %d made", m[attempts], len(o.Requests()))
			}
		})
	}
}

// Heads of answers that two readers could take differently: 502 without a second try, and the connection is not used again.
func TestRefusedAnswers(t *testing.T) {
	const length = "Content-Length: 3\r\n\r\nabc"
	for name, answer := range map[string]string{
		"no version":                    "200 OK\r\n" + length,
		"HTTP/2":                        "HTTP/2 200 OK\r\n" + length,
		"HTTP/1.2":                      "HTTP/1.2 200 OK\r\n" + length,
		"HTTP/1.10":                     "HTTP/1.10 200 OK\r\n" + length,
		"an empty line first":           "\r\n" + edgetest.OKHead + length,
		"two spaces":                    "HTTP/1.1  200 OK\r\n" + length,
		"tab":                           "HTTP/1.1\t200 OK\r\n" + length,
		"status of two digits":          "HTTP/1.1 20 OK\r\n" + length,
		"status of four digits":         "HTTP/1.1 2000 OK\r\n" + length,
		"status below 100":              "HTTP/1.1 099 OK\r\n" + length,
		"status that is no number":      "HTTP/1.1 2x0 OK\r\n" + length,
		"carriage return in a reason":   "HTTP/1.1 200 O\rK\r\n" + length,
		"null byte in a reason":         "HTTP/1.1 200 \x00\r\n" + length,
		"bare line feed":                edgetest.OKHead + "X: y\n" + length,
		"bare line feed, status line":   "HTTP/1.1 200 OK\n" + length,
		"folded line":                   edgetest.OKHead + "X: y\r\n z\r\n" + length,
		"space before a coding's colon": edgetest.OKHead + "Transfer-Encoding\t: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"space before Connection's":     edgetest.OKHead + "Connection : close\r\n" + length,
		"space alone before a colon":    edgetest.OKHead + " : y\r\n" + length,
		"no colon":                      edgetest.OKHead + "XY\r\n" + length,
		"no name":                       edgetest.OKHead + ": y\r\n" + length,
		"space in a name":               edgetest.OKHead + "X Y: z\r\n" + length,
		"null byte":                     edgetest.OKHead + "X: \x00\r\n" + length,
		"control byte":                  edgetest.OKHead + "X: \x01\r\n" + length,
		"carriage return in a value":    edgetest.OKHead + "X: y\rz\r\n" + length,
		"carriage return before a CRLF": edgetest.OKHead + "X: y\r\r\n" + length,
		"many headers":                  edgetest.OKHead + strings.Repeat("X: y\r\n", 130) + length,
		"one length twice":              edgetest.OKHead + "Content-Length: 3\r\n" + length,
		"list of lengths":               edgetest.OKHead + "Content-Length: 3, 3\r\n\r\nabc",
		"signed length":                 edgetest.OKHead + "Content-Length: +3\r\n\r\nabc",
		"negative length":               edgetest.OKHead + "Content-Length: -3\r\n\r\nabc",
		"hexadecimal length":            edgetest.OKHead + "Content-Length: 0x3\r\n\r\nabc",
		"no length":                     edgetest.OKHead + "Content-Length:\r\n\r\nabc",
		"length beyond 64 bits":         edgetest.OKHead + "Content-Length: 18446744073709551619\r\n\r\nabc",
		"length beyond 62 bits":         edgetest.OKHead + "Content-Length: 9223372036854775807\r\n\r\nabc",
		"space before a length's colon": edgetest.OKHead + "Content-Length : 3\r\n\r\nabc",
		"another coding":                edgetest.OKHead + "Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"nearly chunked":                edgetest.OKHead + "Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"identity":                      edgetest.OKHead + "Transfer-Encoding: identity\r\n\r\nabc",
		"chunked twice":                 edgetest.OKHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"chunked, then a length":        edgetest.OKHead + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"chunked of HTTP/1.0":           "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"length of an interim answer":   "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc" + edgetest.OKHead + length,
	} {
		t.Run(name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, func(n int, _ string) string {
				if n == 0 {
					return answer
				}
				return edgetest.Hello(n, "")
			})
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
			if resp, body := e.Get("/"); resp.StatusCode != 502 || !strings.Contains(body, `"origin_failed"`) {
				t.Errorf("%d %q, want 502", resp.StatusCode, body)
			}
			if n := len(o.Requests()); n != 1 {
				t.Errorf("%d hits, want 1", n)
			}
			if resp, body := e.Get("/"); resp.StatusCode != 200 || body != "hello" || o.Connections() != 2 {
				t.Errorf("the next: %d %q on connection %d", resp.StatusCode, body, o.Connections())
			}
		})
	}
}

// An origin that cannot be reached is asked by nobody's request, and says so at once.
func TestOriginDown(t *testing.T) {
	t.Parallel()
	e := edgetest.StartConfig(t, edgetest.WithoutRules(t, "http://127.0.0.1:1"))
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"} {
		resp, body := e.Talk().Say(request)
		if resp.StatusCode != 502 || body != `{"error":{"code":"origin_unreachable","message":"The server behind this one cannot be reached."}}`+"\n" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
	e.Rest()
}

// What cannot become an answer is none as soon as that shows: nobody waits for the rest of it, which the origin never sends.
func TestAnswersThatCannotBecomeOne(t *testing.T) {
	for name, answer := range map[string]string{
		"line feeds alone":                     "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
		"line feeds alone after the first":     "HTTP/1.1 200 OK\r\nContent-Length: 3\n\nabc",
		"an empty line ends in one":            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\nabc",
		"carriage returns alone":               "HTTP/1.1 200 OK\rContent-Length: 3\r\rabc\n",
		"a first line alone":                   "HTTP/1.1 2000 OK\r\n",
		"mail":                                 "220 smtp.example ESMTP\r\n",
		"mail without a line end":              "220",
		"SSH":                                  "SSH-2.0-OpenSSH_9.2\r\n",
		"HTTP/0.9":                             "<!doctype html>\n<p>hello",
		"TLS":                                  "\x15\x03\x03\x00\x02\x02\x46",
		"HTTP/2":                               "HTTP/2 200\r\n",
		"one byte":                             "h",
		"a line feed":                          "\n",
		"an interim answer, then line feeds":   "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\n",
		"an interim answer, then another's":    "HTTP/1.1 100 Continue\r\n\r\nSSH-2.0",
		"a malformed line in a head not whole": "HTTP/1.1 200 OK\r\nX Y: z\r\nZ: ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for cut := range 2 { // in one piece, and with its first byte ahead
				yaml, connections := edgetest.StartSpeaker(t, 0, func(s *edgetest.Speaker) {
					for n := 0; s.Next() != nil; n++ {
						if n == 0 {
							s.Put(edgetest.OwnAnswer)
							continue
						}
						s.Put(answer[:cut])
						s.Put(answer[cut:])
					}
				})
				e := edgetest.Start(t, "", strings.Replace(yaml, "timeout: 10s", "timeout: 1h", 1)) // a caller gives up before that
				e.Get("/")
				for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"} {
					before := connections()
					if resp, body := e.Talk().Say(request); resp.StatusCode != 502 || !strings.Contains(body, `"origin_failed"`) {
						t.Errorf("%d %q, want 502", resp.StatusCode, body)
					}
					if n := connections() - before; n != 0 {
						t.Errorf("%d more tries", n)
					}
					e.Get("/") // the next has a connection of its own
				}
				e.Rest()
			}
		})
	}
}

// The head of an answer is as long as the origin's configuration allows, by default 32 KiB, and a reload changes that.
func TestLongAnswerHeads(t *testing.T) {
	o := edgetest.StartRecorder(t, func(_ int, request string) string {
		path, _, _ := strings.Cut(strings.TrimPrefix(request, "GET /"), " ")
		size, _ := strconv.Atoi(path)
		return edgetest.OKHead + strings.Repeat("X: "+strings.Repeat("y", 995)+"\r\n", size/1000) + "Content-Length: 2\r\n\r\nhi"
	})
	with := func(field string) string {
		return "origins: [{servers: [\"" + o.URL() + "\"]" + field + "}]"
	}
	e := edgetest.Start(t, o.URL(), with(""))
	for _, c := range []struct{ field, taken, refused string }{
		{"", "/31000", "/33000"}, {", answer_header_bytes: 4KiB", "/3000", "/5000"}, {", answer_header_bytes: 96KiB", "/90000", "/99000"}, {"", "/31000", "/33000"},
	} {
		parsed, err := config.Parse("test.yaml", []byte(with(c.field)))
		edgetest.Must(t, err)
		edgetest.Must(t, e.Apply(parsed))
		for range 2 { // on a kept connection as well
			if resp, body := e.Get(c.taken); resp.StatusCode != 200 || body != "hi" {
				t.Errorf("%q, %s: %d %q", c.field, c.taken, resp.StatusCode, body)
			}
		}
		if resp, body := e.Get(c.refused); resp.StatusCode != 502 || !strings.Contains(body, `"origin_failed"`) {
			t.Errorf("%q, %s: %d %q", c.field, c.refused, resp.StatusCode, body)
		}
	}
	e.Rest()
}
