package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/upstream"
)

const (
	expect    = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
	goOn      = "HTTP/1.1 100 Continue\r\n\r\n"
	threeLong = "Content-Length: 3\r\n\r\n"
	both      = edgetest.OKHead + "Date: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 4\r\n\r\nboth"
)

// A client that asks whether to send its body gets the origin's answer to that, and nothing else: a client that is sent
// away does not upload in vain.
func TestExpectIsTheOriginsToAnswer(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nno",
		"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
	} {
		for _, length := range []string{threeLong, "Content-Length: 10000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"} {
			e := edgetest.Start(t, "http://"+edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
				if req, err := http.ReadRequest(r); err != nil || req.Header.Get("Expect") != "100-continue" || r.Buffered() > 0 {
					t.Errorf("%+v, %v, and %d bytes", req, err, r.Buffered())
				}
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(io.Discard, r)
			}), "")
			i := strings.LastIndex(answer, "\r\n\r\n")
			if strings.Contains(answer, "chunked") {
				i = strings.Index(answer, "\r\n\r\n")
			} else if strings.HasSuffix(answer, "no") {
				i = len(answer) - len("\r\n\r\nno")
			}
			if got, want := edgetest.Undated(e.Raw(expect+length)), answer[:i]+"\r\nConnection: close"+answer[i:]; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			e.Rest()
		}
	}
}

// The origin's invitation reaches the client, once, and after it the body the origin.
func TestExpectInvitation(t *testing.T) {
	for _, body := range [][2]string{
		{threeLong, "abc"},
		{"Transfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		{"Content-Length: 100000\r\n\r\n", strings.Repeat("x", 100000)},
	} {
		e := edgetest.Start(t, "http://"+edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
			for range 2 {
				req, err := http.ReadRequest(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c, goOn+goOn)
				if n, err := io.Copy(io.Discard, req.Body); err != nil || n < 3 {
					t.Errorf("%d bytes, %v", n, err)
				}
				_, _ = io.WriteString(c, both)
			}
		}), "")
		c := e.Talk()
		for range 2 { // on the same connections
			_, _ = io.WriteString(c, expect+body[0])
			c.Reads(goOn)
			if _, err := io.WriteString(c, body[1]); err != nil {
				t.Fatal(err)
			}
			if resp, body := c.Hear("POST"); resp.StatusCode != 200 || body != "both" {
				t.Fatalf("%v, %q", resp, body)
			}
		}
		e.Rest()
	}
}

// An origin that says nothing before it has the body gets it: the edge invites the client after a while. Nor does anything hang if the
// client does not wait.
func TestExpectOfSilentOrigins(t *testing.T) {
	for _, body := range [][2]string{
		{threeLong, "abc"},
		{"Transfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		{"Content-Length: 100000\r\n\r\n", strings.Repeat("x", 100000)},
	} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%.10s, waits %t", body[0], waits), func(t *testing.T) {
				t.Parallel()
				o := edgetest.StartRecorder(t, edgetest.Hello)
				e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 500ms}") // less than the wait for the origin
				c := e.Talk()
				_, _ = io.WriteString(c, expect+body[0])
				if waits {
					c.Reads(goOn)
				}
				if resp, got := c.Say(body[1]); resp.StatusCode != 200 || got != "hello" || resp.Close {
					t.Errorf("%d %s", resp.StatusCode, got)
				}
				if got := o.Requests(); len(got) != 1 || !strings.HasSuffix(got[0], body[1]) || strings.Count(got[0], "\r\nExpect: 100-continue\r\n") != 1 {
					t.Errorf("the origin got %.300q", got)
				}
				if resp, got := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 || got != "hello" {
					t.Errorf("the next: %d %s", resp.StatusCode, got)
				}
				e.Rest()
			})
		}
	}
}

// Who has no body to send expects nothing, and whom the edge answers itself is not invited.
func TestExpectInVain(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "")
	c := e.Talk()
	for range 2 {
		if resp, body := c.Say(expect + "Content-Length: 0\r\n\r\n"); resp.StatusCode != 200 || body != "hello" || resp.Close {
			t.Errorf("%d %s, close %t", resp.StatusCode, body, resp.Close)
		}
	}
	for _, got := range o.Requests() {
		if strings.Contains(got, "Expect") {
			t.Errorf("the origin got %q", got)
		}
	}
	for _, yaml := range []string{
		"origins: [{servers: ['http://127.0.0.1:1']}]",
		"origins: [{hosts: [other], servers: ['http://127.0.0.1:1']}]",
		"origins: [{servers: ['" + o.URL() + "']}]\nlimits: {body_bytes: 2}",
	} {
		e := edgetest.Start(t, "", yaml)
		if got := e.Raw(expect + threeLong); !strings.HasPrefix(got, "HTTP/1.1 ") || strings.Contains(got, "100 Continue") || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%s: %q", yaml, got)
		}
		e.Rest()
	}
}

// A client that leaves, or never sends what it was invited to, ends the exchange, and nothing of it speaks against the
// origin. An origin that ends the connection has failed, and the client gets that answer without having sent anything.
func TestExpectBroken(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 200ms}")
	gone := e.Talk()
	_, _ = io.WriteString(gone, expect+threeLong)
	e.AwaitReceived(1)
	gone.Close()
	if got := e.Raw(expect + threeLong); !strings.HasPrefix(got, goOn+"HTTP/1.1 408 ") {
		t.Errorf("silent: %q", got)
	}
	if m := e.Rest(); m["sluice_origin_up{origin="+o.URL()+"}"] != 1 || e.Upstreams().All[0].Failures.Load() != 0 {
		t.Errorf("%v", m)
	}
	for _, got := range o.Requests() {
		if !strings.HasPrefix(got, "BROKEN ") {
			t.Errorf("the origin took this for a request: %q", got)
		}
	}
	e = edgetest.Start(t, "http://"+edgetest.Script(t, "tcp4", func(c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		c.Close()
	}), "")
	if got := e.Raw(expect + threeLong); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Errorf("closed: %q", got)
	}
	e.Rest()
}

// The time for the whole of a request ends a wait for the origin's word as well, and then it was not the client who was slow.
func TestExpectWithinTotalTimeout(t *testing.T) {
	t.Parallel()
	ln := edgetest.ListenHere(t) // and nobody accepts
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: ['http://%s'], total_timeout: 300ms}]", ln.Addr()))
	if got := e.Raw(expect + threeLong); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
		t.Errorf("%q", got)
	}
	e.Rest()
}

// A client that does not wait changes nothing of the time that the origin has.
func TestExpectOfHungOrigins(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, func(int, string) string { return "" })
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], timeout: 1500ms}]", o.URL()))
	if got := e.Raw(expect + threeLong + "abc"); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
		t.Errorf("%q", got)
	}
	e.Rest()
}

// A kept connection that takes nothing of the head is no reason to fail, either.
func TestExpectOnStaleLink(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
	server := e.Upstreams().All[0]
	server.Idle = append(server.Idle, &upstream.Link{Conn: &edgetest.Hasty{}, Origin: server, Until: time.Now().Add(time.Hour)})
	if resp, body := e.Talk().Say(expect + threeLong + "abc"); resp.StatusCode != 200 || body != "hello" || len(o.Requests()) != 1 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	e.Rest()
}
