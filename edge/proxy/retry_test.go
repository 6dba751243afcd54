package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/upstream"
)

// A connection that the origin closes just as the next request comes is the one reason to send a request again, and only
// if that does no harm.
func TestRetryOnStaleConnection(t *testing.T) {
	for _, test := range []struct {
		method, Rest string
		status, hits int
	}{
		{"GET", "\r\n", 200, 3}, {"HEAD", "\r\n", 200, 3}, {"DELETE", "\r\n", 200, 3}, {"PUT", "Content-Length: 3\r\n\r\nabc", 200, 3},
		{"POST", "\r\n", 502, 2}, {"POST", "Content-Length: 3\r\n\r\nabc", 502, 2}, {"PATCH", "\r\n", 502, 2}, {"BREW", "\r\n", 502, 2},
		{"PUT", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, 2},
	} {
		o := edgetest.StartRecorder(t, func(n int, _ string) string {
			if n == 1 {
				return "\x00" // read, and closed without a byte
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		})
		e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
		c := e.Talk()
		c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, _ := c.Say(test.method + " / HTTP/1.1\r\nHost: a\r\n" + test.Rest)
		if hits := len(o.Requests()); resp.StatusCode != test.status || hits != test.hits {
			t.Errorf("%s: %d after %d hits, want %d after %d", test.method, resp.StatusCode, hits, test.status, test.hits)
		}
	}
}

// A kept connection that the origin closes while nothing is under way fails nobody, whatever is asked.
func TestKeptConnectionClosedByOrigin(t *testing.T) {
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"} {
		closed := make(chan struct{})
		o := edgetest.StartRecorder(t, func(n int, _ string) string { return edgetest.Hello(n, "") + "\x00" })
		o.Ended = func() { closed <- struct{}{} }
		e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
		for i := range 3 {
			resp, body := e.Talk().Say(request)
			<-closed
			if resp.StatusCode != 200 || body != "hello" || len(o.Requests()) != i+1 {
				t.Errorf("%q: %d %q after %d hits", request, resp.StatusCode, body, len(o.Requests()))
			}
		}
	}
}

// On a kept connection that takes nothing of a request the origin has seen nothing of it: whatever it is, it goes to a new one.
func TestUnsentRequestsAreSentAgain(t *testing.T) {
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for _, takes := range []int{0, 10} {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
			server := e.Upstreams().All[0]
			server.Idle = append(server.Idle, &upstream.Link{Conn: &edgetest.Hasty{Takes: takes}, Origin: server, Until: time.Now().Add(time.Hour)})
			want, hits := 200, 1
			if takes > 0 && request[0] != 'G' {
				want, hits = 502, 0
			}
			if resp, _ := e.Talk().Say(request); resp.StatusCode != want || len(o.Requests()) != hits || server.Failures.Load() != 0 {
				t.Errorf("%.4s, %d bytes taken: %d, %d hits, %d failures", request, takes, resp.StatusCode, len(o.Requests()), server.Failures.Load())
			}
			e.Rest()
		}
	}
}

// Kept connections that end just when they are used again say nothing about their servers.
func TestStaleConnectionsEjectNoServer(t *testing.T) {
	const links = 8 // to each of two servers
	var warm sync.WaitGroup
	warm.Add(2 * links)
	answer := func(n int, request string) string {
		if strings.HasPrefix(request, "POST ") {
			return "\x00"
		}
		warm.Done()
		warm.Wait()
		return edgetest.Hello(n, "")
	}
	a, b := edgetest.StartRecorder(t, answer), edgetest.StartRecorder(t, answer)
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q, %q]}]", a.URL(), b.URL()))
	var all sync.WaitGroup
	for range 2 * links {
		all.Go(func() { e.Get("/") })
	}
	all.Wait()
	for range links {
		if resp, _ := e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"); resp.StatusCode != 502 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	m := e.Rest()
	for _, o := range []*edgetest.Recorder{a, b} {
		if m["sluice_origin_up{origin="+o.URL()+"}"] != 1 || len(o.Requests()) != links+links/2 {
			t.Errorf("%d requests; up: %v", len(o.Requests()), m["sluice_origin_up{origin="+o.URL()+"}"])
		}
	}
}

// An origin closes a kept connection while a client still sends its body: the client does not notice.
func TestConnectionClosedDuringSlowBody(t *testing.T) {
	end, closed := make(chan struct{}), make(chan struct{})
	e := edgetest.Start(t, "http://"+edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, edgetest.Hello(0, ""))
		<-end
		c.Close()
		close(closed)
	}), "")
	e.Get("/")
	c := e.Talk()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
	e.AwaitReceived(2)
	close(end)
	<-closed
	if resp, body := c.Say("def"); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A request of which nothing could be written to a kept connection goes to a new one, though its body is long and came late.
func TestLateBodyGoesToANewConnection(t *testing.T) {
	for _, size := range []int{16 << 10, 20 << 10, 100 << 10} {
		ln := edgetest.ListenHere(t)
		first := make(chan net.Conn, 10)
		go func() {
			_ = http.Serve(noting{ln, first}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				_, _ = fmt.Fprint(w, n)
			}))
		}()
		e := edgetest.Start(t, "http://"+ln.Addr().String(), "")
		c := e.Talk()
		c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		edgetest.Until(t, "the request has come", func() bool { return e.Metrics()["sluice_received_total"] == 2 })
		(<-first).Close() // the origin has waited long enough
		if resp, body := c.Say(strings.Repeat("x", size)); resp.StatusCode != 200 || body != fmt.Sprint(size) {
			t.Errorf("%d bytes: %d %s", size, resp.StatusCode, body)
		}
	}
}

// noting records each connection.
type noting struct {
	net.Listener
	Conns chan net.Conn
}

func (l noting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.Conns <- c
	}
	return c, err
}
