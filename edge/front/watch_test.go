package front

import (
	"runtime"
	"testing"
	"time"

	"sluice/edge/socket"
)

// A watch that waits at the client's socket has its own read deadline there, and one that ends leaves one that is over. Who reads from the
// client next must know, or a client would be cut whose answer took a while.
func TestWatchLeavesNoDeadline(t *testing.T) {
	_, accepted := connected(t)
	raw, due := socket.New(accepted), time.Now().Add(time.Hour)
	defer raw.Close()
	c := &Client{Conn: raw, Raw: raw, Site: &Site{HalfClosed: time.Hour}}
	var w watch
	for _, waits := range []bool{false, true, false} {
		c.ReadBy = due
		w.start(c, nil, func() { t.Error("the client has gone") })
		if waits {
			w.timer.Reset(0)
			for end := time.Now().Add(time.Minute); !w.waiting.Load(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal("nobody looks")
				}
			}
		} else {
			w.timer.Reset(time.Hour)
		}
		w.stop()
		if c.ReadBy.IsZero() != waits {
			t.Errorf("having waited %v: the deadline is taken for %v", waits, c.ReadBy)
		}
	}
}
