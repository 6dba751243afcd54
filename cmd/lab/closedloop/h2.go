package closedloop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sluice/loadgen/answer"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// streams makes requests over HTTP/2 on one connection, so many at once, until it breaks or the run
// ends.
func (r *tlsRun) streams(ctx context.Context, c *tls.Conn) error {
	if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
		return fmt.Errorf("the edge chose %q, and was asked for h2", p)
	}
	const wide = 1 << 30
	var out bytes.Buffer
	in := bufio.NewReaderSize(c, 16<<10)
	f := http2.NewFramer(&out, in)
	f.SetReuseFrames()
	out.WriteString(http2.ClientPreface)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: wide})
	_ = f.WriteWindowUpdate(0, wide)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	next := uint32(1)
	since, statuses := make(map[uint32]time.Time, r.Streams), make(map[uint32]int, r.Streams)
	ask := func() {
		block.Reset()
		for _, h := range r.fields(r.sent.Add(1) - 1) {
			_ = encoder.WriteField(h)
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: next, BlockFragment: block.Bytes(),
			EndStream: true, EndHeaders: true})
		since[next] = time.Now()
		next += 2
	}
	for range r.Streams {
		ask()
	}
	eaten := uint32(0)
	decoder := hpack.NewDecoder(4096, nil)
	for ctx.Err() == nil {
		// What came together is answered by requests that go together
		if out.Len() > 0 && in.Buffered() == 0 {
			if _, err := c.Write(out.Bytes()); err != nil {
				return err
			}
			out.Reset()
		}
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		over := false
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			over = frame.StreamEnded()
			decoder.SetEmitFunc(func(h hpack.HeaderField) {
				if h.Name == ":status" {
					statuses[frame.StreamID], _ = strconv.Atoi(h.Value)
				}
			})
			if _, err := decoder.Write(frame.HeaderBlockFragment()); err != nil ||
				!frame.HeadersEnded() || decoder.Close() != nil {
				return errors.Join(answer.ErrMalformed, err)
			}
		case *http2.DataFrame:
			over = frame.StreamEnded()
			if eaten += frame.Length; eaten > wide/2 {
				_ = f.WriteWindowUpdate(0, eaten)
				eaten = 0
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			over = since[frame.StreamID] != time.Time{}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.GoAwayFrame:
			return fmt.Errorf("the edge ends the connection: %v", frame.ErrCode)
		}
		if id := frame.Header().StreamID; over {
			r.answered(statuses[id], false, time.Since(since[id]))
			delete(since, id)
			delete(statuses, id)
			ask()
		}
	}
	return nil
}

// fields are those of the n-th request.
func (c *Load) fields(n uint32) []hpack.HeaderField {
	list := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		{Name: ":path", Value: "/some/path?x=1"},
		{Name: ":authority", Value: "example.com"}, {Name: "user-agent",
			Value: "bench"}, {Name: "accept", Value: "*/*"}}
	if c.Sources > 1 {
		list = append(list, hpack.HeaderField{Name: "x-forwarded-for", Value: c.source(n).String(),
			Sensitive: true})
	}
	return list
}
