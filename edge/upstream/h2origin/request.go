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

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/socket"
)

// requestLines bounds the lines of a request's head: more than any that the edge passes on, with what it adds.
const requestLines = 1024

var (
	errRequest  = errors.New("edge: h2origin: what was written is no request")
	errAborted  = errors.New("edge: h2origin: the request was given up")
	errInterims = errors.New("edge: h2origin: too many interim answers")
)

// A link is the near end of a pipe: a request is written to it, and its answer read. At the far end is a stream.
type link struct {
	net.Conn
	cancel context.CancelCauseFunc
}

// Close gives the request up, unless it is over.
func (l *link) Close() error {
	l.cancel(errAborted)
	return l.Conn.Close()
}

// A stream is a request and its answer at the far end.
type stream struct {
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

// start waits for a request in another goroutine, and does what it says.
func start(c *conn) *link {
	near, far := net.Pipe()
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		s := &stream{conn: c, far: far, reader: bufio.NewReaderSize(far, 8<<10)}
		defer cancel(nil)
		defer far.Close() // what has been written of an answer ends here, wherever that is
		s.run(ctx)
	}()
	return &link{near, cancel}
}

func (s *stream) run(ctx context.Context) {
	if err := s.read(); err != nil {
		s.conn.h2.Release()
		s.conn.leave(time.Now(), true)
		return
	}
	began := time.Now()
	defer func() { s.conn.leave(began, s.answered) }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: s.interim})
	answer, err := s.conn.h2.RoundTrip(s.request.WithContext(ctx))
	s.mu.Lock()
	s.ended, s.answered = true, s.answered || err == nil
	if s.interims != nil {
		close(s.interims)
	}
	s.mu.Unlock()
	s.written.Wait()
	if err != nil {
		return
	}
	defer answer.Body.Close()
	s.relay(answer)
}

// read reads the head of a request, and makes it one of HTTP/2: without what is said of a connection, which HTTP/2 has another way of saying.
func (s *stream) read() error {
	raw, err := s.whole()
	if err != nil {
		return err
	}
	h := &s.head
	if h.Parse(raw, requestLines) != nil {
		return errRequest
	}
	r := &http.Request{Method: string(h.Method), URL: s.target(), Host: string(h.RawHost), Header: make(http.Header, len(h.Head.Lines)),
		Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: h.Length}
	r.Header["User-Agent"] = []string{""} // else net/http would name itself
	for i := range h.Head.Lines {
		l := &h.Head.Lines[i]
		switch l.Kind {
		case message.Connection, message.TransferEncoding, message.HopByHop, message.ContentLength, message.Host:
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
		r.Body = &body{Body: http1.NewBody(s.reader, (*filler)(s.reader), h.Length), far: s.far, trailer: r.Trailer}
	}
	s.request = r
	_, _ = s.reader.Discard(len(raw)) // the body follows
	return nil
}

// whole waits for a head, which comes in one piece or in several.
func (s *stream) whole() ([]byte, error) {
	for n := 1; ; n = s.reader.Buffered() + 1 {
		if n > s.reader.Size() {
			s.reader = bufio.NewReaderSize(s.reader, 4*s.reader.Size()) // it takes along what is there
		}
		if _, err := s.reader.Peek(n); err != nil {
			return nil, err
		}
		have, _ := s.reader.Peek(s.reader.Buffered())
		if i := bytes.Index(have, []byte("\r\n\r\n")); i >= 0 {
			return have[:i+len("\r\n\r\n")], nil
		}
	}
}

// target is what is asked for, byte for byte.
func (s *stream) target() *url.URL {
	u := &url.URL{Scheme: "http", Host: string(s.head.RawHost), Opaque: string(s.head.Target)}
	if s.conn.pool.Secure {
		u.Scheme = "https"
	}
	if strings.HasPrefix(u.Opaque, "//") { // else it would be taken for a host
		u.Opaque = u.Scheme + "://" + u.Host + u.Opaque
	}
	return u
}

// filler waits for more of a body.
type filler bufio.Reader

func (f *filler) Fill(n int) error {
	_, err := (*bufio.Reader)(f).Peek(n)
	return err
}

// A body is a request's. It is read by the one who sends it.
type body struct {
	http1.Body
	far     net.Conn
	trailer http.Header // what is announced, and then what came
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
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

// interim passes an interim answer on. It is called by the one who reads the connection, whom nobody may hold up.
func (s *stream) interim(status int, header textproto.MIMEHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.answered = true
	if s.count++; s.count > http1.MaxInterim {
		return errInterims
	}
	if s.interims == nil {
		s.interims = make(chan []byte, http1.MaxInterim)
		s.written.Go(func() {
			for text := range s.interims {
				_, _ = s.far.Write(text) // a failure shows when the answer is written
			}
		})
	}
	s.interims <- append(appendHead(nil, status, http.Header(header)), "\r\n"...)
	return nil
}
