package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// A slowOrigin answers /slow when it is released, and notices when the edge gives such a request up; it answers all else at once.
type slowOrigin struct {
	t       *testing.T
	url     string
	arrived chan string // the query of each slow request
	given   chan string // and of each that was given up
	release func()
}

func startSlowOrigin(t *testing.T, status int) *slowOrigin {
	o, leave := &slowOrigin{t: t, arrived: make(chan string, 100), given: make(chan string, 100)}, make(chan struct{})
	o.release = sync.OnceFunc(func() { close(leave) })
	o.url = netOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			o.arrived <- r.URL.RawQuery
			select {
			case <-leave:
			case <-r.Context().Done():
				o.given <- r.URL.RawQuery
				return
			}
		}
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begun and ")
			w.(http.Flusher).Flush()
			<-leave
		}
		if status != 200 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, "done")
	})
	t.Cleanup(o.release)
	return o
}

// edge serves before the origin, which may take a minute.
func (o *slowOrigin) edge(t *testing.T, yaml string, change ...func(*Server)) *edgeUnderTest {
	return startEdge(t, "", "origins: [{servers: ['"+o.url+"'], timeout: 1m}]\n"+yaml, change...)
}

// receive waits for a word.
func receive(t *testing.T, what string, words <-chan string) string {
	t.Helper()
	select {
	case w := <-words:
		return w
	case <-time.After(time.Minute):
		t.Fatalf("not within 10 s: %s", what)
		return ""
	}
}

// keep has a connection ask for what takes long, and returns once the origin has heard of it.
func (o *slowOrigin) keep(c io.Writer) {
	o.t.Helper()
	_, _ = io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	receive(o.t, "at the origin", o.arrived)
}

// local is a source on this machine, one of many.
func local(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }

// from is a connection of another source.
func (e *caller) from(source netip.Addr) *talk {
	e.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: source.AsSlice()}}
	c, err := d.Dial("tcp", e.addr)
	must(e.t, err)
	e.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &talk{e.t, c, bufio.NewReader(c)}
}

// served reports whether another source is served on a new connection.
func (e *caller) served(source netip.Addr) bool {
	e.t.Helper()
	c := e.from(source)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil)
	return err == nil && resp.StatusCode == 200
}

// reset ends a connection out of order.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// An origin's work for a client that has reset its connection ends at once, whatever the request was.
func TestResetEndsARequest(t *testing.T) {
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "")
	body := strings.Repeat("x", 200_000)
	for query, rest := range map[string]string{
		"get":        "\r\n",
		"piped":      "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", // bytes of the next request are there
		"body":       "Content-Length: 3\r\n\r\nabc",
		"long+body":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked":    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"with+close": "Connection: close\r\n\r\n",
	} {
		c := e.dial()
		_, _ = io.WriteString(c, "PUT /slow?"+query+" HTTP/1.1\r\nHost: a\r\n"+rest)
		receive(t, query+" at the origin", o.arrived)
		reset(c)
		if got := receive(t, query+" is given up", o.given); got != query {
			t.Errorf("%s instead of %s", got, query)
		}
	}
	until(t, "all are closed", func() bool { return e.Connections() == 0 })
	if m := e.rest(); m["sluice_aborted_total"] == 0 {
		t.Errorf("metrics: %v", m)
	}
	if !e.served(local(2)) {
		t.Error("the origin was taken to be at fault")
	}
}

// The same over TLS, where the end of the connection says nothing to TLS itself.
func TestResetEndsARequestOverTLS(t *testing.T) {
	certificates := certificatesIn(t, t.TempDir())
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "")
	ln := listenHere(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.ServeTLS(ln, certificates) })
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	raw, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
	o.keep(c)
	reset(raw)
	receive(t, "given up", o.given)
}

