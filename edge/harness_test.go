package edge

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// An edgeUnderTest serves on a loopback socket until the test ends.
type edgeUnderTest struct {
	*Server
	caller
	done chan error
}

// A caller makes requests of whatever listens at an address.
type caller struct {
	t    *testing.T
	addr string
}

// startEdge serves a configuration before an origin. The YAML may leave the origin out.
func startEdge(t *testing.T, origin, yaml string, change ...func(*Server)) *edgeUnderTest {
	t.Helper()
	c := parse(t, yaml)
	if len(c.Origins) == 0 {
		u, err := upstream.ParseOrigin(origin)
		must(t, err)
		c.Origins = []upstream.Config{{Hosts: []string{"*"}, Servers: []*url.URL{u}, Timeout: 20 * time.Second}}
	}
	return startConfig(t, c, change...)
}

// halfClosed has an edge wait so long for clients that have closed one direction of their connections.
func halfClosed(d time.Duration) func(*Server) { return func(s *Server) { s.Registry().HalfClosed = d } }

func startConfig(t *testing.T, c *config.Config, change ...func(*Server)) *edgeUnderTest {
	t.Helper()
	s := newServer(t, c)
	for _, f := range change {
		f(s)
	}
	return serveTest(t, s)
}

func parse(t testing.TB, yaml string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	must(t, err)
	return c
}

// newServer is an edge that does not serve yet, with tables of its own.
func newServer(t testing.TB, c *config.Config, change ...func(*Options)) *Server {
	t.Helper()
	o := Options{Config: c, Table: counter.New(counter.Options{Counters: 1 << 14}), Bits: mitigation.New(1<<12, nil)}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	must(t, err)
	return s
}

func serveTest(t *testing.T, s *Server) *edgeUnderTest {
	t.Helper()
	ln := listenHere(t)
	e := &edgeUnderTest{Server: s, caller: caller{t, ln.Addr().String()}, done: make(chan error, 1)}
	go func() { e.done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Drain(ctx, time.Second)
		if err := <-e.done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return e
}

// ownName is the line that names a request, as no two of them have it.
var ownName = regexp.MustCompile(`X-Request-ID: [0-9a-f]{32}\r\n`)

// unnamed is text without the names that the edge gives to requests, for what compares it byte for byte.
func unnamed(text string) string { return ownName.ReplaceAllString(text, "") }

// raw sends bytes on a connection of its own and returns all that comes back until the edge closes it or has been silent
// for a while after an answer.
func (e *caller) raw(request string) string {
	e.t.Helper()
	c := e.dial()
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		e.t.Fatal(err)
	}
	var all bytes.Buffer
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, _ = io.CopyN(&all, c, 1)
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, _ = all.ReadFrom(c)
	return unnamed(all.String())
}

func (e *caller) dial() net.Conn {
	e.t.Helper()
	c, err := net.Dial("tcp", e.addr)
	must(e.t, err)
	e.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// a talk is a connection on which requests and answers follow one another.
type talk struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (e *caller) talk() *talk {
	c := e.dial()
	return &talk{e.t, c, bufio.NewReader(c)}
}

// say sends a request and reads its answer, body and all.
func (c *talk) say(request string) (*http.Response, string) {
	c.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	return c.hear(method)
}

func (c *talk) hear(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols { // an interim one
		resp, err = http.ReadResponse(c.r, &http.Request{Method: method})
	}
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, string(body) + " then " + err.Error()
	}
	return resp, string(body)
}

// get is one request on a connection of its own.
func (e *caller) get(path string, header ...string) (*http.Response, string) {
	e.t.Helper()
	c := e.talk()
	defer c.Close()
	return c.say("GET " + path + " HTTP/1.1\r\nHost: example.com\r\n" + lines(header) + "\r\n")
}

func lines(header []string) string {
	if len(header) == 0 {
		return ""
	}
	return strings.Join(header, "\r\n") + "\r\n"
}

// A recorder is an origin that keeps every request as it came, byte for byte, and answers as it is told.
type recorder struct {
	addr  string
	mu    sync.Mutex
	got   []string
	conns int
	ended func() // if not nil, is called after a connection has been closed
}

// startRecorder answers the nth request (from 0) with answer(n, request). An answer that ends in "\x00" closes the connection
// after what stands before it, one that ends in "\x01" resets it.
func startRecorder(t *testing.T, answer func(n int, request string) string) *recorder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o := &recorder{addr: ln.Addr().String()}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns++
			o.mu.Unlock()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			all.Go(func() {
				defer stop()
				o.serve(c, answer)
				c.Close()
				if o.ended != nil {
					o.ended()
				}
			})
		}
	})
	return o
}

func (o *recorder) url() string { return "http://" + o.addr }

func (o *recorder) serve(c net.Conn, answer func(int, string) string) {
	var log bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &log))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			if log.Len() > 0 {
				o.keep("BROKEN " + log.String())
			}
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			o.keep("BROKEN " + log.String())
			return
		}
		text := log.String()
		if r.Buffered() > 0 {
			text = text[:len(text)-r.Buffered()]
		}
		rest := log.String()[len(text):]
		log.Reset()
		log.WriteString(rest)
		n := o.keep(text)
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

func (o *recorder) keep(request string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, request)
	return len(o.got) - 1
}

func (o *recorder) requests() []string { return o.requestsFrom(0) }

// requestsFrom leaves so many of the first ones out.
func (o *recorder) requestsFrom(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]string, 0, len(o.got)-n)
	for _, request := range o.got[n:] {
		list = append(list, unnamed(request))
	}
	return list
}

func (o *recorder) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns
}

// hello answers every request alike.
func hello(int, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" }

// netOrigin is an origin of net/http.
func netOrigin(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// metrics gathers the edge's metrics as "name{label=value,…}" to value, those that are zero left out.
func (e *edgeUnderTest) metrics() map[string]float64 {
	e.t.Helper()
	return metricsOf(e.t, e.Server)
}

func metricsOf(t testing.TB, s *Server) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	must(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			if v := value(m); v != 0 {
				all[f.GetName()+labels(m)] = v
			}
		}
	}
	return all
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return 0
}

func labels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.Label {
		parts = append(parts, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// rest waits until every request received has been counted as answered or aborted, and checks the balance.
func (e *edgeUnderTest) rest() map[string]float64 {
	e.t.Helper()
	var m map[string]float64
	for deadline := time.Now().Add(time.Minute); ; {
		m = e.metrics()
		answered := m["sluice_aborted_total"]
		for name, v := range m {
			if strings.HasPrefix(name, "sluice_answers_total") {
				answered += v
			}
		}
		if m["sluice_received_total"] == answered {
			return m
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("the balance is off: %v received, %v answered or aborted", m["sluice_received_total"], answered)
		}
	}
}

// listenEach serves every connection to an address of its own, until the test ends.
func listenEach(t testing.TB, network string, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln.Addr().String()
}

// listenHere listens on a free port until the test ends.
func listenHere(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	tb.Cleanup(func() { ln.Close() })
	return ln
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
