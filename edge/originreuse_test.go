package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	ownAnswer = okHead + "Content-Length: 3\r\n\r\nown"
	poison    = okHead + "Content-Length: 6\r\n\r\npoison" // an answer that nobody asked for
)

// A held connection keeps what is written to it while it is corked.
type held struct {
	net.Conn
	corked bool
	kept   []byte
	free   int // if not 0, it is corked after so many writes
}

func (c *held) Write(p []byte) (int, error) {
	if c.free > 0 {
		c.free--
		c.corked = c.free == 0
		return c.Conn.Write(p)
	}
	if c.corked {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// uncork writes what was kept, but for its last bytes, which stay.
func (c *held) uncork(but int) {
	n := max(0, len(c.kept)-but)
	_, _ = c.Conn.Write(c.kept[:n])
	c.kept, c.corked = c.kept[n:], false
}

// A speaker plays one connection of an origin.
type speaker struct {
	net.Conn
	wire *held
	r    *bufio.Reader
}

func (s *speaker) write(text string) { _, _ = io.WriteString(s, text) }

// next reads a request, body and all; nil means that there are no more.
func (s *speaker) next() *http.Request {
	req, err := http.ReadRequest(s.r)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if err != nil {
		return nil
	}
	return req
}

// startSpeaker lets play have each connection to an origin, over this version of TLS at most, or, with 0, without it. It returns
// the origin's configuration and how many connections there were.
func startSpeaker(t *testing.T, version uint16, play func(*speaker)) (yaml string, connections func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	yaml = fmt.Sprintf("origins: [{servers: ['http://%s'], timeout: 10s}]", ln.Addr())
	var cert tls.Certificate
	if version > 0 {
		base := filepath.Join(t.TempDir(), "server")
		writeCertificate(t, base, "origin.internal")
		if cert, err = tls.LoadX509KeyPair(base+".crt", base+".key"); err != nil {
			t.Fatal(err)
		}
		yaml = fmt.Sprintf("origins: [{servers: ['https://%s'], timeout: 10s, tls: {ca_file: %s.crt, server_name: origin.internal}}]", ln.Addr(), base)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				s := &speaker{wire: &held{Conn: c}}
				if s.Conn = s.wire; version > 0 {
					s.Conn = tls.Server(s.wire, &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version})
				}
				s.r = bufio.NewReader(s)
				play(s)
			})
		}
	})
	return yaml, func() int { mu.Lock(); defer mu.Unlock(); return len(conns) }
}

func versionName(version uint16) string {
	if version == 0 {
		return "plain"
	}
	return tls.VersionName(version)
}

