package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/front"
	"sluice/edge/message"
)

// A talk is a connection to a site of its own, in memory.
type talk struct {
	*frames.Framer
	t      *testing.T
	site   *Server
	client *front.Client
	nc     net.Conn
	ended  chan struct{} // Serve has returned

	release chan struct{} // closed: requests below /slow are answered

	mu     sync.Mutex
	heard  []string       // what has come, a line each
	seen   []string       // requests that the site has seen
	may    map[uint32]int // what it may send of bodies: of each stream, and, under 0, of all
	first  int            // of a new stream
	faults []any
}

// answering is a request that is answered in its own goroutine when its path is released.
type answering struct {
	st      *Stream
	release <-chan struct{}
}

func (a answering) Run() {
	if a.release != nil {
		<-a.release
	}
	_ = a.st.Respond(&message.Reply{Status: 200, Body: []byte("hello")})
}

// inTalk plays a connection whose client has said what a client says first, in virtual time, until its end.
func inTalk(t *testing.T, play func(*talk)) {
	t.Helper()
	inTalkOf(t, 4, play)
}

// inTalkOf is inTalk with so many streams at once.
func inTalkOf(t *testing.T, streams int, play func(*talk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := startTalk(t, streams)
		play(k)
		k.nc.Close()
		<-k.ended
	})
}

// startTalk begins to serve.
func startTalk(t *testing.T, streams int) *talk { return startTalkWith(t, streams, func(*Server) {}) }

// startTalkWith is startTalk with a site that is changed before.
func startTalkWith(t *testing.T, streams int, change func(*Server)) *talk {
	here, there := net.Pipe()
	k := &talk{t: t, nc: here, ended: make(chan struct{}), release: make(chan struct{}), may: map[uint32]int{0: usualWindow}, first: usualWindow}
	k.site = &Server{MaxStreams: streams, Server: &front.Server{
		Limits: front.Limits{HeaderBytes: 4 << 10, HeaderLines: 20, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, BodyRate: 500, AnswerRate: 500},
		Leave:  func(*front.Client) {}, Forget: func(*front.Client) {},
		Fault: func(p any) { k.faults = append(k.faults, p) },
	}}
	k.site.Start = func(st *Stream) Continuation {
		in := st.Request()
		what := fmt.Sprintf("%s %s", in.Method, in.Target)
		if in.Refused != nil {
			what = "refused " + in.Refused.Code
		}
		k.mu.Lock()
		k.seen = append(k.seen, what)
		k.mu.Unlock()
		switch {
		case in.Refused != nil:
			_ = st.Respond(&message.Reply{Status: in.Refused.Status})
		case string(in.Path) == "/body":
			return reading{st}
		case strings.HasPrefix(string(in.Path), "/slow"):
			return answering{st, k.release}
		default:
			return answering{st, nil}
		}
		return nil
	}
	k.client = &front.Client{Conn: there, Raw: there, Server: k.site.Server, Peer: netip.MustParseAddr("192.0.2.1"), Accepted: time.Now().UnixNano()}
	change(k.site)
	k.begin()
	return k
}

// begin has the connection served, and says what a client says first.
func (k *talk) begin() {
	go func() {
		defer close(k.ended)
		k.site.Serve(k.client)
		k.client.Close()
	}()
	k.Framer = frames.NewFramer(k.nc, k.nc)
	k.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go k.listen()
	_, _ = io.WriteString(k.nc, frames.ClientPreface)
	_ = k.WriteSettings()
}

func (k *talk) listen() {
	start := time.Now()
	for {
		f, err := k.ReadFrame()
		if err != nil {
			k.hear("end after %v", time.Since(start).Round(time.Second))
			return
		}
		switch f := f.(type) {
		case *frames.MetaHeadersFrame:
			k.hear("%d: %s", f.StreamID, f.PseudoValue("status"))
		case *frames.GoAwayFrame:
			k.hear("GOAWAY %d %v", f.LastStreamID, f.ErrCode)
		case *frames.PingFrame:
			k.hear("PING %v", f.IsAck())
		case *frames.RSTStreamFrame:
			k.hear("%d: RST %v", f.StreamID, f.ErrCode)
		case *frames.WindowUpdateFrame:
			k.mu.Lock()
			k.may[f.StreamID] += int(f.Increment)
			k.mu.Unlock()
		case *frames.SettingsFrame:
			if v, ok := f.Value(frames.SettingInitialWindowSize); ok {
				k.mu.Lock()
				k.first = int(v)
				k.mu.Unlock()
			}
		}
	}
}

func (k *talk) hear(format string, args ...any) {
	k.mu.Lock()
	k.heard = append(k.heard, fmt.Sprintf(format, args...))
	k.mu.Unlock()
}

func (k *talk) get(id uint32, path string, end, whole bool) {
	_ = k.WriteHeaders(frames.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: whole,
		BlockFragment: block(":method", "GET", ":scheme", "https", ":authority", "a", ":path", path)})
}

func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i+1 < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

// expect holds what has come since the last time against a text, a line each.
func (k *talk) expect(want string) {
	k.t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if got := strings.Join(k.heard, ", "); got != want {
		k.t.Errorf("got %q, want %q", got, want)
	}
	k.heard = nil
}

// A reading request has a body, of which it says how it ended.
type reading struct{ st *Stream }

func (r reading) Run() {
	r.st.StartBody(0, time.Time{})
	n := 0
	for {
		part, err := r.st.Next()
		if err != nil {
			status := 200
			if errors.Is(err, os.ErrDeadlineExceeded) {
				status = 408
			}
			_ = r.st.Respond(&message.Reply{Status: status})
			return
		}
		n += len(part)
		r.st.Discard(len(part))
	}
}

