package http2

import (
	"strings"
	"testing"
	"testing/synctest"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/message"
)

// A client that takes an answer byte by byte sends more of WINDOW_UPDATE than it gets of the answer, and goes beyond its budget.
func TestWindowsOfOneByte(t *testing.T) {
	inTalk(t, func(k *talk) {
		k.site.Start = func(st *Stream) Continuation {
			_ = st.Respond(&message.Reply{Status: 200, Body: make([]byte, 8<<10)})
			return nil
		}
		_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0})
		k.get(1, "/", true, true)
		for range 3 * controlBurst / 2 {
			if k.WriteWindowUpdate(1, 1) != nil {
				break
			}
			synctest.Wait()
		}
		<-k.ended
		k.mu.Lock()
		defer k.mu.Unlock()
		if got := strings.Join(k.heard, ", "); !strings.HasPrefix(got, "1: 200, GOAWAY 1 ENHANCE_YOUR_CALM") {
			t.Error(got)
		}
	})
}

// A wider window of the connection wakes those who wait for it, and not all whose own windows are closed: one frame would cost as much as there are streams.
func TestWindowWakesWhoWaits(t *testing.T) {
	c := &conn{client: new(front.Client), streams: make(map[uint32]*Stream), window: 10}
	c.controls.left = controlBurst
	c.site = &Server{Server: &front.Server{}}
	closed, waits := newStream(c, 1), newStream(c, 3)
	waits.window = 10
	c.streams[1], c.streams[3] = closed, waits
	for i, want := range [][2]int{{0, 0}, {0, 1}} {
		if err := c.widen(&frames.WindowUpdateFrame{Increment: 10}); err != nil || len(closed.opened) != want[0] || len(waits.opened) != want[1] {
			t.Errorf("%d: %d and %d are woken, %v", i, len(closed.opened), len(waits.opened), err)
		}
		c.window = 0
	}
}
