package upstream_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/edge/edgetest"
)

// What an origin sends beyond its answer is nobody's answer, also where TLS has it in records of its own: read already and not
// yet looked at, not read yet, or not whole yet. Where the answer announces what must not come, the connection rests, so
// the next client need not wait until it has.
func TestUnsolicitedAnswersReachNoClient(t *testing.T) {
	const rounds = 20
	for _, version := range []uint16{0, tls.VersionTLS13} {
		for _, test := range []struct {
			name, method, Answer string
			announced            bool
		}{
			{"HEAD", "HEAD", edgetest.OKHead + "Content-Length: 44\r\n\r\n", true},
			{"HEAD and chunks", "HEAD", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n", true},
			{"HEAD without a length", "HEAD", edgetest.OKHead + "\r\n", false},
			{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", false},
			{"204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 44\r\n\r\n", true},
			{"204 and chunks", "GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", true},
			{"304", "GET", "HTTP/1.1 304 Not Modified\r\n\r\n", false},
			{"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n", true},
			{"beyond a length", "GET", edgetest.OwnAnswer, false},
			{"beyond chunks", "GET", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nown\r\n0\r\n\r\n", false},
		} {
			for _, how := range []string{"together", "corked", "corked in part", "uncorked", "later", "later in part", "at once"} {
				if how == "at once" && !test.announced {
					continue
				}
				t.Run(edgetest.VersionName(version)+"/"+test.name+"/"+how, func(t *testing.T) {
					t.Parallel()
					answered, sent := make(chan struct{}, 1), make(chan struct{}, 1)
					yaml, _ := edgetest.StartSpeaker(t, version, func(s *edgetest.Speaker) {
						for req := s.Next(); req != nil; req = s.Next() {
							if s.Wire.Uncork(0); req.URL.Path != "/faulty" {
								s.Put(edgetest.OwnAnswer)
								continue
							}
							rest := 0
							switch how {
							case "together":
								s.Put(test.Answer + edgetest.Poison)
							case "corked in part":
								rest = 10
								fallthrough
							case "corked":
								s.Wire.Corked = true
								s.Put(test.Answer)
								s.Put(edgetest.Poison)
							case "uncorked", "at once":
								s.Put(test.Answer)
								s.Put(edgetest.Poison)
							case "later in part":
								rest = 10
								fallthrough
							case "later":
								s.Put(test.Answer)
								<-answered
								s.Wire.Corked = true
								s.Put(edgetest.Poison)
							}
							s.Wire.Uncork(rest)
							sent <- struct{}{}
						}
					})
					e := edgetest.Start(t, "", yaml)
					wrong := 0
					for range rounds {
						first, next := e.Talk(), e.Talk()
						first.Say(test.method + " /faulty HTTP/1.1\r\nHost: a\r\n\r\n")
						answered <- struct{}{}
						if how != "at once" {
							<-sent
						}
						if resp, body := next.Say("GET /own HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || body != "own" {
							wrong++
						}
						if how == "at once" {
							<-sent
						}
						if how != "later" && how != "later in part" {
							<-answered
						}
						first.Close()
						next.Close()
					}
					if wrong > 0 {
						t.Errorf("%d of %d clients got another's bytes", wrong, rounds)
					}
					e.Rest()
				})
			}
		}
	}
}

// A connection on which nothing is out of order is used again, whatever TLS itself has to say meanwhile.
func TestOriginConnectionsAreReused(t *testing.T) {
	for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
		yaml, connections := edgetest.StartSpeaker(t, version, func(s *edgetest.Speaker) {
			for req := s.Next(); req != nil; req = s.Next() {
				text := edgetest.OwnAnswer
				switch req.Method {
				case http.MethodHead:
					text = edgetest.OKHead + "\r\n"
				case http.MethodDelete:
					text = "HTTP/1.1 204 No Content\r\n\r\n"
				}
				s.Wire.Corked = true
				s.Put(text[:len(text)-1])
				s.Put(text[len(text)-1:])
				s.Wire.Uncork(0)
			}
		})
		e := edgetest.Start(t, "", yaml)
		for i := range 21 {
			method := [...]string{"GET", "HEAD", "DELETE"}[i%3]
			if resp, _ := e.Talk().Say(method + " / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode >= 300 {
				t.Errorf("%s: %d", method, resp.StatusCode)
			}
			e.Rest() // a connection is given back after the client has the last byte
		}
		if n := connections(); n != 1 {
			t.Errorf("%s: %d connections for 21 requests, one after the other", edgetest.VersionName(version), n)
		}
	}
}

// A connection whose answer announces a body that it must not have, as nearly every answer to HEAD does, is kept: none ends, and the client's own
// stays open.
func TestConnectionsAreReusedAfterAnnouncedBodies(t *testing.T) {
	const requests = 50
	for _, test := range []struct{ name, request, Answer string }{
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", edgetest.OKHead + "Content-Length: 44\r\n\r\n"},
		{"HEAD and chunks", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n"},
		{"HEAD with a body of its own", "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", edgetest.OKHead + "Content-Length: 44\r\n\r\n"},
		{"304", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ended atomic.Int64
			yaml, connections := edgetest.StartSpeaker(t, 0, func(s *edgetest.Speaker) {
				for s.Next() != nil {
					s.Put(test.Answer)
				}
				ended.Add(1)
			})
			e := edgetest.Start(t, "", yaml)
			c := e.Talk() // one connection of the client's for all of them
			for i := range requests {
				if resp, _ := c.Say(test.request); resp.StatusCode >= 400 || resp.Close {
					t.Fatalf("request %d: %s, the connection ends: %t", i, resp.Status, resp.Close)
				}
			}
			e.Rest()
			o := e.Upstreams().All[0]
			if n := connections(); len(o.Idle) != n || ended.Load() > 0 {
				t.Errorf("of %d connections %d are kept, and %d have ended", n, len(o.Idle), ended.Load())
			}
		})
	}
}

// Something that comes on a kept connection while the edge waits for a request's body is no answer to it: nothing of the request has
// been sent.
func TestUnsolicitedAnswerWhileABodyIsAwaited(t *testing.T) {
	for _, version := range []uint16{0, tls.VersionTLS13} {
		for name, body := range map[string][2]string{
			"long":    {"Content-Length: 100000", strings.Repeat("x", 100_000)},
			"chunked": {"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"},
		} {
			t.Run(edgetest.VersionName(version)+"/"+name, func(t *testing.T) {
				say, said := make(chan struct{}), make(chan struct{})
				yaml, _ := edgetest.StartSpeaker(t, version, func(s *edgetest.Speaker) {
					for req := s.Next(); req != nil; req = s.Next() {
						if s.Put(edgetest.OwnAnswer); req.URL.Path == "/faulty" {
							<-say
							s.Put(edgetest.Poison)
							said <- struct{}{}
						}
					}
				})
				e := edgetest.Start(t, "", yaml)
				poisoned := 0
				for range 20 {
					e.Get("/faulty")
					c := e.Talk()
					_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+body[0]+"\r\n\r\n")
					say <- struct{}{}
					<-said
					go func() { _, _ = io.WriteString(c, body[1]) }() // the edge may answer before it has read this
					if resp, text := c.Hear("POST"); text != "own" && resp.StatusCode != 502 {
						poisoned++
					}
					c.Close()
				}
				if poisoned > 0 {
					t.Errorf("%d of 20 clients got what nobody had asked for", poisoned)
				}
				e.Rest()
			})
		}
	}
}

// An answer that is there before a request was sent goes to the first request, as that of an origin does that has no
// room. But the true answer may follow, so nobody else asks on that connection.
func TestAnswerBeforeTheRequest(t *testing.T) {
	for _, request := range []string{
		"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	} {
		yaml, _ := edgetest.StartSpeaker(t, tls.VersionTLS12, func(s *edgetest.Speaker) {
			s.Wire.Free = 1 // the last of the handshake and the answer come together
			if s.Conn.(*tls.Conn).Handshake() != nil {
				return
			}
			s.Put("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull")
			s.Wire.Uncork(0)
			for late := s.Next(); late != nil; {
				next := s.Next()
				s.Put(fmt.Sprintf(edgetest.OKHead+"Content-Length: %d\r\n\r\n%s", len(late.URL.Path), late.URL.Path))
				late = next
			}
		})
		e := edgetest.Start(t, "", yaml)
		for i := range 5 {
			if resp, body := e.Talk().Say(fmt.Sprintf(request, i)); resp.StatusCode != 503 || body != "full" {
				t.Errorf("%.5s %d: %d %q", request, i, resp.StatusCode, body)
			}
			e.Rest()
		}
	}
}
