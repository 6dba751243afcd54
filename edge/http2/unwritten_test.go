package http2

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/message"
)

// What waits to be written is bounded also where requests that come together are answered at once.
func TestUnwrittenIsBounded(t *testing.T) {
	text := framesOf(func(f *frames.Framer) {
		_ = f.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: mostWindow})
		_ = f.WriteWindowUpdate(0, mostWindow-65535)
		for id := uint32(1); id < 600; id += 2 {
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: true, BlockFragment: block(plain...)})
		}
	})
	var writes [][]byte
	nc := noting{said{Reader: io.MultiReader(strings.NewReader(frames.ClientPreface), bytes.NewReader(text))}, &writes}
	site := &Server{MaxStreams: 8, Server: &front.Server{
		Limits: front.Limits{HeaderBytes: 4 << 10, HeaderLines: 20, HeaderTimeout: time.Minute, IdleTimeout: time.Minute},
		Leave:  func(*front.Client) {}, Forget: func(*front.Client) {}, Fault: func(p any) { t.Errorf("panic: %v", p) },
	}}
	asked := 0
	site.Start = func(st *Stream) Continuation {
		asked++
		_ = st.Respond(&message.Reply{Status: 429, Body: make([]byte, 8<<10)})
		return nil
	}
	site.Serve(&front.Client{Conn: nc, Raw: nc, Server: site.Server, Peer: netip.MustParseAddr("192.0.2.1"), Accepted: time.Now().UnixNano()})
	longest := 0
	for _, w := range writes {
		longest = max(longest, len(w))
	}
	if asked != 300 || longest > mostUnwritten+frameSize {
		t.Errorf("%d requests, and %d bytes waited at once", asked, longest)
	}
}
