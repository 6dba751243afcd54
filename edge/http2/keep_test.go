package http2

import (
	"testing"
	"testing/synctest"

	"sluice/edge/message"
)

// A served request does something, and then answers.
type served struct {
	st *Stream
	do func(*Stream)
}

func (s served) Run() {
	s.do(s.st)
	_ = s.st.Respond(&message.Reply{Status: 200})
}

// The stream of a request that was served elsewhere may be another request's, unless somebody may still come back to it: one whose client has gone, who
// has not stopped to watch it, whose body may still come, or whose goroutine has failed.
func TestStreamsAreKept(t *testing.T) {
	for _, c := range []struct {
		name     string
		do       func(*Stream)
		bodiless bool
		kept     bool
	}{
		{"served", func(*Stream) {}, true, true},
		{"watched, and no more", func(st *Stream) { st.Watch(nil, func() {}); st.Unwatch() }, true, true},
		{"watched", func(st *Stream) { st.Watch(nil, func() {}) }, true, false},
		{"with a body", func(*Stream) {}, false, false},
		{"large", func(st *Stream) { st.text = make([]byte, 0, mostKept+1) }, true, false},
		{"failed", func(*Stream) { panic("a fault") }, true, false},
		{"reset", func(st *Stream) { st.Abort() }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTalk(t, func(k *talk) {
				var had *Stream
				k.site.Start = func(st *Stream) Continuation { had = st; return served{st, c.do} }
				k.get(1, "/", c.bodiless, true)
				synctest.Wait()
				if kept := had.conn == nil; kept != c.kept {
					t.Errorf("it is kept: %t", kept)
				}
			})
		})
	}
}
