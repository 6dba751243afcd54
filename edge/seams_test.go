package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/edge/config"
)

// PHP takes a space, a dot and an unmatched bracket in the name of a cookie for an underscore, and of cookies of one name the first.
func TestCookieNamesOfPHP(t *testing.T) {
	o := startRecorder(t, hello)
	for _, name := range []string{"user.id", "user id", "user[id"} {
		e := startEdge(t, o.url(), "rules: [{name: k, key: 'cookie:user_id', limit: 3, window: 1m, mitigation_timeout: 1m}]")
		c, passed := e.talk(), 0
		for i := range 20 {
			resp, _ := c.say(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nCookie: %s=the-same; user_id=%d\r\n\r\n", name, i))
			if resp.StatusCode == 200 {
				passed++
			}
		}
		if passed > 3 {
			t.Errorf("%q: %d of 20 requests passed a limit of 3", name, passed)
		}
	}
}

// Of a server that a reload took away no connection is kept: one with a request under way is closed after its answer.
func TestNoLinkToAServerThatIsGone(t *testing.T) {
	ln := listenHere(t)
	arrived, leave := make(chan bool), make(chan bool)
	var open atomic.Int64
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-leave
		_, _ = io.WriteString(w, "hello")
	}), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}}
	go func() { _ = old.Serve(ln) }()
	at := func(origin string) *config.Config {
		c, err := config.Parse("", []byte("origins: [{servers: ['"+origin+"'], timeout: 9s}]"))
		must(t, err)
		return c
	}
	e := startConfig(t, at("http://"+ln.Addr().String()))
	c := e.talk()
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
	<-arrived
	must(t, e.Apply(at(startRecorder(t, hello).url())))
	close(leave)
	c.hear("GET")
	for range 100 {
		e.Sweep(time.Now().Add(time.Hour)) // whatever is idle is too old
	}
	until(t, "no connection is kept", func() bool { return open.Load() == 0 })
}

// An answer to HEAD has no body, whoever refuses the request and whyever.
func TestHeadHasNoBody(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "")
	for _, rest := range []string{"Host: a\r\nContent-Length: x", "X: no host", "Host: a%zz", "Host: a\r\nTrailer: content-length", "Host: a\r\nExpect: x"} {
		_, body, _ := strings.Cut(e.raw("HEAD / HTTP/1.1\r\n"+rest+"\r\n\r\n"), "\r\n\r\n")
		if body != "" {
			t.Errorf("%q: %q", rest, body)
		}
	}
}

// What is no head is charged to its source, with or without an end.
func TestUnendedHeadsAreCharged(t *testing.T) {
	o := startRecorder(t, hello)
	for name, text := range map[string]string{"ended": "GARBAGE\r\n\r\n", "unended": "GARBAGE\r\n", "tls": "\x16\x03\x01\x00\x00"} {
		e := startEdge(t, o.url(), "rules: [{name: r, match: {path: '/*'}, limit: 2, window: 1m, mitigation_timeout: 1m}]")
		refused := 0
		for range 10 {
			c := e.talk()
			_, _ = io.WriteString(c, text)
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			all, _ := io.ReadAll(c.r)
			if strings.HasPrefix(string(all), "HTTP/1.1 429 ") {
				refused++
			}
		}
		if refused != 8 {
			t.Errorf("%s: %d of 10 refused, with a limit of 2", name, refused)
		}
	}
}

// A head of limits.header_bytes is served however it is spelled: fasthttp is shown one in which a space stands after each colon, and
// that must fit its buffer as well.
func TestLongestHeadIsShown(t *testing.T) {
	o := startRecorder(t, hello)
	for _, most := range []int{1 << 10, 32 << 10, 1 << 20} {
		e := startEdge(t, o.url(), fmt.Sprintf("limits: {header_bytes: %d, header_lines: 1024}", most))
		for _, colon := range []string{": ", ":"} {
			for _, framing := range []string{"", "Content-Length: 0\r\n"} {
				head := "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + framing
				for range 100 {
					head += "x" + colon + "y\r\n"
				}
				head += "p: " + strings.Repeat("z", most-len(head)-len("p: \r\n\r\n")) + "\r\n\r\n"
				if got, _, _ := strings.Cut(e.raw(head), "\r\n"); got != "HTTP/1.1 200 OK" || len(head) != most {
					t.Errorf("%d bytes, %q %q: %s", len(head), colon, framing, got)
				}
			}
		}
	}
}

