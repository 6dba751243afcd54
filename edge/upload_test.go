package edge

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/front"
	"sluice/edge/listen"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// A sender is a client in memory: what it sends is there from the beginning, at most so many bytes at once, and what it gets is kept.
type sender struct {
	repeater
	sends string
	most  int
	got   bytes.Buffer
}

func (c *sender) Read(p []byte) (int, error) {
	if c.sends == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.most)], c.sends)
	c.sends = c.sends[n:]
	return n, nil
}

func (c *sender) Write(p []byte) (int, error) { return c.got.Write(p) }
func (c *sender) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// answers is the status of each answer that the client got.
func (c *sender) answers(method string) (all []int, last *http.Response) {
	for br := bufio.NewReader(&c.got); ; {
		a, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return all, last
		}
		_, _ = io.Copy(io.Discard, a.Body)
		all, last = append(all, a.StatusCode), a
	}
}

// A hasty origin answers when everybody else waits for something, whatever it has taken by then. It takes so many bytes.
type hasty struct {
	repeater
	takes  int
	answer string
}

func (o *hasty) Read(p []byte) (int, error) {
	time.Sleep(time.Nanosecond) // of a clock that stands still while anybody else is at work
	if o.answer == "" {
		return 0, io.EOF
	}
	n := copy(p, o.answer)
	o.answer = o.answer[n:]
	return n, nil
}

func (o *hasty) Write(p []byte) (int, error) {
	if o.takes -= len(p); o.takes < 0 {
		return max(0, len(p)+o.takes), syscall.EPIPE
	}
	return len(p), nil
}

// memoryServer is a server with one connection to its origin.
func memoryServer(t testing.TB, origin net.Conn, yaml string) *Server {
	t.Helper()
	s := newServer(t, parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\n"+yaml))
	o := s.Upstreams().All[0]
	o.Idle = append(o.Idle, &upstream.Link{Conn: origin, Origin: o, Until: time.Now().Add(time.Hour)})
	return s
}

// Where an origin answers and takes no more of the request, or the request turns out to be malformed, the rest of its body is not the
// client's next request.
func TestRestOfABodyIsNoRequest(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	rest := strings.Repeat(smuggled, 5000)
	for _, test := range []struct {
		name, sends string
		most, takes int
		whole       bool // all of the body has been read: the connection goes on
	}{
		{"in pieces", post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 10000) + rest, 1000, 9000, false},
		{"all at once", post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000), 1 << 20, 9000, true},
		{"long", post + "Content-Length: 200000\r\n\r\n" + strings.Repeat("x", 100000) + rest, 1000, 90000, false},
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n4000\r\n" + rest, 1000, 9000, false},
		{"malformed", post + "Transfer-Encoding: chunked\r\n\r\nx\r\n" + rest, 1000, 9000, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memoryServer(t, &hasty{takes: test.takes, answer: "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"}, "")
				client := &sender{sends: test.sends, most: test.most}
				c := (&listen.Listener{Registry: s.Registry()}).Admit(client)
				s.ServeConn(c)
				all, last := client.answers("POST")
				if len(all) != 1 || all[0] != 413 || last.Close == test.whole || c.Linger.Load() == test.whole {
					t.Errorf("%d answers, the first %d, close %t, lingers %t", len(all), all[0], last.Close, c.Linger.Load())
				}
			})
		})
	}
}

// A connection on which an origin answered a request that it has not taken whole is not used again: what comes next would be
// its rest.
func TestHalfTakenRequestEndsTheLink(t *testing.T) {
	for _, takes := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s := memoryServer(t, &hasty{takes: takes, answer: "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"}, "")
			client := &sender{sends: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", most: 1000}
			s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
			all, _ := client.answers("GET")
			if idle := len(s.Upstreams().All[0].Idle); len(all) != 1 || all[0] != 431 || idle != takes/1000 {
				t.Errorf("%d bytes taken: answers %d, %d connections kept", takes, all, idle)
			}
		})
	}
}

