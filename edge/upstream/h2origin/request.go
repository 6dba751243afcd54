package h2origin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/socket"
)

// requestLines bounds the lines of a request's head: more than any that the edge passes on, with
// what it adds.
const requestLines = 1024

var (
	errRequest  = errors.New("edge: h2origin: what was written is no request")
	errInterims = errors.New("edge: h2origin: too many interim answers")
	errHopByHop = errors.New("edge: h2origin: an interim answer has a field about the connection")
	errFault    = errors.New("edge: h2origin: a fault in the edge")
)

// A Stream takes a request and gives its answer: the near end of a pipe. It is what is written and
// read of HTTP/1.1, and closed in the end.
type Stream struct {
	net.Conn
	conn   *conn
	cancel context.CancelFunc
}

// Close gives the request up, unless it is over.
func (s *Stream) Close() error {
	s.cancel()
	return s.Conn.Close()
}

// Ended reports whether the connection with the server is over, and not only this stream.
func (s *Stream) Ended() bool { return s.conn.h2.Err() != nil }

// An exchange is a request and its answer at the far end.
type exchange struct {
	conn    *conn
	far     net.Conn
	reader  *bufio.Reader
	head    http1.RequestHead
	request *http.Request
	written sync.WaitGroup // of interims

	mu       sync.Mutex
	answered bool        // some answer has come
	ended    bool        // no interim one is passed on any more
	interims chan []byte // on their way; nil: there are none
	count    int
}

// start waits for a request in another goroutine, and serves it.
func start(c *conn) *Stream {
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		x := &exchange{conn: c, far: far, reader: bufio.NewReaderSize(far, 8<<10)}
		defer cancel()
		defer far.Close() // what has been written of an answer ends here, wherever that is
		defer func() { c.pool.recovered(recover()) }()
		x.run(ctx)
	}()
	return &Stream{near, c, cancel}
}

func (x *exchange) run(ctx context.Context) {
	if err := x.read(); err != nil {
		x.conn.h2.Release()
		x.conn.leave(time.Now(), true)
		return
	}
	began := time.Now()
	defer func() { x.conn.leave(began, x.answered) }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: x.interim})
	answer, err := x.conn.h2.RoundTrip(x.request.WithContext(ctx))
	x.mu.Lock()
	x.ended, x.answered = true, x.answered || err == nil
	if x.interims != nil {
		close(x.interims)
	}
	x.mu.Unlock()
	x.written.Wait()
	if err != nil {
		if code := x.cancelled(err); code != "" {
			x.answered = true
			_, _ = io.WriteString(x.far,
				"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nConnection: close\r\nContent-Length: 0\r\nGrpc-Status: "+code+"\r\n\r\n")
		}
		return
	}
	defer answer.Body.Close()
	x.relay(answer)
}

// read reads the head of a request, and makes it one of HTTP/2: without what is said of a
// connection, which HTTP/2 has another way of saying.
func (x *exchange) read() error {
	raw, err := x.whole()
	if err != nil {
		return err
	}
	h := &x.head
	if h.Parse(raw, requestLines) != nil {
		return errRequest
	}
	r := &http.Request{Method: string(h.Method), URL: x.target(), Host: string(h.RawHost),
		Header: make(http.Header, len(h.Head.Lines)),
		Proto:  "HTTP/2.0", ProtoMajor: 2, ContentLength: h.Length}
	r.Header["User-Agent"] = []string{""} // else net/http would name itself
	for i := range h.Head.Lines {
		l := &h.Head.Lines[i]
		switch l.Kind {
		case message.Connection, message.TransferEncoding, message.HopByHop, message.ContentLength,
			message.Host:
			continue
		}
		name, value := http.CanonicalHeaderKey(string(l.Name)), string(l.Value)
		if name == "User-Agent" {
			r.Header[name] = []string{value}
			continue
		}
		r.Header[name] = append(r.Header[name], value)
	}
	if h.TakesTrailers {
		r.Header["Te"] = []string{"trailers"}
	}
	if h.Length != 0 {
		for _, name := range message.TrailerNames(&h.Head) {
			if r.Trailer == nil {
				r.Trailer = make(http.Header)
			}
			r.Trailer[http.CanonicalHeaderKey(string(name))] = nil
		}
		r.Body = &body{Body: http1.NewBody(x.reader, (*filler)(x.reader), h.Length),
			pool: x.conn.pool, far: x.far, trailer: r.Trailer}
	}
	x.request = r
	_, _ = x.reader.Discard(len(raw)) // the body follows
	return nil
}

