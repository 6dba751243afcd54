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

// The stream of a request that was served elsewhere is the next request's, unless somebody may still come back to it: one whose client has gone, who
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
		{"large", func(st *Stream) { st.text = make([]byte, 0, mostIdle+1) }, true, false},
		{"failed", func(*Stream) { panic("a fault") }, true, false},
		{"reset", func(st *Stream) { st.Abort() }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTalk(t, func(k *talk) {
				var had []*Stream
				k.site.Start = func(st *Stream) Rest {
					if had = append(had, st); len(had) > 1 {
						return served{st, func(*Stream) {}}
					}
					return served{st, c.do}
				}
				k.get(1, "/", c.bodiless, true)
				synctest.Wait()
				k.get(3, "/", true, true)
				synctest.Wait()
				if len(had) != 2 || (had[0] == had[1]) != c.kept {
					t.Errorf("of %d streams, the second is that of the first: %t", len(had), had[0] == had[len(had)-1])
				}
			})
		})
	}
}