// The time that an origin has to answer does not begin before another was found to be out of reach.
func TestTimeOfTheNextServer(t *testing.T) {
	s := memoryServer(t, nil, "")
	g := s.Upstreams().Of(nil)
	far, near := g.Servers[0], upstream.NewOrigin(&url.URL{Scheme: "http", Host: "127.0.0.1:10"})
	far.Idle = nil
	conn := &timed{repeater: repeater{text: []byte("HTTP/1.1 204 No Content\r\n\r\n")}}
	near.Idle = []*upstream.Link{{Conn: conn, Origin: near, Until: time.Now().Add(time.Hour)}}
	g.Servers = append(g.Servers, near)
	for range 2 { // the one out of reach is asked first by one of them
		on := front.New((&listen.Listener{Registry: s.Registry()}).Admit(&sender{})).(*front.Guarded)
		e := s.Begin(on)
		if r := e.In.Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), message.MaxLines); r != nil {
			t.Fatal(r)
		}
		conn.due = time.Time{}
		before := far.Attempts.Load()
		status := e.Forward(time.Hour) // so long it took to connect
		if far.Attempts.Load() > before && (status != 204 || !conn.due.After(time.Now())) {
			t.Errorf("%d, %v before it began", status, time.Since(conn.due))
		}
		e.Finish()
	}
	if far.Attempts.Load() == 0 {
		t.Fatal("the one out of reach was not asked")
	}
}

// timed is a connection that notes its deadline.
type timed struct {
	repeater
	due time.Time
}

func (c *timed) SetDeadline(due time.Time) error { c.due = due; return nil }

// The body of a request that no origin can have is not its client's next requests. It is read, if that is not much, or ends the
// connection.
func TestBodyThatNoOriginGets(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name, sends string
		received    float64
	}{
		{"small", post + "Content-Length: 35\r\n\r\n" + smuggled, 2},
		{"long", post + "Content-Length: 35000\r\n\r\n" + strings.Repeat(smuggled, 1000), 2},
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n23\r\n" + smuggled + "\r\n0\r\n\r\n", 2},
		{"too long", post + "Content-Length: 70000\r\n\r\n" + strings.Repeat(smuggled, 2000), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memoryServer(t, nil, "")
				s.Upstreams().All[0].Idle = nil // and nobody listens there
				client := &sender{sends: test.sends + "GET / HTTP/1.1\r\nHost: a\r\n\r\n", most: 1000}
				s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
				all, _ := client.answers("POST")
				if n := metricsOf(t, s)["sluice_received_total"]; n != test.received || len(all) != int(n) || all[0] != 502 || all[len(all)-1] != 502 {
					t.Errorf("%v requests received, %d answers, the last %d", n, len(all), all[len(all)-1])
				}
			})
		})
	}
}

// The client of a long body has header_timeout once, and not again when the first of it is there.
func TestLongBodyIsLateOnce(t *testing.T) {
	for name, framing := range map[string]string{"long": "Content-Length: 20000\r\n\r\n", "longer": "Content-Length: 100000\r\n\r\n", "chunked": "Transfer-Encoding: chunked\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link, origin := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, origin) }()
				s := memoryServer(t, link, "limits: {header_timeout: 10s}")
				start, took := time.Now(), time.Duration(0)
				var got []byte
				serveAlone(s, unchanged, func(client net.Conn) {
					_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+framing)
					time.Sleep(9 * time.Second)
					_, _ = io.WriteString(client, "1")
					_, _ = client.Read(make([]byte, 1)) // the answer
					took = time.Since(start)
					got, _ = io.ReadAll(client)
				})
				if !strings.HasPrefix(string(got), "TTP/1.1 408 ") || took.Truncate(time.Second) != 10*time.Second {
					t.Errorf("after %v: %q", took, got)
				}
			})
		})
	}
}
