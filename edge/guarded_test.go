package edge

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/valyala/fasthttp"

	"sluice/edge/front"
	"sluice/edge/listen"
)

// Every request comes to fasthttp's handler, or to its handler of errors: what is no request as well, and what fasthttp
// refuses although it may be shown.
func TestEveryRequestHasAHandler(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {header_bytes: 4KiB}")
	var calls, errors atomic.Uint64
	server := e.HTTP()
	handler, refuse := server.Handler, server.ErrorHandler
	server.Handler = func(ctx *fasthttp.RequestCtx) { calls.Add(1); handler(ctx) }
	server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) { errors.Add(1); refuse(ctx, err) }
	requests := []struct {
		text    string
		answers string // "" is one that fasthttp refuses, with 400
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200"},
		{"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "200"},
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 200"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", "400"},
		{"SSH-2.0-OpenSSH\r\n\r\n", "400"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 5000) + "\r\n\r\n", "431"},
		{"GET /" + strings.Repeat("y", 5000), "414"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
		{"GET / HTTP/1.1\r\nHost: a%zz\r\n\r\n", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nTrailer: content-length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
	}
	refused, received := uint64(0), uint64(0)
	for _, r := range requests {
		c := e.dial()
		_, _ = io.WriteString(c, r.text)
		_ = c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		var got []string
		for _, answer := range strings.Split(string(all), "HTTP/1.1 ")[1:] {
			got = append(got, answer[:3])
		}
		want := strings.Fields(r.answers)
		if r.answers == "" {
			want = []string{"400"}
			refused++
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.60q: %s, want %s", r.text, got, want)
		}
		received += uint64(len(want))
	}
	m := e.rest()
	if errors.Load() != refused || calls.Load()+errors.Load() != received || m["sluice_received_total"] != float64(received) {
		t.Errorf("%d calls of the handler and %d of errors, want %d together and %d; %v received",
			calls.Load(), errors.Load(), received, refused, m["sluice_received_total"])
	}
}

// guardedWith is a guarded connection over a client that sends this.
func guardedWith(s *Server, sent string) *front.Guarded {
	return front.New((&listen.Listener{Registry: s.Registry()}).Admit(&sender{sends: sent, most: 100})).(*front.Guarded)
}

// Nothing beyond a head is read before the handler has run: not the next request, and nothing of a body.
func TestNothingIsShownAhead(t *testing.T) {
	const head = "POST /first HTTP/1.1\r\nHost: a\r\n"
	for _, framing := range []string{"Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "\r\n"} {
		s := memoryServer(t, nil, "")
		on := guardedWith(s, head+framing+"GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
		got, err := io.ReadAll(on)
		if string(got) != head+"\r\n" || err != front.ErrAhead {
			t.Errorf("%q: %q, %v", framing, got, err)
		}
		if n, err := on.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); n != 0 || err != front.ErrAhead {
			t.Errorf("an answer before the handler: %d, %v", n, err)
		}
		client := on.Conn.Raw.(*sender)
		on.Exchange.Abort() // as after a relay
		if n, err := on.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); n != 19 || err != nil || client.got.Len() > 0 {
			t.Errorf("an answer after a relay: %d, %v, %q sent", n, err, client.got.Bytes())
		}
		_ = on.Close()
		if n := metricsOf(t, s)["sluice_received_total"]; n != 1 {
			t.Errorf("%v requests", n)
		}
	}
}

// What fasthttp makes of a head that it is shown is what the front has made of it, or the request is refused.
func FuzzShownHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /a/../b%2f?c HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nX: y\r\n\r\nabc",
		"PUT http://A/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\nX: 1\r\n\r\n0\r\n\r\n",
		"OPTIONS * HTTP/1.0\r\nKeep-Alive: 1\r\nVia: 1.1 x\r\nForwarded: for=a\r\n\r\n",
		"GET //evil/x HTTP/1.0\r\nConnection: Keep-Alive\r\nCookie: a=b; c\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a%zz\r\nTrailer: te, host\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: a\r\nContent-Type: b\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	s := memoryServer(f, nil, "")
	f.Fuzz(func(t *testing.T, request []byte) {
		on := guardedWith(s, string(request))
		defer on.Close()
		head, err := io.ReadAll(on)
		if err == nil || on.Exchange == nil || on.Exchange.In.Refused != nil {
			return
		}
		if err != front.ErrAhead {
			t.Fatalf("%q: %v", request, err)
		}
		x, br := &on.Exchange.In, bufio.NewReaderSize(bytes.NewReader(head), 64<<10)
		var r fasthttp.Request
		if r.Header.Read(br) != nil {
			return // it comes to the handler of errors
		}
		if br.Buffered() > 0 || r.Header.ContentLength() > 0 || r.MayContinue() {
			t.Fatalf("%q is shown as %q, of which fasthttp leaves %d bytes, and takes %d for a body", request, head, br.Buffered(), r.Header.ContentLength())
		}
		if string(r.Header.Method()) != string(x.Method) || string(r.Header.RequestURI()) != string(x.Target) || string(r.Header.Host()) != string(x.HostLine) {
			t.Fatalf("%q: fasthttp sees %s %s of %q", request, r.Header.Method(), r.Header.RequestURI(), r.Header.Host())
		}
		if x.Close != (x.Close || r.Header.ConnectionClose()) {
			t.Logf("%q: fasthttp closes the connection", request) // and the edge with it
		}
	})
}

// A brittle connection panics when it is written or closed.
type brittle struct{ sender }

func (*brittle) Write([]byte) (int, error) { panic("a bug") }
func (*brittle) Close() error              { panic("a bug") }

// A fault under fasthttp, which recovers from none, ends the connection and nothing else.
func TestFaultUnderFasthttp(t *testing.T) {
	s := memoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']")
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(&brittle{sender{sends: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", most: 100}}))
	if m := metricsOf(t, s); m["sluice_panics_total"] != 2 || m["sluice_received_total"] != 1 || m["sluice_aborted_total"] != 1 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
}
