package replay

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// clear2 is a server that speaks HTTP/2 without TLS.
func clear2(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	ln := listen(t)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(ln)
	}()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// volley is a trace of requests that one source makes at one instant.
func volley(n int) *trace.Trace {
	t := script(make([]int32, n)...)
	for i := range t.Requests {
		t.Requests[i].At = 0
	}
	return t
}

// Each connection has as many requests under way as it may: none is answered before all of them are there. What goes wrong if a request waits for
// the answer to the one before: nothing is ever answered.
func TestReplayHTTP2Streams(t *testing.T) {
	const streams = 4
	type arrived struct {
		n   int
		all chan struct{}
	}
	var mu sync.Mutex
	conns := map[string]*arrived{}
	edge := clear2(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		c := conns[r.RemoteAddr]
		if c == nil {
			c = &arrived{all: make(chan struct{})}
			conns[r.RemoteAddr] = c
		}
		if c.n++; c.n == streams {
			close(c.all)
		}
		mu.Unlock()
		<-c.all
		w.Header().Set("Sluice-Verdict", "pass")
	})
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}, HTTP2: true, Streams: streams}, volley(3*streams))
	mu.Lock()
	defer mu.Unlock()
	if len(conns) != 3 || out.Connections != 3 || out.Sent != 3*streams || out.Answered != 3*streams || out.ClientErrors() != 0 {
		t.Errorf("%d of %d answered over %d connections, %d of them seen: %s", out.Answered, out.Sent, out.Connections, len(conns), out.Trouble())
	}
}

// Over TLS sources have peers and connections of their own, and these their bounds, as over HTTP/1.1.
func TestReplayHTTP2OverTLS(t *testing.T) {
	var mu sync.Mutex
	peers, conns := map[string]int{}, map[string]int{}
	secure := func(http2 bool) (*httptest.Server, netip.AddrPort) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			peers[host]++
			conns[r.RemoteAddr]++
			if r.ProtoMajor != 2 || r.Host != DefaultHost {
				t.Errorf("%s of %s", r.Proto, r.Host)
			}
			w.Header().Set("Sluice-Verdict", fmt.Sprintf("pass;at=%d;e=1", time.Now().UnixNano()))
			io.WriteString(w, "hello")
		}))
		s.EnableHTTP2 = http2
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	s, edge := secure(true)
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	known := &tls.Config{RootCAs: roots, ServerName: "example.com"}
	sources := make([]int32, 60)
	for i := range sources {
		sources[i] = int32(i % 3)
	}
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}, HTTP2: true, TLS: known, PerConnection: 10}, script(sources...))
	want := map[string]int{}
	for _, a := range out.Addresses {
		want[a.String()] = 20
	}
	if diff := cmp.Diff(want, peers); diff != "" || out.Statuses[200] != 60 || out.Decided.TotalCount() != 60 {
		t.Errorf("statuses %v, %d told when, %s; requests by peer (-want +got):\n%s", out.Statuses, out.Decided.TotalCount(), out.Trouble(), diff)
	}
	for c, n := range conns {
		if n > 10 {
			t.Errorf("%s carried %d requests, want at most 10", c, n)
		}
	}

	_, old := secure(false)
	out = replay(t, Replay{PoPs: [][]netip.AddrPort{{old}}, HTTP2: true, TLS: known}, script(0))
	if !strings.Contains(out.Trouble(), "http2.enabled") {
		t.Errorf("an edge without HTTP/2: %s", out.Trouble())
	}
	if _, err := (Replay{PoPs: [][]netip.AddrPort{{old}}, TLS: known}).Run(t.Context(), script(0)); err == nil || !strings.Contains(err.Error(), "HTTP/2") {
		t.Errorf("TLS with HTTP/1.1: %v", err)
	}
}

// frames2 serves raw connections: what comes on them is given to take, with the number of the connection, until it returns false.
func frames2(t *testing.T, take func(conn int, f *http2.Framer, frame http2.Frame) bool) netip.AddrPort {
	t.Helper()
	ln := listen(t)
	var conns sync.WaitGroup
	serve := func(n int, c net.Conn) {
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if !take(n, f, frame) { // in order, or what was said is lost with what was not read
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				return
			}
			if p, ok := frame.(*http2.PingFrame); ok && !p.IsAck() {
				_ = f.WritePing(true, p.Data)
			}
		}
	}
	conns.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serve(n, c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		conns.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// answer2 answers a stream.
func answer2(f *http2.Framer, id uint32, status, verdict string) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	_ = e.WriteField(hpack.HeaderField{Name: "sluice-verdict", Value: verdict})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndStream: true, EndHeaders: true})
}