// A client that has closed its connection may have closed one direction only: it still gets its answer for a while. It counts
// against no cap meanwhile, so others are served, of its own source as well. Then the request ends.
func TestHalfClosedClients(t *testing.T) {
	o := startSlowOrigin(t, 200)
	const caps = "limits: {connections: 5, connections_per_source: 5}"
	closed := func(e *edgeUnderTest) (list []*talk) {
		for range 4 {
			c := e.talk()
			o.keep(c)
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			list = append(list, c)
		}
		return list
	}
	for _, c := range closed(o.edge(t, caps, halfClosed(0))) {
		receive(t, "given up", o.given)
		if resp, _ := c.hear("GET"); resp.StatusCode != 499 || !resp.Close {
			t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
		}
	}
	e := o.edge(t, caps, halfClosed(time.Hour))
	stream := e.talk() // its answer has begun, and goes on however long it takes
	_, _ = io.WriteString(stream, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = stream.Conn.(*net.TCPConn).CloseWrite()
	list := closed(e)
	until(t, "another source is served", func() bool { return e.served(local(2)) })
	until(t, "the same source is served", func() bool { return e.served(local(1)) })
	o.release()
	if _, body := stream.hear("GET"); body != "begun and done" {
		t.Errorf("streamed: %q", body)
	}
	for _, c := range list {
		if resp, body := c.hear("GET"); resp.StatusCode != 200 || body != "done" {
			t.Errorf("half closed: %d %q", resp.StatusCode, body)
		}
	}
	e.rest()
}

// What a client sends while its origin is at work is its next request, and nothing of it is lost. The connection goes on.
func TestRequestsSentDuringAnother(t *testing.T) {
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "")
	c, other := e.talk(), e.dial()
	watched := func() { // as long as it takes to see another client go that came later
		o.keep(other)
		reset(other)
		receive(t, "given up", o.given)
		other = e.dial()
	}
	o.keep(c)
	watched()
	for _, part := range []string{"POST /a HTTP/1.1\r\nHo", "st: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost:"} {
		_, _ = io.WriteString(c, part)
		watched()
	}
	o.release()
	for _, method := range []string{"GET", "POST"} {
		if resp, body := c.hear(method); resp.StatusCode != 200 || body != "done" {
			t.Errorf("%s: %d %q", method, resp.StatusCode, body)
		}
	}
	for _, rest := range []string{" a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		if resp, body := c.say("" + rest); resp.StatusCode != 200 || body != "done" {
			t.Errorf("%q: %d %q", rest, resp.StatusCode, body)
		}
	}
}

// Where the answer's status counts, hanging up is no way not to be counted: the request goes on, and its client counts against
// no cap.
func TestHangingUpIsCountedByStatus(t *testing.T) {
	o := startSlowOrigin(t, 401)
	e := o.edge(t, "limits: {connections_per_source: 1}\nrules: [{name: login, limit: 1, window: 1h, count: {statuses: [401]}}]")
	c := e.dial()
	o.keep(c)
	reset(c)
	status := func() int {
		k := e.talk()
		defer k.Close()
		_, _ = io.WriteString(k, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(k.r, nil)
		if err != nil {
			return 0 // it is one too many
		}
		return resp.StatusCode
	}
	until(t, "it counts against no cap", func() bool { return status() == 429 })
	o.release()
	until(t, "it is answered", func() bool { return e.metrics()["sluice_aborted_total"] == 1 })
	if got := status(); got != 429 || len(o.arrived) > 0 {
		t.Errorf("the next attempt: %d, %d more at the origin", got, len(o.arrived))
	}
}

// A client that speaks TLS to a plain port is told at once that nobody there does, and the connection ends.
func TestTLSOnAPlainPort(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "limits: {header_timeout: 30s}")
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and what else a client says"
	for _, sends := range []string{hello, "\r\n" + hello, hello[:1]} {
		c := e.dial() // has ten seconds
		_, _ = io.WriteString(c, sends)
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), `"code":"tls"`) {
			t.Errorf("%q: %q, %v", sends, got, err)
		}
	}
	if m := e.rest(); m["sluice_answers_total{code=400,from=edge}"] != 3 {
		t.Errorf("metrics: %v", m)
	}
}
