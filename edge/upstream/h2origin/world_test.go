package h2origin

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A raw server of HTTP/2 has one connection, and says what a test has it say.
type raw struct {
	*frames.Framer
	t     *testing.T
	conn  net.Conn
	out   chan []byte // what it writes: it waits for no reader
	in    chan []byte // what comes: nobody waits for it to read
	left  []byte      // of that
	block bytes.Buffer
	enc   *hpack.Encoder
}

func (r *raw) Write(p []byte) (int, error) {
	r.out <- bytes.Clone(p)
	return len(p), nil
}

func (r *raw) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		part, ok := <-r.in
		if !ok {
			return 0, io.EOF
		}
		r.left = part
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *raw) close() {
	r.conn.Close()
	close(r.out)
}

// A world is a pool, and the connections that it makes.
type world struct {
	*Pool
	t     *testing.T
	made  chan *raw
	raws  []*raw // all that were made
	fails error  // dialling does
}

// inWorld plays in virtual time, and ends all connections.
func inWorld(t *testing.T, play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		play(w)
		w.Retire()
		for _, r := range w.raws {
			r.close()
		}
	})
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, made: make(chan *raw, 16)}
	w.Pool = &Pool{Dial: func(time.Time) (net.Conn, error) {
		if w.fails != nil {
			return nil, w.fails
		}
		near, far := net.Pipe()
		r := &raw{t: t, conn: far, out: make(chan []byte, 1024), in: make(chan []byte, 4096)}
		r.enc = hpack.NewEncoder(&r.block)
		w.raws = append(w.raws, r)
		go func() {
			for p := range r.out {
				_, _ = far.Write(p)
			}
		}()
		go func() {
			defer close(r.in)
			for {
				part := make([]byte, 1024)
				n, err := far.Read(part)
				if err != nil {
					return
				}
				r.in <- part[:n]
			}
		}()
		go func() {
			preface := make([]byte, len(frames.ClientPreface))
			_, _ = io.ReadFull(r, preface)
			r.Framer = frames.NewFramer(r, r)
			r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			_ = r.WriteSettings()
			w.made <- r
		}()
		return near, nil
	}}
	w.MaxHead.Store(32 << 10)
	return w
}

// ask begins a request.
func (w *world) ask(text string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c, _, err := w.Open(false, time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// next is the next frame that is about a request.
func (r *raw) next() frames.Frame {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return nil
		}
		switch f.(type) {
		case *frames.SettingsFrame, *frames.PingFrame, *frames.WindowUpdateFrame:
		default:
			return f
		}
	}
}

// request waits for a head, and returns its stream.
func (r *raw) request() uint32 {
	r.t.Helper()
	f, ok := r.next().(*frames.MetaHeadersFrame)
	if !ok {
		r.t.Fatal("no request came")
	}
	return f.StreamID
}

func (r *raw) head(id uint32, end bool, fields ...string) {
	r.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = r.WriteHeaders(frames.HeadersFrameParam{StreamID: id, BlockFragment: r.block.Bytes(), EndHeaders: true, EndStream: end})
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// all is what comes until the end.
func all(r io.Reader) string {
	text, _ := io.ReadAll(r)
	return string(text)
}
