package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/edge/front"
	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// What is forwarded of a request is one request to another server as well, with the method, target, host and length that
// this one saw, and nothing of it ends at this hop.
func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /a/../b%2f?c HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nX: y\r\n\r\nabc",
		"PUT http://A/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\nX: 1\r\n\r\n0\r\n\r\n",
		"OPTIONS * HTTP/1.0\r\nKeep-Alive: 1\r\nVia: 1.1 x\r\nForwarded: for=a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\r\nX: 1\n\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
		"\r\nPOST /?x HTTP/1.1\r\nHost:a \r\nTransfer-Encoding:\tchunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	o := &upstream.Origin{Host: "origin.example"}
	f.Fuzz(func(t *testing.T, request []byte) {
		c := &front.Client{Conn: sender{rest: bytes.NewReader(request)}, Server: &front.Server{}}
		c.Reader = bufio.NewReaderSize(c, 32<<10)
		x := &http1.RequestHead{}
		p := &Forward{Bounds: &Bounds{}, in: &x.Request, order: Order{Peer: netip.MustParseAddr("192.0.2.1")}, Counted: func(*message.Names) {}}
		raw, err := c.NextHead(0, 32<<10)
		if err != nil || x.Parse(raw, message.MaxLines) != nil {
			return
		}
		var out bytes.Buffer
		out.Write(p.appendHead(nil, o))
		readElsewhere(t, request, x, c.Reader.Buffered()-x.Size)
		target := string(http1.OriginForm(x.Target))
		line, _, _ := strings.Cut(out.String(), "\r\n")
		if want := string(x.Method) + " " + target + " HTTP/1.1"; line != want || strings.Count(line, " ") != 2 {
			t.Fatalf("%q became %q", request, line)
		}
		hosts := 0
		for _, l := range linesOf(t, out.Bytes()) {
			switch l.Kind {
			case message.Host:
				hosts++
			case message.Connection, message.HopByHop, message.Expect:
				if own := string(l.Name) + ": " + string(l.Value); own == "Connection: TE" || own == "TE: trailers" || own == "Expect: 100-continue" && x.ExpectContinue || string(l.Name) == "Trailer" {
					continue // the edge's own
				}
				t.Fatalf("%s was passed on: %q", l.Name, out.Bytes())
			}
		}
		if hosts != 1 {
			t.Fatalf("%d hosts in %q", hosts, out.Bytes())
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(out.Bytes())))
		if err != nil {
			return // another server may be stricter: it refuses the request
		}
		wantHost := string(x.RawHost)
		if wantHost == "" {
			wantHost = o.Host
		}
		if req.Host != wantHost || req.RequestURI != target {
			t.Fatalf("another server sees %s %s, want %s %s", req.Host, req.RequestURI, wantHost, target)
		}
		if req.ContentLength != x.Length {
			t.Fatalf("another server sees a length of %d, want %d: %q", req.ContentLength, x.Length, out.Bytes())
		}
	})
}

// linesOf are the lines of a head that was written, as the edge itself reads them.
func linesOf(t *testing.T, head []byte) []message.Line {
	t.Helper()
	var again message.Head
	_, lines, _ := bytes.Cut(head, []byte("\r\n"))
	if _, err := http1.ScanHead(&again, lines, message.MaxLines); err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return again.Lines
}

// A sender is a connection on which a client has sent something, and sends no more.
type sender struct {
	net.Conn
	rest io.Reader
}

func (s sender) Read(p []byte) (int, error)    { return s.rest.Read(p) }
func (sender) SetReadDeadline(time.Time) error { return nil }

// readElsewhere lets another server read the very same bytes: where it takes them for a request, it is the same one, and what
// follows the head begins at the same byte.
func readElsewhere(t *testing.T, request []byte, x *http1.RequestHead, left int) {
	t.Helper()
	br := bufio.NewReaderSize(bytes.NewReader(request), 32<<10)
	req, err := http.ReadRequest(br)
	if err != nil {
		return // it is stricter
	}
	length := req.ContentLength
	if length < 0 {
		length = 0
	}
	chunked := len(req.TransferEncoding) > 0
	if req.Method != string(x.Method) || req.RequestURI != string(x.Target) || !strings.EqualFold(req.Host, string(x.RawHost)) ||
		chunked != (x.Length == message.LengthChunked) || length != max(x.Length, 0) {
		t.Fatalf("%q: another server sees %s %s of %s, length %d, chunked %t", request, req.Method, req.RequestURI, req.Host, req.ContentLength, chunked)
	}
	if br.Buffered() != left {
		t.Fatalf("%q: %d bytes are left after the head, but %d for another server", request, left, br.Buffered())
	}
}