// What an edge says that it has not taken is sent once more, on another connection. What it has taken and not answered is so if its method allows
// that, as over HTTP/1.1.
func TestReplayGoAway(t *testing.T) {
	edge := frames2(t, func(conn int, f *http2.Framer, frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			return true
		}
		if conn > 0 {
			answer2(f, h.StreamID, "200", "pass")
			return true
		}
		switch h.StreamID {
		case 3:
			answer2(f, 1, "200", "pass")
		case 9: // the last
			_ = f.WriteGoAway(5, http2.ErrCodeEnhanceYourCalm, nil)
			return false
		}
		return true
	})
	traffic := volley(5)
	traffic.Requests[2].Method, traffic.Requests[3].Method = "POST", "POST"
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}, HTTP2: true}, traffic)
	want := map[string]int{errClosedEarly.Error(): 1}
	if diff := cmp.Diff(want, out.Errors); diff != "" || out.Sent != 5 || out.Answered != 4 || out.Retried != 1 || out.Untaken != 2 || out.Ended["ENHANCE_YOUR_CALM"] != 1 {
		t.Errorf("%d of %d answered, %d sent again, %d not taken, ended %v; errors (-want +got):\n%s", out.Answered, out.Sent, out.Retried, out.Untaken, out.Ended, diff)
	}
}

// Of requests that are reset, those that are refused are answered all the same. Of the others an edge's log tells; and what nobody tells is not
// known. Lines of other runs are none of this one's. A line of no request says that its source was charged.
func TestReplayResets(t *testing.T) {
	var mu sync.Mutex
	agents := map[string]string{} // by path
	resets := 0
	edge := frames2(t, func(_ int, f *http2.Framer, frame http2.Frame) bool {
		mu.Lock()
		defer mu.Unlock()
		switch h := frame.(type) {
		case *http2.RSTStreamFrame:
			resets++
		case *http2.MetaHeadersFrame:
			path := h.PseudoValue("path")
			for _, field := range h.RegularFields() {
				if field.Name == "user-agent" {
					agents[path] = field.Value
				}
			}
			if path == "/3" {
				answer2(f, h.StreamID, "429", "limited;e=4")
			}
		}
		return true
	})
	traffic := volley(5)
	for i := range 4 {
		traffic.Requests[i].Reset = true
	}
	traffic.Requests[4].Path = "/3"
	out, err := Replay{PoPs: [][]netip.AddrPort{{edge}}, HTTP2: true}.Run(t.Context(), traffic)
	if err != nil {
		t.Fatal(err)
	}
	if out.Resets != 4 || resets != 4 || len(out.Silent) != 3 || len(out.Decisions) != 2 || out.Sent != 5 || out.Answered != 2 {
		t.Fatalf("%d reset, %d seen, %v silent, %d decided of %d", out.Resets, resets, out.Silent, len(out.Decisions), out.Sent)
	}
	at := func(d time.Duration) string {
		return fmt.Sprintf("%.6f", float64(out.Start.Add(d).UnixNano())/1e9)
	}
	line := func(agent, more string) string {
		return fmt.Sprintf(`{"t":%s,"source":%q%s%s}`+"\n", at(out.Took/2), out.Addresses[0], agent, more)
	}
	mine := func(path string) string { return fmt.Sprintf(`,"method":"GET","user_agent":%q`, agents[path]) }
	text := line(mine("/0"), `,"verdict":"pass","estimate":1.00`) +
		"cut off\n" +
		line(`,"method":"GET","user_agent":"sluice-loadgen/other/1"`, `,"verdict":"pass"`) +
		line(mine("/2"), `,"verdict":"mitigated","estimate":3,"until":"2100-01-01T00:00:00.000Z"`) +
		line("", `,"verdict":"pass","estimate":2`) +
		line("", "")
	if err := out.Learn(traffic, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, d := range out.Decisions {
		if d.Source != 0 || d.Edge != 0 || d.At < 0 || d.At > out.Took {
			t.Errorf("decision %+v", d)
		}
		got[fmt.Sprint(d.Verdict, " ", d.Estimate, " ", d.Until > time.Hour)]++
	}
	pass := fmt.Sprint(judge.Admitted, " ")
	want := map[string]int{
		pass + "1 false": 1, pass + "2 false": 1, fmt.Sprint(judge.Limited, " 4 false"): 2, fmt.Sprint(judge.Mitigated, " NaN true"): 1, fmt.Sprint(judge.Failed, " NaN false"): 1,
	}
	if diff := cmp.Diff(want, got); diff != "" || out.Logged != 2 || out.Unknown != 1 || out.Charged != 1 {
		t.Errorf("%d logged, %d unknown, %d charged; decisions (-want +got):\n%s", out.Logged, out.Unknown, out.Charged, diff)
	}
	if said := strings.Join(out.Judged(), "\n"); !strings.Contains(said, "4 requests reset as soon as they were made: 1 by the head of their answer, 2 by the edges' access logs, 1 not known") {
		t.Errorf("judged: %s", said)
	}
}
