package listen

import (
	"net"
	"testing"

	"sluice/edge/screen"
)

// What one new connection costs does not grow with those that are open.
func TestChoiceLooksAtAFew(t *testing.T) {
	l := registryWith(t, screen.Limits{}, nil)
	const n = 50 * sampled
	for range n { // nobody is to go
		l.Conns[&screen.Client{}] = struct{}{}
	}
	found := 0
	near, _ := net.Pipe()
	c := &screen.Client{Raw: near, Site: l.Site}
	c.Idle.Store(1)
	l.Conns[c] = struct{}{}
	for range n {
		if l.evict(1 << 60) {
			found++
			l.drop(c)
			l.Conns[c] = struct{}{}
		}
	}
	if want := sampled * n / (n + 1); found > 4*want || found == 0 {
		t.Errorf("one of %d was found %d times in %d; want about %d", n+1, found, n, want)
	}
}
