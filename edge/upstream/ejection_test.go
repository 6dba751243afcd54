package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/http1"
)

// What a client can bring about never takes a server out of its group, however often it is repeated; what shows that a server is
// broken does.
func TestWhichFailuresEjectAServer(t *testing.T) {
	const get, up = "GET / HTTP/1.1\r\nHost: a\r\n", true
	long := strings.Repeat("x", 20<<10)
	answer := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_, _ = io.WriteString(c, text)
		}
	}
	for _, test := range []struct {
		name, request string
		origin        func(c net.Conn, r *bufio.Reader) // then it closes
		want          string                            // the beginning of the answer
		up            bool
	}{
		{"a cookie that comes back twice", get + "Cookie: a=" + long + "\r\n\r\n", func(c net.Conn, r *bufio.Reader) {
			if req, err := http.ReadRequest(r); err == nil {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nSet-Cookie: %s\r\nX-Echo: %[1]s\r\nContent-Length: 0\r\n\r\n", req.Header.Get("Cookie"))
			}
		}, "HTTP/1.1 502 ", up},
		{"a line for each parameter", get + "\r\n", answer(edgetest.OKHead + strings.Repeat("Link: </>\r\n", 200) + "Content-Length: 0\r\n\r\n"), "HTTP/1.1 502 ", up},
		{"a control byte that comes back", get + "\r\n", answer("HTTP/1.1 302 Found\r\nLocation: /\x01\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 502 ", up},
		{"a length that comes back", get + "\r\n", answer(edgetest.OKHead + "X: y\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 502 ", up},
		{"one that takes long", get + "\r\n", answer(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", http1.MaxInterim+1)), "HTTP/1.1 102 ", up},
		{"a method that it does not know", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", answer(""), "HTTP/1.1 502 ", up},
		{"a head that it does not take", get + "X: " + long + "\r\n\r\n", func(c net.Conn, r *bufio.Reader) {
			_, _ = io.ReadFull(r, make([]byte, 10<<10))
		}, "HTTP/1.1 502 ", up},
		{"431 for what it has read", get + "X: " + long + "\r\n\r\n", func(c net.Conn, r *bufio.Reader) {
			_, _ = io.ReadFull(r, make([]byte, 10<<10))
			_, _ = io.WriteString(c, "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}, "HTTP/1.1 431 ", up},
		{"414 for what it has read", "GET /" + long + " HTTP/1.1\r\nHost: a\r\n\r\n", func(c net.Conn, r *bufio.Reader) {
			_, _ = io.ReadFull(r, make([]byte, 10<<10))
			_, _ = io.WriteString(c, "HTTP/1.1 414 URI Too Long\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}, "HTTP/1.1 414 ", up},
		{"half a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + long, func(_ net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
		}, "HTTP/1.1 400 ", up},
		{"half a body in chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", func(c net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
		}, "HTTP/1.1 400 ", up},
		{"malformed chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n", func(c net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
		}, "HTTP/1.1 400 ", up},
		{"an answer that is cut", get + "\r\n", answer(edgetest.OKHead + "Content-Length: 9\r\n\r\nabc"), edgetest.OKHead, up},

		{"closed", get + "\r\n", answer(""), "HTTP/1.1 502 ", !up},
		{"closed with a small body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", answer(""), "HTTP/1.1 502 ", !up},
		{"closed in the head", get + "\r\n", answer(edgetest.OKHead), "HTTP/1.1 502 ", !up},
		{"garbage", get + "\r\n", answer("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "HTTP/1.1 502 ", !up},
		{"silent", get + "\r\n", func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }, "HTTP/1.1 504 ", !up},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addr := edgetest.ListenEach(t, "tcp4", func(c net.Conn) { test.origin(c, bufio.NewReader(c)) })
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, "http://"+addr))
			for range ejectAfter {
				c := e.Dial()
				_, _ = io.WriteString(c, test.request)
				_ = c.(*net.TCPConn).CloseWrite()
				if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), test.want) {
					t.Errorf("%q, want %q", got, test.want)
				}
			}
			if m := e.Rest(); (m["sluice_origin_up{origin=http://"+addr+"}"] == 1) != test.up {
				t.Errorf("up: %t", !test.up)
			}
		})
	}
}

// Nor do clients that leave while they are answered, or that use up the time of a request themselves.
func TestLeavingClientsEjectNoServer(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("x", 1<<20)
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	})
	e := edgetest.Start(t, origin, "")
	for range ejectAfter {
		c := e.Talk()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = c.R.ReadString('\n')
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	if m := e.Rest(); m["sluice_origin_up{origin="+origin+"}"] != 1 || m["sluice_aborted_total"] != ejectAfter {
		t.Errorf("%v", m)
	}

	silent := edgetest.StartRecorder(t, func(int, string) string { return "" })
	e = edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], timeout: 20s, total_timeout: 300ms}]", silent.URL()))
	for range ejectAfter {
		c := e.Talk()
		begun := time.Now()
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		for time.Since(begun) < 200*time.Millisecond { // of its time, in which it sends
			_, _ = io.WriteString(c, "1\r\nx\r\n")
		}
		_, _ = io.WriteString(c, "0\r\n\r\n") // if its time is not up already
		if resp, err := http.ReadResponse(c.R, nil); err == nil && resp.StatusCode != 504 && resp.StatusCode != 408 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	if m := e.Rest(); m["sluice_origin_up{origin="+silent.URL()+"}"] != 1 {
		t.Errorf("%v", m)
	}
}

// Without descriptors no server can be reached: that is not held against any.
func TestNoFileDescriptorsEjectsNoServer(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "")
	c := e.Talk()
	c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // it is connected
	o := e.Upstreams().All[0]
	o.Sweep(time.Time{}) // and no connection to the origin is kept
	var was syscall.Rlimit
	edgetest.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	edgetest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}))
	for range 4 {
		if resp, _ := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("without: %d", resp.StatusCode)
		}
	}
	edgetest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if n := o.Failures.Load(); n != 0 {
		t.Errorf("%d failures of the origin", n)
	}
	if resp, _ := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("with: %d", resp.StatusCode)
	}
}
