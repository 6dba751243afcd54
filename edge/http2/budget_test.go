package http2

import (
	"strings"
	"testing"
	"testing/synctest"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// A client that takes an answer byte by byte sends more of WINDOW_UPDATE than it gets of the answer, and goes beyond its budget.
func TestWindowsOfOneByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := startTalk(t, nil)
		k.site.Start = func(st *Stream) Rest {
			_ = st.Respond(&message.Reply{Status: 200, Body: make([]byte, 8<<10)})
			return nil
		}
		k.greet()
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
