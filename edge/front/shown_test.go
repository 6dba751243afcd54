package front_test

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/valyala/fasthttp"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/front"
	"sluice/edge/listen"
)

// guardedWith is a guarded connection over a client that sends this.
func guardedWith(s *edge.Server, sent string) *front.HeadFilter {
	return front.New((&listen.Listener{Registry: s.Registry()}).Admit(&edgetest.Sender{Sends: sent, Most: 100})).(*front.HeadFilter)
}

// Nothing beyond a head is read before the handler has run: not the next request, and nothing of a body.
func TestNothingIsShownAhead(t *testing.T) {
	const head = "POST /first HTTP/1.1\r\nHost: a\r\n"
	for _, framing := range []string{"Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "\r\n"} {
		s := edgetest.MemoryServer(t, nil, "")
		on := guardedWith(s, head+framing+"GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
		got, err := io.ReadAll(on)
		if string(got) != head+"\r\n" || err != front.ErrAhead {
			t.Errorf("%q: %q, %v", framing, got, err)
		}
		if n, err := on.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); n != 0 || err != front.ErrAhead {
			t.Errorf("an answer before the handler: %d, %v", n, err)
		}
		client := on.Conn.Raw.(*edgetest.Sender)
		on.Exchange.Abort() // as after a relay
		if n, err := on.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); n != 19 || err != nil || client.Got.Len() > 0 {
			t.Errorf("an answer after a relay: %d, %v, %q sent", n, err, client.Got.Bytes())
		}
		_ = on.Close()
		if n := edgetest.Metrics(t, s)["sluice_received_total"]; n != 1 {
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
	s := edgetest.MemoryServer(f, nil, "")
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
