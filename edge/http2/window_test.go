package http2

import (
	"testing"
	"testing/synctest"
	"time"

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
		k.site.Start = func(st *Stream) Rest {
			if string(st.Request().Path) == "/large" {
				return givingUp{st}
			}
			return start(st)
		}
		for i := range uint32(2 * connWindow / frameSize) {
			k.get(2*i+1, "/large", false, true)
			_ = k.WriteData(2*i+1, false, make([]byte, frameSize))
			synctest.Wait()
		}
		k.heard = nil
		k.get(101, "/body", false, true)
		_ = k.WriteData(101, true, make([]byte, frameSize))
		k.expect("101: 200")
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
		k.site.Start = func(s *Stream) Rest { st = s; return patient{s, told} }
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