// What an origin sends beyond its answer is nobody's answer, also where TLS has it in records of its own: read already and not
// yet looked at, not read yet, or not whole yet. Where the answer announces what must not come, the connection rests, so
// the next client need not wait until it has.
func TestUnsolicitedAnswersReachNoClient(t *testing.T) {
	const rounds = 20
	for _, version := range []uint16{0, tls.VersionTLS13} {
		for _, test := range []struct {
			name, method, answer string
			announced            bool
		}{
			{"HEAD", "HEAD", okHead + "Content-Length: 44\r\n\r\n", true},
			{"HEAD and chunks", "HEAD", okHead + "Transfer-Encoding: chunked\r\n\r\n", true},
			{"HEAD without a length", "HEAD", okHead + "\r\n", false},
			{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", false},
			{"204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 44\r\n\r\n", true},
			{"204 and chunks", "GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", true},
			{"304", "GET", "HTTP/1.1 304 Not Modified\r\n\r\n", false},
			{"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n", true},
			{"beyond a length", "GET", ownAnswer, false},
			{"beyond chunks", "GET", okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nown\r\n0\r\n\r\n", false},
		} {
			for _, how := range []string{"together", "corked", "corked in part", "uncorked", "later", "later in part", "at once"} {
				if how == "at once" && !test.announced {
					continue
				}
				t.Run(versionName(version)+"/"+test.name+"/"+how, func(t *testing.T) {
					t.Parallel()
					answered, sent := make(chan struct{}, 1), make(chan struct{}, 1)
					yaml, _ := startSpeaker(t, version, func(s *speaker) {
						for req := s.next(); req != nil; req = s.next() {
							if s.wire.uncork(0); req.URL.Path != "/faulty" {
								s.write(ownAnswer)
								continue
							}
							rest := 0
							switch how {
							case "together":
								s.write(test.answer + poison)
							case "corked in part":
								rest = 10
								fallthrough
							case "corked":
								s.wire.corked = true
								s.write(test.answer)
								s.write(poison)
							case "uncorked", "at once":
								s.write(test.answer)
								s.write(poison)
							case "later in part":
								rest = 10
								fallthrough
							case "later":
								s.write(test.answer)
								<-answered
								s.wire.corked = true
								s.write(poison)
							}
							s.wire.uncork(rest)
							sent <- struct{}{}
						}
					})
					e := startEdge(t, "", yaml)
					wrong := 0
					for range rounds {
						first, next := e.talk(), e.talk()
						first.say(test.method + " /faulty HTTP/1.1\r\nHost: a\r\n\r\n")
						answered <- struct{}{}
						if how != "at once" {
							<-sent
						}
						if resp, body := next.say("GET /own HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || body != "own" {
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
					e.rest()
				})
			}
		}
	}
}

// A connection on which nothing is out of order is used again, whatever TLS itself has to say meanwhile.
func TestOriginConnectionsAreReused(t *testing.T) {
	for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
		yaml, connections := startSpeaker(t, version, func(s *speaker) {
			for req := s.next(); req != nil; req = s.next() {
				text := ownAnswer
				switch req.Method {
				case http.MethodHead:
					text = okHead + "\r\n"
				case http.MethodDelete:
					text = "HTTP/1.1 204 No Content\r\n\r\n"
				}
				s.wire.corked = true
				s.write(text[:len(text)-1])
				s.write(text[len(text)-1:])
				s.wire.uncork(0)
			}
		})
		e := startEdge(t, "", yaml)
		for i := range 21 {
			method := [...]string{"GET", "HEAD", "DELETE"}[i%3]
			if resp, _ := e.talk().say(method + " / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode >= 300 {
				t.Errorf("%s: %d", method, resp.StatusCode)
			}
			e.rest() // a connection is given back after the client has the last byte
		}
		if n := connections(); n != 1 {
			t.Errorf("%s: %d connections for 21 requests, one after the other", versionName(version), n)
		}
	}
}

// A connection whose answer announces a body that it must not have, as nearly every answer to HEAD does, is kept: none ends, and the client's own
// stays open.
func TestConnectionsAreReusedAfterAnnouncedBodies(t *testing.T) {
	const requests = 50
	for _, test := range []struct{ name, request, answer string }{
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", okHead + "Content-Length: 44\r\n\r\n"},
		{"HEAD and chunks", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", okHead + "Transfer-Encoding: chunked\r\n\r\n"},
		{"HEAD with a body of its own", "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", okHead + "Content-Length: 44\r\n\r\n"},
		{"304", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ended atomic.Int64
			yaml, connections := startSpeaker(t, 0, func(s *speaker) {
				for s.next() != nil {
					s.write(test.answer)
				}
				ended.Add(1)
			})
			e := startEdge(t, "", yaml)
			c := e.talk() // one connection of the client's for all of them
			for i := range requests {
				if resp, _ := c.say(test.request); resp.StatusCode >= 400 || resp.Close {
					t.Fatalf("request %d: %s, the connection ends: %t", i, resp.Status, resp.Close)
				}
			}
			e.rest()
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
			t.Run(versionName(version)+"/"+name, func(t *testing.T) {
				say, said := make(chan struct{}), make(chan struct{})
				yaml, _ := startSpeaker(t, version, func(s *speaker) {
					for req := s.next(); req != nil; req = s.next() {
						if s.write(ownAnswer); req.URL.Path == "/faulty" {
							<-say
							s.write(poison)
							said <- struct{}{}
						}
					}
				})
				e := startEdge(t, "", yaml)
				poisoned := 0
				for range 20 {
					e.get("/faulty")
					c := e.talk()
					_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+body[0]+"\r\n\r\n")
					say <- struct{}{}
					<-said
					go func() { _, _ = io.WriteString(c, body[1]) }() // the edge may answer before it has read this
					if resp, text := c.hear("POST"); text != "own" && resp.StatusCode != 502 {
						poisoned++
					}
					c.Close()
				}
				if poisoned > 0 {
					t.Errorf("%d of 20 clients got what nobody had asked for", poisoned)
				}
				e.rest()
			})
		}
	}
}

// An answer that is there before anything was asked goes to who asks first, as that of an origin does that has no room. But the
// true answer may follow, so nobody else asks on that connection.
func TestAnswerBeforeTheRequest(t *testing.T) {
	for _, request := range []string{
		"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	} {
		yaml, _ := startSpeaker(t, tls.VersionTLS12, func(s *speaker) {
			s.wire.free = 1 // the last of the handshake and the answer come together
			if s.Conn.(*tls.Conn).Handshake() != nil {
				return
			}
			s.write("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull")
			s.wire.uncork(0)
			for late := s.next(); late != nil; {
				next := s.next()
				s.write(fmt.Sprintf(okHead+"Content-Length: %d\r\n\r\n%s", len(late.URL.Path), late.URL.Path))
				late = next
			}
		})
		e := startEdge(t, "", yaml)
		for i := range 5 {
			if resp, body := e.talk().say(fmt.Sprintf(request, i)); resp.StatusCode != 503 || body != "full" {
				t.Errorf("%.5s %d: %d %q", request, i, resp.StatusCode, body)
			}
			e.rest()
		}
	}
}
