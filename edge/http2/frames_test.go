package http2_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/edgetest"
)

// A framesClient speaks HTTP/2 frame by frame, as no well-behaved client would.
type framesClient struct {
	*frames.Framer
	T       *testing.T
	c       net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	Answers map[uint32]*answer2
	calm    bool // a GOAWAY with ENHANCE_YOUR_CALM came
	goAway  *frames.ErrCode
	acks    int
}

// An answer2 is what came on a stream.
type answer2 struct {
	id     uint32
	status string
	body   []byte
	fields map[string]string
	whole  bool
	reset  *frames.ErrCode
}

func (a *answer2) over() bool { return a.whole || a.reset != nil }

func (a *answer2) String() string {
	if a.reset != nil {
		return fmt.Sprintf("%s reset %v", a.status, *a.reset)
	}
	return a.status
}

// dialFrames connects over TLS, and says what a client says first.
func dialFrames(t *testing.T, addr string, settings ...frames.Setting) *framesClient {
	t.Helper()
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	edgetest.Must(t, err)
	return speakFrames(t, nc, settings...)
}

func speakFrames(t *testing.T, nc net.Conn, settings ...frames.Setting) *framesClient {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	f := &framesClient{T: t, c: nc, Answers: make(map[uint32]*answer2)}
	f.encoder = hpack.NewEncoder(&f.block)
	f.Framer = frames.NewFramer(nc, nc)
	f.AllowIllegalWrites = true
	_, err := io.WriteString(nc, frames.ClientPreface)
	edgetest.Must(t, err)
	edgetest.Must(t, f.WriteSettings(settings...))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// ask sends a head. Fields are name, value, name, value.
func (f *framesClient) Ask(id uint32, end bool, fields ...string) { f.head(id, end, true, fields...) }

func (f *framesClient) Get(id uint32, more ...string) {
	f.Ask(id, true, append([]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"}, more...)...)
}

func (f *framesClient) head(id uint32, end, whole bool, fields ...string) {
	block := f.encode(fields...)
	n := min(len(block), 16<<10)
	_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: whole && n == len(block), BlockFragment: block[:n]})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		_ = f.WriteContinuation(id, whole && n == len(block), block[:n])
	}
}

func (f *framesClient) encode(fields ...string) []byte {
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(f.block.Bytes())
}

// read reads a frame, and reports false at the end of the connection.
func (f *framesClient) read() bool {
	frame, err := f.ReadFrame()
	if err != nil {
		return false
	}
	a := f.Answers[frame.Header().StreamID]
	if a == nil {
		a = &answer2{id: frame.Header().StreamID, fields: make(map[string]string)}
		f.Answers[a.id] = a
	}
	switch frame := frame.(type) {
	case *frames.MetaHeadersFrame:
		if s := frame.PseudoValue("status"); s != "" {
			a.status = s
		}
		for _, field := range frame.RegularFields() {
			a.fields[field.Name] = field.Value
		}
		a.whole = frame.StreamEnded()
	case *frames.DataFrame:
		a.body = append(a.body, frame.Data()...)
		a.whole = frame.StreamEnded()
	case *frames.RSTStreamFrame:
		a.reset = &frame.ErrCode
	case *frames.GoAwayFrame:
		f.goAway = &frame.ErrCode
		f.calm = f.calm || frame.ErrCode == frames.ErrCodeEnhanceYourCalm
	case *frames.PingFrame:
		if frame.IsAck() {
			f.acks++
		}
	}
	return true
}

// answer waits until a stream is over, or the connection.
func (f *framesClient) Answer(id uint32) *answer2 {
	for f.Answers[id] == nil || !f.Answers[id].over() {
		if !f.read() {
			break
		}
	}
	if f.Answers[id] == nil {
		return &answer2{id: id, status: "none"}
	}
	return f.Answers[id]
}

// end reads until the connection ends.
func (f *framesClient) End() {
	for f.read() {
	}
}

// remaining is what another client of the same source has left, in words of the edge.
func remaining(e *edgetest.Caller) string {
	answer := e.Raw("GET /left HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	for line := range strings.Lines(answer) {
		if v, found := strings.CutPrefix(line, "X-RateLimit-Remaining: "); found {
			return strings.TrimSpace(v)
		}
	}
	return answer
}
