package listen

import (
	"net"
	"net/netip"
	"testing"

	"sluice/edge/front"
)

// What one new connection costs does not grow with those that are open.
func TestChoiceLooksAtAFew(t *testing.T) {
	l := registryWith(t, front.Limits{}, nil)
	const n = 50 * sampled
	for range n { // nobody is to go
		l.Conns[&front.Client{}] = struct{}{}
	}
	found := 0
	near, _ := net.Pipe()
	c := &front.Client{Raw: near, Server: l.Server}
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

// A connection that was on its way out and has come back counts again, and is not the next one to
// be cut. It comes back where its source has room, so no source has more than its cap thereby.
func TestComingBack(t *testing.T) {
	l := registryWith(t, front.Limits{PerSource: 1}, nil)
	in := func() *front.Client {
		c := &front.Client{Peer: netip.MustParseAddr("192.0.2.1"), Server: l.Server}
		if !l.recount(c) || !l.enter(c) {
			return nil
		}
		return c
	}
	first := in()
	if first == nil || in() != nil {
		t.Fatal("one of two may come in")
	}
	l.leave(first)
	second := in()
	if second == nil {
		t.Fatal("who leaves counts no more")
	}
	if l.comeBack(first) || l.counts[second.Source] != 1 || l.away.Len() != 1 {
		t.Errorf("above the cap: %d count, %d are leaving", l.counts[second.Source], l.away.Len())
	}
	l.forget(second)
	for range 2 {
		if !l.comeBack(first) || l.counts[first.Source] != 1 || l.away.Len() != 0 || in() != nil {
			t.Errorf("%d count, %d are leaving", l.counts[first.Source], l.away.Len())
		}
	}
}
