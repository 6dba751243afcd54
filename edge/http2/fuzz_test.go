package http2

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/http1"
	"sluice/edge/message"
)

// A said connection is one whose client has said all it will say, and hears nothing.
type said struct {
	io.Reader
	net.Conn
}

func (s said) Read(p []byte) (int, error)     { return s.Reader.Read(p) }
func (said) Write(p []byte) (int, error)      { return len(p), nil }
func (said) Close() error                     { return nil }
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

// serveSaid serves what a client says, and has every request looked at. Those that are admitted are read and answered.
func serveSaid(t *testing.T, text []byte, look func(*Stream)) {
	site := &Server{MaxStreams: 8, Tunnels: func() bool { return true }, Server: &front.Server{
		Limits: front.Limits{HeaderBytes: 4 << 10, HeaderLines: 20, HeaderTimeout: time.Minute, IdleTimeout: time.Minute},
		Leave:  func(*front.Client) {}, Forget: func(*front.Client) {}, Fault: func(p any) { t.Errorf("panic: %v", p) },
	}}
	site.Start = func(st *Stream) Continuation {
		look(st)
		if in := st.Request(); in.Refused == nil && in.Length != 0 {
			return reading{st}
		}
		_ = st.Respond(&message.Reply{Status: 200, Body: []byte("hello")})
		return nil
	}
	nc := said{Reader: io.MultiReader(strings.NewReader(frames.ClientPreface), bytes.NewReader(text))}
	client := &front.Client{Conn: nc, Raw: nc, Server: site.Server, Peer: netip.MustParseAddr("192.0.2.1"), Accepted: time.Now().UnixNano()}
	site.Serve(client)
	if n := site.Stats.Streams.Load(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// asHTTP1 is a request as HTTP/1.1 writes it.
func asHTTP1(in *message.Request) []byte {
	b := append(append(append([]byte{}, in.Method...), ' '), in.Target...)
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), in.RawHost...), "\r\n"...)
	for i := range in.Head.Lines {
		switch l := &in.Head.Lines[i]; l.Kind {
		case message.Host, message.ContentLength, message.TransferEncoding:
		default:
			b = l.Append(b)
		}
	}
	return append(b, "\r\n"...)
}

// accepted fails if HTTP/1.1 does not take a request that HTTP/2 let through, or for another one.
func accepted(t *testing.T) func(*Stream) {
	return func(st *Stream) {
		in := st.Request()
		if in.Refused != nil {
			return
		}
		text := asHTTP1(in)
		var r http1.RequestHead
		if no := r.Parse(text, 20); no != nil || r.Size != len(text) {
			t.Errorf("%q: HTTP/1.1 refuses it: %v", text, no)
			return
		}
		if string(r.Method) != string(in.Method) || string(r.Target) != string(in.Target) || string(r.Host) != string(in.Host) || string(r.Path) != string(in.Path) || (string(r.Upgrade) == webSocket) != in.Tunnel ||
			r.Head.Close || r.Head.Nominated != nil && !in.Tunnel {
			t.Errorf("%q: HTTP/1.1 reads it otherwise", text)
		}
		cookies, keys := 0, 0
		for _, l := range r.Head.Lines {
			if bytes.ContainsAny(l.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ \t:") && string(l.Name) != "Host" || bytes.ContainsAny(l.Value, "\r\n\x00") {
				t.Errorf("%q has a line %q: %q", text, l.Name, l.Value)
			}
			if l.Kind == message.Cookie {
				cookies++
			}
			if in.Tunnel && string(l.Name) == "sec-websocket-key" {
				keys++
			}
		}
		if cookies > 1 {
			t.Errorf("%q has several cookie lines", text)
		}
		if in.Tunnel && (keys != 1 || string(in.Method) != "GET" || in.Length != 0) {
			t.Errorf("%q asks for no WebSocket", text)
		}
	}
}

// framesOf writes frames by a function.
func framesOf(write func(*frames.Framer)) []byte {
	var b bytes.Buffer
	f := frames.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	write(f)
	return b.Bytes()
}

