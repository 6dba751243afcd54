package h2origin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/http1"
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
	fails error // dialling does
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

// What a server says is written as HTTP/1.1, and what breaks off has no end.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name string
		say  func(r *raw, id uint32)
		want string // of the answer
	}{
		{"a head alone", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "grpc-status", "5") },
			"HTTP/1.1 200 OK\r\nGrpc-Status: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		{"an announced length", func(r *raw, id uint32) {
			r.head(id, false, ":status", "404", "content-length", "3", "a", "1", "a", "2")
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 404 Not Found\r\nA: 1\r\nA: 2\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"},
		{"trailers", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			r.head(id, true, "x-b", "2", "x-a", "1")
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n"},
		{"interim heads", func(r *raw, id uint32) {
			r.head(id, false, ":status", "103", "link", "</a>")
			r.head(id, true, ":status", "200")
		}, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		{"a body that breaks off", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			_ = r.WriteRSTStream(id, frames.ErrCodeInternal)
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"one that is shorter than announced", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "5")
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabc"},
		{"one that is longer", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "1")
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"},
		{"a reset", func(r *raw, id uint32) { _ = r.WriteRSTStream(id, frames.ErrCodeRefusedStream) }, ""},
		{"a call that the server cancels", func(r *raw, id uint32) { _ = r.WriteRSTStream(id, frames.ErrCodeCancel) },
			"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nConnection: close\r\nContent-Length: 0\r\nGrpc-Status: 4\r\n\r\n"},
		{"a call that it cancels when it has answered", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			_ = r.WriteRSTStream(id, frames.ErrCodeCancel)
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 4\r\n\r\n"},
		{"a line break in a value", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "a", "b\r\nc: d") }, ""},
		{"a head that frames otherwise", func(r *raw, id uint32) {
			r.head(id, true, ":status", "200", "transfer-encoding", "chunked", "keep-alive", "1")
		},
			"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		{"no status", func(r *raw, id uint32) { r.head(id, true, "a", "b") }, ""},
		{"a head that is too long", func(r *raw, id uint32) {
			fields := []string{":status", "200"}
			for i := range 40 {
				fields = append(fields, fmt.Sprint("a", i), strings.Repeat("x", 1000))
			}
			r.block.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			b := r.block.Bytes()
			_ = r.WriteHeaders(frames.HeadersFrameParam{StreamID: id, BlockFragment: b[:10_000], EndStream: true})
			_ = r.WriteContinuation(id, false, b[10_000:20_000])
			_ = r.WriteContinuation(id, true, b[20_000:])
		}, ""},
		{"interim heads without end", func(r *raw, id uint32) {
			for range 10 {
				r.head(id, false, ":status", "103")
			}
		}, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 8)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				text := get
				if strings.Contains(test.name, "call") {
					text = "GET / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nGrpc-Timeout: 1S\r\n\r\n"
				}
				c, answer := w.ask(text)
				r := <-w.made
				id := r.request()
				go func() {
					for r.next() != nil {
					}
				}()
				test.say(r, id)
				if got := all(answer); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
				c.Close()
				w.Retire()
				r.close()
			})
		})
	}
}

// What is written as HTTP/1.1 comes as HTTP/2, while the answer is already on its way.
func TestBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, answer := w.ask("POST //a?b HTTP/1.1\r\nHost: A.b:80\r\nConnection: TE\r\nTE: trailers\r\nX-Own: v\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
		r := <-w.made
		f := r.next().(*frames.MetaHeadersFrame)
		id := f.StreamID
		got := map[string]string{}
		for _, h := range f.Fields {
			got[h.Name] = h.Value
		}
		for name, want := range map[string]string{":method": "POST", ":path": "//a?b", ":scheme": "http", ":authority": "A.b:80", "te": "trailers", "x-own": "v", "trailer": "X-Sum"} {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if len(got) != 7 {
			t.Errorf("%v", got)
		}
		r.head(id, false, ":status", "200")
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"abc", "de"} {
			if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(part), part); err != nil {
				t.Fatal(err)
			}
			if d := r.next().(*frames.DataFrame); string(d.Data()) != part {
				t.Errorf("%q, want %q", d.Data(), part)
			}
			_ = r.WriteData(id, false, []byte(part))
			back := make([]byte, len(part))
			if _, err := io.ReadFull(resp.Body, back); err != nil || string(back) != part {
				t.Errorf("%q, %v", back, err)
			}
		}
		_, _ = io.WriteString(c, "0\r\nX-Sum: 5\r\nX-Other: 6\r\n\r\n")
		tail := r.next().(*frames.MetaHeadersFrame)
		if len(tail.Fields) != 1 || tail.Fields[0].Name != "x-sum" || tail.Fields[0].Value != "5" || !tail.StreamEnded() {
			t.Errorf("trailers %v", tail.Fields)
		}
		r.head(id, true, "x-after", "7")
		if rest := all(resp.Body); rest != "" || resp.Trailer.Get("X-After") != "7" {
			t.Errorf("%q, %v", rest, resp.Trailer)
		}
		c.Close()
		w.Retire()
		r.close()
	})
}

// A request that is given up is reset, and a part of a body is never the whole.
func TestGivenUp(t *testing.T) {
	for _, text := range []string{get, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c, _ := w.ask(text)
			r := <-w.made
			r.request()
			go func() {
				synctest.Wait()
				c.Close()
			}()
			for {
				f := r.next()
				if d, ok := f.(*frames.DataFrame); ok && !d.StreamEnded() {
					continue
				}
				if reset, ok := f.(*frames.RSTStreamFrame); !ok || reset.ErrCode != frames.ErrCodeCancel {
					t.Errorf("%.20q: %v", text, f)
				}
				break
			}
			w.Retire()
			r.close()
		})
	}
}

