package http2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// A givingUp request looks at its body, and answers without any of it.
type givingUp struct{ st *Stream }

func (g givingUp) Run() {
	g.st.StartBody(0, time.Time{})
	_, _ = g.st.Next()
	g.st.EndBody()
	_ = g.st.Respond(&message.Reply{Status: 413})
}

// What nobody takes of a body is given back to its connection's window all the same: the bodies after it come.
func TestBodiesThatAreGivenUp(t *testing.T) {
	inTalk(t, func(k *talk) {
		start := k.site.Start
		k.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/large" {
				return givingUp{st}
			}
			return start(st)
		}
		for i := range uint32(2 * k.site.window() / frameSize) {
			k.get(2*i+1, "/large", false, true)
			_ = k.WriteData(2*i+1, false, make([]byte, frameSize))
			synctest.Wait()
		}
		k.heard = nil
		k.get(1001, "/body", false, true)
		_ = k.WriteData(1001, true, make([]byte, frameSize))
		k.expect("1001: 200")
	})
}

// A patient request reads its body when it is told to.
type patient struct {
	st   *Stream
	told <-chan struct{}
}

func (p patient) Run() { <-p.told; reading{p.st}.Run() }

// A stream that waits for more of its body does not keep the memory of what has come.
func TestMemoryOfBodies(t *testing.T) {
	inTalk(t, func(k *talk) {
		told := make(chan struct{})
		var st *Stream
		k.site.Start = func(s *Stream) Continuation { st = s; return patient{s, told} }
		k.get(1, "/", false, true)
		for range 3 {
			_ = k.WriteData(1, false, make([]byte, frameSize))
		}
		synctest.Wait()
		close(told)
		synctest.Wait()
		st.conn.mu.Lock()
		if n := cap(st.queue) + cap(st.shown); n > 0 || st.got != 3*frameSize {
			t.Errorf("%d bytes are read, and %d kept", st.got, n)
		}
		st.conn.mu.Unlock()
		_ = k.WriteData(1, true, []byte("x"))
		k.expect("1: 200")
	})
}

// push sends so much of a body as windows allow, and n bytes at most. It returns how much that was.
func (k *talk) push(id uint32, n int) (sent int) {
	for sent < n {
		synctest.Wait()
		k.mu.Lock()
		part := min(n-sent, k.first+k.may[id], k.may[0], frameSize)
		if part > 0 {
			k.may[id] -= part
			k.may[0] -= part
		}
		k.mu.Unlock()
		if part <= 0 {
			break
		}
		_ = k.WriteData(id, false, make([]byte, part))
		sent += part
	}
	return sent
}

// However many bodies of a connection nobody reads, those that are read come: each has a window that no other can take.
func TestSlowBodiesHoldUpNoOthers(t *testing.T) {
	for _, read := range []int{0, firstWindow} { // by those that nobody reads any more then
		inTalkOf(t, 32, func(k *talk) {
			told := make(chan struct{})
			start := k.site.Start
			k.site.Start = func(st *Stream) Continuation {
				if string(st.Request().Path) == "/stuck" {
					return stuck{st, read, told}
				}
				return start(st)
			}
			_ = k.WriteSettingsAck()
			held := 0
			for i := range uint32(30) {
				k.get(2*i+1, "/stuck", false, true)
			}
			for i := range uint32(30) {
				held += k.push(2*i+1, 1<<20)
			}
			if most := k.site.window(); held-30*read > most || held < 30*firstWindow {
				t.Errorf("%d bytes wait, want at most %d", held-30*read, most)
			}
			for _, id := range []uint32{101, 103} {
				k.get(id, "/body", false, true)
				if sent := k.push(id, 1<<20); sent != 1<<20 {
					t.Errorf("after %d bytes of a body there was no window", sent)
				}
				_ = k.WriteData(id, true, nil)
				k.expect(fmt.Sprintf("%d: 200", id))
			}
			close(told)
		})
	}
}

// A stuck request reads some of its body, and no more before it is told to.
type stuck struct {
	st   *Stream
	read int
	told <-chan struct{}
}

