package http2

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/message"
	"sluice/edge/socket"
)

// A connection that waits for its client keeps nothing of what it has read and written, however much that was.
func TestMemoryOfIdleConnections(t *testing.T) {
	const count, most = 300, 28 << 10 // with the other end, which is here as well
	site := &Server{MaxStreams: 8, Server: &front.Server{
		Limits: front.Limits{HeaderBytes: 32 << 10, HeaderLines: 20, HeaderTimeout: time.Minute, IdleTimeout: time.Minute, BodyRate: 500, AnswerRate: 500},
		Leave:  func(*front.Client) {}, Forget: func(*front.Client) {}, Fault: func(p any) { t.Errorf("panic: %v", p) },
	}}
	site.Start = func(st *Stream) Continuation {
		_ = st.Respond(&message.Reply{Status: 429, Body: make([]byte, 8<<10)})
		return nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait) // after those who ask have gone
	inUse := func() uint64 {
		var m runtime.MemStats
		for range 3 { // pools are emptied in the second, stacks shrink in any
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	path := block(":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"+strings.Repeat("x", 2000), "cookie", strings.Repeat("y", 2000))
	ask := func() {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			far := socket.New(far)
			site.Serve(&front.Client{Conn: far, Raw: far, Server: site.Server, Accepted: time.Now().UnixNano()})
		})
		f := frames.NewFramer(nc, nc)
		_, _ = io.WriteString(nc, frames.ClientPreface)
		_ = f.WriteSettings()
		_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: path})
		for {
			switch f, err := f.ReadFrame(); f := f.(type) {
			case nil:
				t.Fatal(err)
			case *frames.DataFrame:
				if f.StreamEnded() {
					return
				}
			}
		}
	}
	for range 10 {
		ask()
	}
	before := inUse()
	for range count {
		ask()
	}
	if each := (int64(inUse()) - int64(before)) / count; each > most {
		t.Errorf("%d bytes each", each)
	}
}
