package http2

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// Refusals that wait share a page that is the same for all. What is each one's own is copied, up to a bound, and goes
// without its body beyond that.
func TestRefusalsThatWait(t *testing.T) {
	page := make([]byte, 60<<10)
	for _, shared := range []bool{true, false} {
		inTalkOf(t, 100, func(k *talk) {
			conns := make(map[*conn]bool)
			k.site.Start = func(st *Stream) Continuation {
				_ = st.Respond(&message.Reply{Status: 429, Body: page, Shared: shared})
				if conns[st.conn] = true; shared && (st.unsent == nil || &st.unsent[0] != &page[0]) {
					t.Error("the page is not shared")
				}
				return nil
			}
			_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0})
			var want []string
			for id := uint32(1); id < 20; id += 2 {
				k.get(id, "/", true, true)
				want = append(want, fmt.Sprintf("%d: 429", id))
			}
			k.expect(strings.Join(want, ", "))
			waiting := 10
			if !shared {
				waiting = 1
			}
			for c := range conns {
				c.mu.Lock()
				if len(c.streams) != waiting || c.copied != map[bool]int{false: len(page)}[shared] {
					t.Errorf("shared: %t: %d wait with %d bytes", shared, len(c.streams), c.copied)
				}
				c.mu.Unlock()
			}
			_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 1 << 20})
			_ = k.WriteWindowUpdate(0, 1<<20)
			synctest.Wait()
			for c := range conns {
				c.mu.Lock()
				if len(c.streams) != 0 || c.copied != 0 {
					t.Errorf("shared: %t: in the end %d wait with %d bytes", shared, len(c.streams), c.copied)
				}
				c.mu.Unlock()
			}
		})
	}
}