// A key is what the origin gets. Many servers take X_Api_Key for X-Api-Key, which is how the edge treats the names that route.
func TestKeySpelledWithUnderscores(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "rules: [{name: k, key: 'header:x-api-key', limit: 3, window: 1m, mitigation_timeout: 1m}]")
	c, passed := e.talk(), 0
	for i := range 20 {
		resp, _ := c.say(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: %d\r\nX_Api_Key: the-same\r\n\r\n", i))
		if resp.StatusCode == 200 {
			passed++
		}
	}
	if passed > 3 {
		t.Errorf("%d of 20 requests passed a limit of 3; the origin got %q", passed, o.requests()[19])
	}
}

// A request of which nothing could be written to a kept connection goes to a new one, though its body is long and came late.
func TestLateBodyAfterAKeptConnectionEnded(t *testing.T) {
	for _, size := range []int{16 << 10, 20 << 10, 100 << 10} {
		ln := listenHere(t)
		first := make(chan net.Conn, 10)
		go func() {
			_ = http.Serve(noting{ln, first}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				_, _ = fmt.Fprint(w, n)
			}))
		}()
		e := startEdge(t, "http://"+ln.Addr().String(), "")
		c := e.talk()
		c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		until(t, "the request has come", func() bool { return e.stats.received.Load() == 2 })
		(<-first).Close() // the origin has waited long enough
		if resp, body := c.say(strings.Repeat("x", size)); resp.StatusCode != 200 || body != fmt.Sprint(size) {
			t.Errorf("%d bytes: %d %s", size, resp.StatusCode, body)
		}
	}
}

// noting tells of each connection.
type noting struct {
	net.Listener
	conns chan net.Conn
}

func (l noting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns <- c
	}
	return c, err
}

// At the cap a connection that says nothing makes room for others, on the listener for TLS as on the plain one.
func TestSilentTLSConnectionsMakeRoom(t *testing.T) {
	certificates := certificatesIn(t, t.TempDir())
	o := startRecorder(t, hello)
	for _, secure := range []bool{false, true} {
		e := startEdge(t, o.url(), "limits: {connections: 4, header_timeout: 30s}")
		addr := e.addr
		if secure {
			addr = e.serveTLS(certificates)
		}
		dial := func() net.Conn {
			nc, err := net.Dial("tcp", addr)
			must(t, err)
			t.Cleanup(func() { nc.Close() })
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			return nc
		}
		for range 4 {
			dial()
		}
		silent := 0
		until(t, "they wait", func() bool {
			e.open.Mu.Lock()
			defer e.open.Mu.Unlock()
			for c := range e.open.Conns {
				if now := c.Idle.Load(); now != 0 && c.Idle.CompareAndSwap(now, now-int64(time.Minute)) { // and have done so for long
					silent++
				}
			}
			return silent >= 4
		})
		nc := dial()
		if secure {
			nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
		}
		_, _ = io.WriteString(nc, plainGet)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("TLS %t: %v %v, %v evicted", secure, resp, err, e.metrics()["sluice_connections_evicted_total"])
		}
	}
}

// The time for a whole request is up for one whose client does not send its body, however long that is.
func TestTotalTimeoutOfBodies(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, "", "limits: {header_timeout: 40s}\norigins: [{servers: ['"+o.url()+"'], timeout: 30s, total_timeout: 1s}]")
	for _, framing := range []string{"Content-Length: 10000", "Content-Length: 20000", "Content-Length: 60000", "Content-Length: 100000", "Transfer-Encoding: chunked",
		"Content-Length: 20000\r\nExpect: 100-continue", "Content-Length: 10\r\nExpect: 100-continue"} {
		c, began := e.dial(), time.Now()
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", framing)
		all, _ := io.ReadAll(c)
		line, _, _ := strings.Cut(strings.TrimPrefix(string(all), "HTTP/1.1 100 Continue\r\n\r\n"), "\r\n")
		took := time.Since(began)
		t.Logf("%-60q %-30s %v", framing, line, took.Round(10*time.Millisecond))
		if took > 25*time.Second { // lingering is a second of it
			t.Errorf("%q: %s after %v", framing, line, took)
		}
	}
}

// Nothing is believed of what is said about clients on a connection whose PROXY header names nobody, in a malformed request neither.
func TestUnnamedIsNotBelieved(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "source: {trust: [127.0.0.1], proxy_protocol: true}\n"+fmt.Sprintf(oneRule, 2))
	for range 5 {
		e.raw("PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: x\r\n\r\n")
	}
	if got := e.raw("PROXY TCP4 192.0.2.7 192.0.2.200 4000 80\r\n" + plainGet); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("a source that sent nothing: %.40q", got)
	}
}
