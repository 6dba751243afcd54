//go:build !race

package challenge

import (
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/message"
)

// What when wants of a request allocates nothing.
func TestTimingAllocatesNothing(t *testing.T) {
	p := &points{list: []*rule{{pace: &pace{over: time.Second}, hosts: []string{"a.example"}},
		{pace: &pace{over: time.Second}}, {}}}
	x := &edge.Exchange{Request: &message.Request{Host: []byte("a.example")}}
	if n := testing.AllocsPerRun(1000, func() {
		w := p.observe(x)
		w.Attempt("http://origin")
		w.Answered(200)
		w.Ended(nil, false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := p.list[0].pace.sample(); s.answered < 1000 {
		t.Errorf("%+v", s)
	}
}