var plain = []string{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/"}

// Whatever bytes a client sends, its connection comes to an end, without a fault, and what is let through HTTP/1.1 would take.
func FuzzFrames(f *testing.F) {
	for _, write := range []func(*frames.Framer){
		func(f *frames.Framer) {
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block(plain...)})
			_ = f.WriteData(1, false, []byte("hello"))
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: block("x", "y")})
			_ = f.WriteData(1, true, []byte("hello"))
		},
		func(f *frames.Framer) {
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: block(plain...)[:4]})
			_ = f.WriteContinuation(1, true, block(plain...)[4:])
			_ = f.WriteRSTStream(1, 8)
			_ = f.WriteWindowUpdate(1, 1<<31-1)
			_ = f.WriteWindowUpdate(0, 1<<31-1)
		},
		func(f *frames.Framer) {
			_ = f.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0}, frames.Setting{ID: frames.SettingHeaderTableSize, Val: 0})
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: block(append(plain, "content-length", "5")...), PadLength: 3,
				Priority: frames.PriorityParam{StreamDep: 1}})
			_ = f.WritePing(false, [8]byte{1})
			_ = f.WriteGoAway(0, 0, nil)
			_ = f.WritePushPromise(frames.PushPromiseParam{StreamID: 1, PromiseID: 2})
		},
		func(f *frames.Framer) {
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block(plain...)})
			_ = f.WriteDataPadded(1, true, []byte("hello"), make([]byte, 200))
			_ = f.WritePriority(3, frames.PriorityParam{StreamDep: 1, Weight: 1})
			_ = f.WriteRawFrame(0x77, 1, 3, []byte("x"))
		},
	} {
		f.Add(framesOf(write))
	}
	f.Fuzz(func(t *testing.T, text []byte) { serveSaid(t, text, accepted(t)) })
}

// Whatever fields a head has: those between "\xff" in a text, by turns names and values.
func FuzzHead(f *testing.F) {
	add := func(fields ...string) { f.Add(strings.Join(fields, "\xff"), true) }
	add(append(plain, "x", "y", "cookie", "a=1", "cookie", "b=2")...)
	add(append(plain, "host", "A", "content-length", "0", "te", "trailers", "transfer_encoding", "chunked")...)
	add(":method", "GET /x HTTP/1.1\r\nHost: b", ":scheme", "https", ":authority", "a", ":path", "/ HTTP/1.1")
	add(":method", "OPTIONS", ":scheme", "http", ":path", "*", "host", "[::1]:80", "connection", "close", "X", " y")
	add(":method", "CONNECT", ":authority", "a:443")
	add(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "a", ":path", "/", "sec-websocket-version", "13", "sec-websocket-key", "x")
	add(":method", "CONNECT", ":protocol", "connect-udp", ":scheme", "https", ":authority", "a", ":path", "/")
	f.Fuzz(func(t *testing.T, text string, end bool) {
		fields := strings.Split(text, "\xff")
		serveSaid(t, framesOf(func(f *frames.Framer) {
			for part, first := block(fields...), true; first || len(part) > 0; first = false {
				n := min(len(part), 16<<10)
				if first {
					_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: end, EndHeaders: n == len(part), BlockFragment: part[:n]})
				} else {
					_ = f.WriteContinuation(1, n == len(part), part[:n])
				}
				part = part[n:]
			}
		}), accepted(t))
	})
}

// A noting connection keeps what is written to it, write by write.
type noting struct {
	said
	writes *[][]byte
}

func (n noting) Write(p []byte) (int, error) {
	*n.writes = append(*n.writes, bytes.Clone(p))
	return len(p), nil
}

// A stream that is answered before its body is over is reset in a write of its own: some clients that hear of both at once forget the answer.
func TestAnswerAndResetApart(t *testing.T) {
	text := framesOf(func(f *frames.Framer) {
		_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block(append(plain, "content-length", "5", "expect", "?")...)})
	})
	var writes [][]byte
	serveSaid(t, text, func(st *Stream) { st.conn.client.Conn = noting{st.conn.client.Conn.(said), &writes} })
	var kinds []string
	for _, w := range writes {
		kind := ""
		for f := frames.NewFramer(nil, bytes.NewReader(w)); ; {
			frame, err := f.ReadFrame()
			if err != nil {
				break
			}
			kind += frame.Header().Type.String() + " "
		}
		kinds = append(kinds, strings.TrimSpace(kind))
	}
	if got := strings.Join(kinds, ", "); !strings.HasSuffix(got, "HEADERS DATA, RST_STREAM") {
		t.Error(got)
	}
}
