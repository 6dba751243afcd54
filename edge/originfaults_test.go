package edge

import (
	"strings"
	"testing"
	"time"
)

const okHead = "HTTP/1.1 200 OK\r\n"

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
		name, answer string
		status       int
		whole        bool // the body is; no matter for HEAD
		again        bool // a kept connection that fails so is a reason to try once more
		slow         bool // the origin's time runs out
	}{
		{"closed at once", "\x00", 502, whole, true, false},
		{"reset at once", "\x01", 502, whole, true, false},
		{"silent", "", 504, whole, false, true},
		{"slow head", okHead + "Content-Le", 504, whole, false, true},
		{"closed in the status line", "HTTP/1.\x00", 502, whole, false, false},
		{"closed in the head", okHead + "X: \x00", 502, whole, false, false},
		{"reset in the head", okHead + "X: \x01", 502, whole, false, false},
		{"closed in a body", okHead + "Content-Length: 100000\r\n\r\nabc\x00", 200, part, false, false},
		{"reset in a body", okHead + "Content-Length: 100000\r\n\r\nabc\x01", 200, part, false, false},
		{"closed before a body", okHead + "Content-Length: 3\r\n\r\n\x00", 200, part, false, false},
		{"slow body", okHead + "Content-Length: 3\r\n\r\na", 200, part, false, true},
		{"closed between chunks", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x00", 200, part, false, false},
		{"closed in a chunk", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nab\x00", 200, part, false, false},
		{"closed before the last line", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\x00", 200, part, false, false},
		{"reset between chunks", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x01", 200, part, false, false},
		{"malformed chunk", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n0\r\n\r\n", 200, part, false, false},
		{"chunk longer than it says", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 200, part, false, false},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n\x00", 502, whole, false, false},
		{"64 KB of headers", okHead + "X: " + strings.Repeat("y", 64<<10) + "\r\nContent-Length: 0\r\n\r\n", 502, whole, false, false},
		{"unasked 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nsecret", 502, whole, false, false},
		{"length and chunks", okHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, whole, false, false},
		{"two lengths", okHead + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 502, whole, false, false},
		{"closed after an interim answer", "HTTP/1.1 103 Early Hints\r\n\r\n\x00", 502, whole, false, false},
		{"reset after an interim answer", "HTTP/1.1 100 Continue\r\n\r\n\x01", 502, whole, false, false},
		{"interim answers without end", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 200), 502, whole, false, false},
		{"extra bytes", okHead + "Content-Length: 3\r\n\r\nabcXYZ", 200, whole, false, false},
		{"an extra answer", okHead + "Content-Length: 3\r\n\r\nabc" + okHead + "Content-Length: 6\r\n\r\npoison", 200, whole, false, false},
		{"an extra answer after chunks", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + okHead + "Content-Length: 6\r\n\r\npoison", 200, whole, false, false},
		{"a body of 204", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", 204, whole, false, false},
		{"chunks of 204", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 204, whole, false, false},
		{"a body of 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc", 304, whole, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := startRecorder(t, func(_ int, request string) string {
				if strings.Contains(request, "/faulty") {
					return test.answer
				}
				return okHead + "Content-Length: 3\r\n\r\nown"
			})
			config := withoutRules(t, o.url())
			if !test.slow {
				config.Origins[0].Timeout = 10 * time.Second
			}
			e := startConfig(t, config)
			for _, request := range requests {
				method, rest := request[0], request[1]
				for _, kept := range []bool{false, true} {
					e.Upstreams().All[0].Sweep(time.Time{})
					if kept {
						e.get("/")
					}
					before := len(o.requests())
					c := e.talk()
					resp, body := c.say(method + " /faulty HTTP/1.1\r\nHost: a\r\n" + rest)
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
					if hits := len(o.requests()) - before; hits != want {
						t.Errorf("%s, kept %t: %d hits, want %d", method, kept, hits, want)
					}
					if strings.HasSuffix(test.answer, "\x00") || strings.HasSuffix(test.answer, "\x01") {
						// A HEAD has its answer before the connection ends: the next request may or may not find it ended.
						e.Upstreams().All[0].Sweep(time.Time{})
					}
					if resp, body := e.get("/"); resp.StatusCode != 200 || body != "own" {
						t.Errorf("%s, kept %t: the next client: %d %q", method, kept, resp.StatusCode, body)
					}
				}
			}
			attempts := "sluice_origin_attempts_total{origin=" + o.url() + "}"
			if m := e.rest(); m[attempts] != float64(len(o.requests())) {
				t.Errorf("%v attempts were counted, %d made", m[attempts], len(o.requests()))
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
		"an empty line first":           "\r\n" + okHead + length,
		"two spaces":                    "HTTP/1.1  200 OK\r\n" + length,
		"tab":                           "HTTP/1.1\t200 OK\r\n" + length,
		"status of two digits":          "HTTP/1.1 20 OK\r\n" + length,
		"status of four digits":         "HTTP/1.1 2000 OK\r\n" + length,
		"status below 100":              "HTTP/1.1 099 OK\r\n" + length,
		"status that is no number":      "HTTP/1.1 2x0 OK\r\n" + length,
		"carriage return in a reason":   "HTTP/1.1 200 O\rK\r\n" + length,
		"null byte in a reason":         "HTTP/1.1 200 \x00\r\n" + length,
		"bare line feed":                okHead + "X: y\n" + length,
		"bare line feed, status line":   "HTTP/1.1 200 OK\n" + length,
		"folded line":                   okHead + "X: y\r\n z\r\n" + length,
		"space before the colon":        okHead + "X : y\r\n" + length,
		"no colon":                      okHead + "XY\r\n" + length,
		"no name":                       okHead + ": y\r\n" + length,
		"space in a name":               okHead + "X Y: z\r\n" + length,
		"null byte":                     okHead + "X: \x00\r\n" + length,
		"control byte":                  okHead + "X: \x01\r\n" + length,
		"carriage return in a value":    okHead + "X: y\rz\r\n" + length,
		"carriage return before a CRLF": okHead + "X: y\r\r\n" + length,
		"many headers":                  okHead + strings.Repeat("X: y\r\n", 130) + length,
		"one length twice":              okHead + "Content-Length: 3\r\n" + length,
		"list of lengths":               okHead + "Content-Length: 3, 3\r\n\r\nabc",
		"signed length":                 okHead + "Content-Length: +3\r\n\r\nabc",
		"negative length":               okHead + "Content-Length: -3\r\n\r\nabc",
		"hexadecimal length":            okHead + "Content-Length: 0x3\r\n\r\nabc",
		"no length":                     okHead + "Content-Length:\r\n\r\nabc",
		"length beyond 64 bits":         okHead + "Content-Length: 18446744073709551619\r\n\r\nabc",
		"length beyond 62 bits":         okHead + "Content-Length: 9223372036854775807\r\n\r\nabc",
		"space before a length's colon": okHead + "Content-Length : 3\r\n\r\nabc",
		"another coding":                okHead + "Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"nearly chunked":                okHead + "Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"identity":                      okHead + "Transfer-Encoding: identity\r\n\r\nabc",
		"chunked twice":                 okHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"chunked, then a length":        okHead + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"chunked of HTTP/1.0":           "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"length of an interim answer":   "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc" + okHead + length,
	} {
		t.Run(name, func(t *testing.T) {
			o := startRecorder(t, func(n int, _ string) string {
				if n == 0 {
					return answer
				}
				return hello(n, "")
			})
			e := startConfig(t, withoutRules(t, o.url()))
			if resp, body := e.get("/"); resp.StatusCode != 502 || !strings.Contains(body, `"origin_failed"`) {
				t.Errorf("%d %q, want 502", resp.StatusCode, body)
			}
			if n := len(o.requests()); n != 1 {
				t.Errorf("%d hits, want 1", n)
			}
			if resp, body := e.get("/"); resp.StatusCode != 200 || body != "hello" || o.connections() != 2 {
				t.Errorf("the next: %d %q on connection %d", resp.StatusCode, body, o.connections())
			}
		})
	}
}

// An origin that cannot be reached is asked by nobody's request, and says so at once.
func TestOriginDown(t *testing.T) {
	e := startConfig(t, withoutRules(t, "http://127.0.0.1:1"))
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"} {
		resp, body := e.talk().say(request)
		if resp.StatusCode != 502 || body != `{"error":{"code":"origin_unreachable","message":"The server behind this one cannot be reached."}}`+"\n" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
	e.rest()
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
				yaml, connections := startSpeaker(t, 0, func(s *speaker) {
					for n := 0; s.next() != nil; n++ {
						if n == 0 {
							s.write(ownAnswer)
							continue
						}
						s.write(answer[:cut])
						s.write(answer[cut:])
					}
				})
				e := startEdge(t, "", strings.Replace(yaml, "timeout: 10s", "timeout: 1h", 1)) // a caller gives up before that
				e.get("/")
				for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"} {
					before := connections()
					if resp, body := e.talk().say(request); resp.StatusCode != 502 || !strings.Contains(body, `"origin_failed"`) {
						t.Errorf("%d %q, want 502", resp.StatusCode, body)
					}
					if n := connections() - before; n != 0 {
						t.Errorf("%d more tries", n)
					}
					e.get("/") // the next has a connection of its own
				}
				e.rest()
			}
		})
	}
}