// whole waits for a head, which comes in one piece or in several.
func (x *exchange) whole() ([]byte, error) {
	for n := 1; ; n = x.reader.Buffered() + 1 {
		if n > x.reader.Size() {
			// It takes along what is there
			x.reader = bufio.NewReaderSize(x.reader, 4*x.reader.Size())
		}
		if _, err := x.reader.Peek(n); err != nil {
			return nil, err
		}
		have, _ := x.reader.Peek(x.reader.Buffered())
		if i := bytes.Index(have, []byte("\r\n\r\n")); i >= 0 {
			return have[:i+len("\r\n\r\n")], nil
		}
	}
}

// target is the requested target, byte for byte.
func (x *exchange) target() *url.URL {
	u := &url.URL{Scheme: "http", Host: string(x.head.RawHost), Opaque: string(x.head.Target)}
	if x.conn.pool.Secure {
		u.Scheme = "https"
	}
	if strings.HasPrefix(u.Opaque, "//") { // else it would be taken for a host
		u.Opaque = u.Scheme + "://" + u.Host + u.Opaque
	}
	return u
}

// cancelled is the status that a call of gRPC ends with whose server has cancelled its stream, and
// "" if that is not what happened. Servers do so when the call's time is up, which is for its
// client to say: to it that is an answer, and nothing is wrong with the server.
func (x *exchange) cancelled(err error) string {
	var reset frames.StreamError
	kind := x.request.Header.Get("Content-Type")
	switch {
	case !errors.As(err, &reset) || reset.Code != frames.ErrCodeCancel ||
		kind != "application/grpc" && !strings.HasPrefix(kind, "application/grpc+"):
		return ""
	case x.request.Header.Get("Grpc-Timeout") != "":
		return "4" // DEADLINE_EXCEEDED
	}
	return "1" // CANCELLED
}

// filler waits for more of a body.
type filler bufio.Reader

func (f *filler) Fill(n int) error {
	_, err := (*bufio.Reader)(f).Peek(n)
	return err
}

// A body is a request'x. The sending goroutine reads it.
type body struct {
	http1.Body
	pool    *Pool
	far     net.Conn
	trailer http.Header // what is announced, and then what came
}

func (b *body) Read(p []byte) (n int, err error) {
	defer func() { // it is called in a goroutine of net/http's, which recovers from nothing
		if b.pool.recovered(recover()) {
			n, err = 0, errFault
		}
	}()
	n, err = b.Body.Read(p)
	if err == io.EOF && b.trailer != nil && b.Framing == http1.Chunked {
		var h message.Head
		if b.ReadTrailer(&h) != nil {
			return n, errRequest
		}
		for i := range h.Lines {
			name := http.CanonicalHeaderKey(string(h.Lines[i].Name))
			if _, announced := b.trailer[name]; announced {
				b.trailer[name] = append(b.trailer[name], string(h.Lines[i].Value))
			}
		}
	}
	return n, err
}

// Close ends a Read that waits: the server wants no more.
func (b *body) Close() error { return b.far.SetReadDeadline(socket.LongAgo) }

// interim passes an interim answer on. The goroutine that reads the connection calls it, and must
// not be held up.
func (x *exchange) interim(status int, header textproto.MIMEHeader) (err error) {
	defer func() {
		if x.conn.pool.recovered(recover()) {
			err = errFault
		}
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil
	}
	x.answered = true
	if namesConnection(http.Header(header)) {
		return errHopByHop
	}
	if x.count++; x.count > http1.MaxInterim {
		return errInterims
	}
	if x.interims == nil {
		x.interims = make(chan []byte, http1.MaxInterim)
		x.written.Go(func() {
			defer func() { x.conn.pool.recovered(recover()) }()
			for text := range x.interims {
				_, _ = x.far.Write(text) // a failure shows when the answer is written
			}
		})
	}
	x.interims <- append(appendHead(nil, status, http.Header(header)), "\r\n"...)
	return nil
}