// Requests share a connection up to a bound, and one where nobody is any more gets no further request; nor does one that the server leaves.
func TestPool(t *testing.T) {
	drain := func(r *raw) {
		for r.next() != nil {
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var open []net.Conn
		for range mostStreams + 1 {
			c, _ := w.ask(get)
			open = append(open, c)
		}
		first, second := <-w.made, <-w.made
		go drain(first)
		go drain(second)
		synctest.Wait()
		if a, b := w.conns[0].streams, w.conns[1].streams; a != mostStreams || b != 1 {
			t.Errorf("%d and %d streams", a, b)
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if len(w.conns) != 2 || w.conns[0].streams != 0 {
			t.Errorf("%d connections, %d streams", len(w.conns), w.conns[0].streams)
		}
		w.Sweep(time.Now())
		if len(w.conns) != 2 {
			t.Error("a connection was closed that had just been used")
		}
		w.Sweep(time.Now().Add(time.Second))
		synctest.Wait()
		if len(w.conns) != 0 {
			t.Error("a connection was kept that had rested for long")
		}
		first.close()
		second.close()
	})
	synctest.Test(t, func(t *testing.T) { // nobody answers, though something is read
		w := newWorld(t)
		c, answer := w.ask(get)
		first := <-w.made
		first.head(first.request(), true, ":status", "200")
		all(answer)
		c.Close()
		time.Sleep(time.Second)
		c, _ = w.ask(get)
		go drain(first)
		time.Sleep(deafTime + time.Second)
		c.Close()
		synctest.Wait()
		c, _ = w.ask(get)
		second := <-w.made // else this would wait for ever
		go drain(second)
		c.Close()
		synctest.Wait()
		w.Retire()
		first.close()
		second.close()
	})
	synctest.Test(t, func(t *testing.T) { // renewed: what is under way ends where it is
		w := newWorld(t)
		c, answer := w.ask(get)
		first := <-w.made
		id := first.request()
		go drain(first)
		w.Renew()
		other, _ := w.ask(get)
		second := <-w.made
		go drain(second)
		first.head(id, true, ":status", "204")
		if got := all(answer); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
			t.Errorf("%q", got)
		}
		c.Close()
		other.Close()
		synctest.Wait()
		if len(w.conns) != 1 {
			t.Errorf("%d connections", len(w.conns))
		}
		w.Retire()
		first.close()
		second.close()
	})
	synctest.Test(t, func(t *testing.T) { // GOAWAY: what is under way ends there, and the next begins elsewhere
		w := newWorld(t)
		c, answer := w.ask(get)
		first := <-w.made
		id := first.request()
		go drain(first)
		_ = first.WriteGoAway(id, frames.ErrCodeNo, nil)
		synctest.Wait()
		other, _ := w.ask(get)
		second := <-w.made
		go drain(second)
		first.head(id, true, ":status", "204")
		if got := all(answer); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
			t.Errorf("%q", got)
		}
		c.Close()
		other.Close()
		synctest.Wait()
		w.Retire()
		first.close()
		second.close()
	})
}

// Who waits for a connection that another makes fails as that one does.
func TestDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("nobody listens")
		calls, fail := 0, make(chan struct{})
		p := &Pool{Dial: func(time.Time) (net.Conn, error) {
			calls++
			<-fail
			return nil, broken
		}}
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, _, err := p.Open(false, time.Minute)
				errs <- err
			}()
		}
		synctest.Wait()
		_, _, err := p.Open(false, time.Second)
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			t.Errorf("after a second: %v", err)
		}
		close(fail)
		for range 3 {
			if err := <-errs; err != broken {
				t.Errorf("%v", err)
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A server that takes no streams at all has no connection left open to it for each request.
func TestServerWithoutRoom(t *testing.T) {
	near, far := net.Pipe()
	p := &Pool{}
	p.Dial = func(time.Time) (net.Conn, error) {
		p.mu.Lock() // until its SETTINGS have come: nobody takes a place before
		return near, nil
	}
	ended := make(chan error)
	go func() {
		preface := make([]byte, len(frames.ClientPreface))
		_, _ = io.ReadFull(far, preface)
		f := frames.NewFramer(far, far)
		go func() {
			_ = f.WriteSettings(frames.Setting{ID: frames.SettingMaxConcurrentStreams, Val: 0})
		}()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				ended <- err
				return
			}
			if s, ok := frame.(*frames.SettingsFrame); ok && s.IsAck() {
				p.mu.Unlock()
			}
		}
	}()
	if _, _, err := p.Open(false, 10*time.Second); err == nil {
		t.Error("a request was taken")
	}
	<-ended
}

// A panic in any of the goroutines ends the request that it was about, and is told; nothing else ends.
func TestFaultsOfOneRequest(t *testing.T) {
	told := make(chan any, 3)
	p := &Pool{Fault: func(fault any) { told <- fault }}
	c := &conn{pool: p, streams: 1} // without a connection of net/http's, which is a fault
	near := start(c)
	if _, err := io.WriteString(near, get); err != nil {
		t.Fatal(err)
	}
	if answer := all(near); answer != "" {
		t.Errorf("%q", answer)
	}
	<-told
	p.mu.Lock()
	if c.streams != 0 {
		t.Errorf("%d streams are left", c.streams)
	}
	p.mu.Unlock()
	over := &exchange{conn: c, interims: make(chan []byte)}
	close(over.interims)
	if err := over.interim(103, nil); err != errFault {
		t.Errorf("interim: %v", err)
	}
	<-told
	if _, err := (&body{pool: p, Body: http1.NewBody(nil, nil, 5)}).Read(make([]byte, 1)); err != errFault {
		t.Errorf("body: %v", err)
	}
	<-told
}