// Who asks for nothing is told to go after header_timeout; after a request after idle_timeout, and PINGs do not put that off.
func TestIdle(t *testing.T) {
	inTalk(t, func(k *talk) {
		time.Sleep(9 * time.Second)
		k.expect("")
		time.Sleep(2 * time.Second)
		k.expect("GOAWAY 0 NO_ERROR, end after 10s")
	})
	inTalk(t, func(k *talk) {
		time.Sleep(5 * time.Second)
		k.get(1, "/", true, true)
		time.Sleep(50 * time.Second)
		_ = k.WritePing(false, [8]byte{})
		k.expect("1: 200, PING true")
		time.Sleep(11 * time.Second)
		k.expect("GOAWAY 1 NO_ERROR, end after 1m5s")
	})
}

// The head of a request must be there in time, and is a request if it is not; one that is under way has all the time that its origin takes.
func TestSlowHeads(t *testing.T) {
	inTalk(t, func(k *talk) {
		k.get(1, "/slow", true, true)
		time.Sleep(time.Hour)
		k.get(3, "/", true, false)
		time.Sleep(9 * time.Second)
		k.expect("")
		close(k.release)
		time.Sleep(2 * time.Second)
		k.expect("1: 200, 3: RST CANCEL, GOAWAY 3 NO_ERROR, end after 1h0m10s")
		<-k.ended
		if got := strings.Join(k.seen, ", "); got != "GET /slow, refused timeout" {
			t.Error(got)
		}
	})
}

// A connection that is to end says so, serves what is asked until its client has heard of that, and nothing after; it ends when all is over.
func TestRetire(t *testing.T) {
	for _, hears := range []bool{true, false} {
		inTalk(t, func(k *talk) {
			k.get(1, "/slow", true, true)
			synctest.Wait()
			k.site.Retired.Store(time.Now().UnixNano())
			_ = k.client.Raw.SetReadDeadline(time.Unix(1, 0))
			k.expect("GOAWAY 2147483647 NO_ERROR, PING false")
			k.get(3, "/", true, true)
			k.expect("3: 200")
			if hears {
				_ = k.WritePing(true, farewell)
			} else {
				time.Sleep(graceTime)
			}
			k.expect("GOAWAY 3 NO_ERROR")
			k.get(5, "/", true, true)
			time.Sleep(time.Hour)
			k.expect("")
			close(k.release)
			synctest.Wait()
			k.mu.Lock()
			defer k.mu.Unlock()
			if got := strings.Join(k.heard, ", "); !strings.HasPrefix(got, "1: 200, end after ") {
				t.Errorf("got %q", got)
			}
			if got := strings.Join(k.seen, ", "); got != "GET /slow, GET /" {
				t.Error(got)
			}
			<-k.ended
		})
	}
}

// One that makes room ends at once if nothing is under way.
func TestMakesRoom(t *testing.T) {
	inTalk(t, func(k *talk) {
		k.get(1, "/", true, true)
		time.Sleep(5 * time.Second)
		if k.client.Idle.Load() == 0 {
			t.Error("it is not idle")
		}
		k.client.Going.Store(front.GoIdle)
		_ = k.client.Raw.SetReadDeadline(time.Unix(1, 0))
		k.expect("1: 200, GOAWAY 1 NO_ERROR, end after 5s")
	})
}

// A body must come at a pace, on each stream.
func TestSlowBody(t *testing.T) {
	inTalk(t, func(k *talk) {
		k.get(1, "/body", false, true)
		k.get(3, "/body", false, true)
		for range 12 { // 500 bytes a second and a half are too few
			_ = k.WriteData(3, false, make([]byte, 1000))
			time.Sleep(time.Second)
		}
		k.expect("1: 408, 1: RST NO_ERROR")
		for range 60 {
			_ = k.WriteData(3, false, make([]byte, 100))
			time.Sleep(time.Second)
		}
		k.expect("3: 408, 3: RST NO_ERROR")
	})
}

// More streams than are allowed are refused, and count.
func TestTooManyStreams(t *testing.T) {
	inTalk(t, func(k *talk) {
		for i := range uint32(5) {
			k.get(2*i+1, "/slow", true, true)
		}
		k.expect("9: RST REFUSED_STREAM")
		close(k.release)
		synctest.Wait()
		slices.Sort(k.heard)
		k.expect("1: 200, 3: 200, 5: 200, 7: 200")
		if len(k.seen) != 5 {
			t.Error(k.seen)
		}
	})
}

// What follows on a stream that is not taken any more, because its client did not know that yet, does no harm to those that were.
func TestBodiesOfUntakenStreams(t *testing.T) {
	inTalk(t, func(k *talk) {
		k.get(1, "/slow", true, true)
		synctest.Wait()
		k.client.Going.Store(front.GoNow)
		_ = k.client.Raw.SetReadDeadline(time.Unix(1, 0))
		k.expect("GOAWAY 1 NO_ERROR")
		for id := uint32(3); id < 40; id += 2 {
			k.get(id, "/body", false, true)
			_ = k.WriteWindowUpdate(id, 1000)
			_ = k.WriteData(id, false, make([]byte, frameSize))
			_ = k.WriteData(id, true, make([]byte, frameSize)) // more in all than a connection's window
		}
		_ = k.WriteRSTStream(5, frames.ErrCodeCancel)
		k.expect("")
		close(k.release)
		synctest.Wait()
		k.mu.Lock()
		if got := strings.Join(k.heard, ", "); !strings.HasPrefix(got, "1: 200, end after ") {
			t.Errorf("got %q", got)
		}
		if got := strings.Join(k.seen, ", "); got != "GET /slow" {
			t.Error(got)
		}
		k.mu.Unlock()
	})
}
