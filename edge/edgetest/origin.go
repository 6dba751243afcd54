package edgetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Recorder is an origin that keeps every request as it came, byte for byte, and answers as
// configured.
type Recorder struct {
	Addr  string
	mu    sync.Mutex
	Got   []string
	Conns int
	Ended func() // if not nil, is called after a connection has been closed
}

// URL is where it listens.
func (o *Recorder) URL() string { return "http://" + o.Addr }

func (o *Recorder) serve(c net.Conn, answer func(int, string) string) {
	var log bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &log))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			if log.Len() > 0 {
				o.Keep("BROKEN " + log.String())
			}
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			o.Keep("BROKEN " + log.String())
			return
		}
		text := log.String()
		if r.Buffered() > 0 {
			text = text[:len(text)-r.Buffered()]
		}
		rest := log.String()[len(text):]
		log.Reset()
		log.WriteString(rest)
		n := o.Keep(text)
		a, last := strings.CutSuffix(answer(n, text), "\x00")
		a, reset := strings.CutSuffix(a, "\x01")
		if reset {
			last = c.(*net.TCPConn).SetLinger(0) == nil
		}
		if _, err := io.WriteString(c, a); err != nil || last {
			return
		}
	}
}

func (o *Recorder) Keep(request string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Got = append(o.Got, request)
	return len(o.Got) - 1
}

// Requests are those that came, without the names that the edge gave them. One that broke off
// begins with BROKEN.
func (o *Recorder) Requests() []string { return o.RequestsFrom(0) }

// RequestsFrom leaves so many of the first ones out.
func (o *Recorder) RequestsFrom(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]string, 0, len(o.Got)-n)
	for _, request := range o.Got[n:] {
		list = append(list, unnamed(request))
	}
	return list
}

// Connections is how many there have been.
func (o *Recorder) Connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Conns
}

// LastRequest is what the origin got last.
func (o *Recorder) LastRequest() string {
	list := o.Requests()
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

// StartRecorder answers the nth request (from 0) with answer(n, request). An answer that ends in
// "\x00" closes the connection after what stands before it, one that ends in "\x01" resets it.
func StartRecorder(t *testing.T, answer func(n int, request string) string) *Recorder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	o := &Recorder{Addr: ln.Addr().String()}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); ln.Close(); all.Wait() })
	all.Go(func() {
		acceptEach(ln, func(c net.Conn) {
			o.mu.Lock()
			o.Conns++
			o.mu.Unlock()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			all.Go(func() {
				defer stop()
				o.serve(c, answer)
				c.Close()
				if o.Ended != nil {
					o.Ended()
				}
			})
		})
	})
	return o
}

// Hello answers every request alike.
func Hello(int, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" }

// OKHead begins an answer.
const OKHead = "HTTP/1.1 200 OK\r\n"

// NetOrigin is an origin of net/http.
func NetOrigin(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// A Script is an origin whose first connection is played by a test; all later ones answer hello.
func Script(t *testing.T, network string, first func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	var begun atomic.Bool
	return ListenEach(t, network, func(c net.Conn) {
		r := bufio.NewReader(c)
		if begun.CompareAndSwap(false, true) && first != nil {
			first(c, r)
		}
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, Hello(0, ""))
		}
	})
}

// StartEcho is an origin that answers the head of every request with answer and then sends back
// what it gets.
func StartEcho(t *testing.T, answer string) (url string, heads chan string) {
	t.Helper()
	heads = make(chan string, 16)
	return "http://" + ListenEach(t, "tcp4", func(c net.Conn) {
		r, head := bufio.NewReader(c), ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			head += line
		}
		heads <- head
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(c, r)
	}), heads
}

// ListenEach serves every connection to an address of its own, until the test ends.
func ListenEach(t testing.TB, network string, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0",
		"tcp6": "[::1]:0"}[network])
	Must(t, err)
	t.Cleanup(func() { ln.Close() })
	go acceptEach(ln, func(c net.Conn) {
		go func() {
			defer c.Close()
			serve(c)
		}()
	})
	return ln.Addr().String()
}

// acceptEach takes every connection until the listener is closed.
func acceptEach(ln net.Listener, take func(net.Conn)) {
	for {
		c, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // a test has taken the process its descriptors, for a while
			runtime.Gosched()
		default:
			take(c)
		}
	}
}

// ListenHere listens on a free port until the test ends.
func ListenHere(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	tb.Cleanup(func() { ln.Close() })
	return ln
}

// Must ends a test that cannot go on.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