func (s stuck) Run() {
	s.st.StartBody(0, time.Time{})
	for s.st.Got() < int64(s.read) {
		part, err := s.st.Next()
		if err != nil {
			return
		}
		s.st.Discard(min(len(part), s.read-int(s.st.Got())))
	}
	<-s.told
}

// Who has not heard of the windows goes by those that there were before, until then.
func TestWindowsUntilTheyAreKnown(t *testing.T) {
	inTalk(t, func(k *talk) {
		told := make(chan struct{})
		k.site.Start = func(s *Stream) Continuation { return patient{s, told} }
		k.get(1, "/", false, true)
		for range usualWindow / frameSize {
			_ = k.WriteData(1, false, make([]byte, frameSize))
		}
		_ = k.WriteSettingsAck()
		k.get(3, "/", false, true)
		_ = k.WriteData(3, false, make([]byte, firstWindow))
		k.expect("")
		_ = k.WriteData(3, false, make([]byte, 1)) // it knows
		k.expect("3: RST FLOW_CONTROL_ERROR")
		close(told)
		_ = k.WriteData(1, true, nil)
		k.expect("1: 200")
	})
}

// Bodies that are refused may all be under way when their client hears of it: nothing that it has sent by then is its fault.
func TestManyBodiesAreRefused(t *testing.T) {
	inTalkOf(t, 128, func(k *talk) {
		k.site.Start = func(st *Stream) Continuation { _ = st.Respond(&message.Reply{Status: 429}); return nil }
		for i := range uint32(128) {
			k.get(2*i+1, "/", false, true)
		}
		for i := range uint32(128) {
			for range 3 {
				_ = k.WriteData(2*i+1, false, make([]byte, 4<<10))
			}
			_ = k.WriteHeaders(frames.HeadersFrameParam{StreamID: 2*i + 1, EndStream: true, EndHeaders: true, BlockFragment: block("x-sum", "1")})
		}
		synctest.Wait()
		k.mu.Lock()
		answered, resets := 0, 0
		for _, h := range k.heard {
			switch {
			case strings.HasSuffix(h, ": 429"):
				answered++
			case strings.HasSuffix(h, ": RST NO_ERROR"):
				resets++
			default:
				t.Error(h)
			}
		}
		k.mu.Unlock()
		if answered != 128 || resets != 128 {
			t.Errorf("%d were answered, and %d told that they need not go on", answered, resets)
		}
	})
}

// A frame that says again and again how large new windows are costs what one of its length may, however many streams are open: windows are moved once.
// A window that grew too large in between is an error all the same.
func TestSettingsAreTakenOnce(t *testing.T) {
	cost := func(open uint32) time.Duration {
		c := &conn{settled: true, initial: usualWindow, streams: make(map[uint32]*Stream)}
		for id := range open {
			c.streams[id] = &Stream{opened: make(chan struct{}, 1), window: usualWindow}
		}
		var list []frames.Setting
		for i := range 2700 {
			list = append(list, frames.Setting{ID: frames.SettingInitialWindowSize, Val: uint32(usualWindow + i%2)})
		}
		text := framesOf(func(f *frames.Framer) { _ = f.WriteSettings(list...) })[9:] // behind an empty one
		least := time.Hour
		for range 20 {
			f, err := frames.NewFramer(nil, bytes.NewReader(text)).ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			c.controls.left, c.out = controlBurst, c.out[:0]
			start := time.Now()
			if err := c.settings(f.(*frames.SettingsFrame)); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(start))
		}
		if st := c.streams[0]; c.initial != usualWindow+1 || st.window != c.initial {
			t.Errorf("a new window is %d, and one of a stream %d", c.initial, st.window)
		}
		return least
	}
	if one, many := cost(1), cost(100); many > 20*one {
		t.Errorf("%v with 100 streams, and %v with one", many, one)
	}
	c := &conn{initial: usualWindow, streams: map[uint32]*Stream{1: {opened: make(chan struct{}, 1), window: usualWindow + 1}}}
	if err := c.resize(usualWindow, mostWindow); err != frames.ConnectionError(frames.ErrCodeFlowControl) {
		t.Error(err)
	}
}
