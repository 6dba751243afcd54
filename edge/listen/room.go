package listen

import (
	"runtime"
	"time"

	"sluice/edge/front"
	"sluice/edge/socket"
)

// At the cap on connections one must go so that another can come, or those that came first keep all
// others out. It is a connection that waits for a request: one whose client is mitigated, else the
// one that has waited longest. Requests under way are never cut for it.
//
// A connection that is on its way out counts no more, neither in all nor for its source: it
// lingers, its client has gone, or it was chosen to go. It still has its descriptor, though. So
// when those that are leaving take the spare slots as well, the one that is leaving for longest is
// cut: it has been answered, or its client has closed while its request was under way.
const (
	// sampled is how many connections are looked at to choose the one that goes: the cost of a new
	// one must not grow with the number of those that are open. They are chosen by chance (the
	// order of a map), so no attacker picks them; where a tenth of all connections are of mitigated
	// clients, one of those goes four times in five.
	sampled = 16
	// leastIdle is how long a connection waits for a request at least before it has to go, unless
	// its client is mitigated: a new client's first request is on its way, and one that was
	// answered just now goes on most probably. In a rush of new ones all would end unserved.
	leastIdle = time.Second
	// memoryRoom is how many go for a new one where memory is short: an idle connection takes about
	// a third of what one takes that sends a long head.
	memoryRoom = 3
)

// enter takes a connection in, and reports whether there is a slot for it. One that only has a
// spare slot is over the cap.
func (l *Registry) enter(c *front.Client) bool {
	l.Mu.Lock()
	full := l.most > 0 && len(l.Conns)-l.away.Len() >= l.most
	c.OverCap = full && !l.evict(time.Now().UnixNano())
	in := l.most == 0 || len(l.Conns) < l.most+spareConnections || l.cut()
	if c.OverCap || !in {
		l.Stats.OverCap.Add(1)
	}
	if in {
		l.Conns[c] = struct{}{}
	}
	if c.OverCap || !in {
		l.uncount(c)
	}
	l.Mu.Unlock()
	if full {
		runtime.Gosched() // the one that must go is woken: its slot is needed
	}
	return in
}

// makeRoom has n connections go, and reports whether there were so many that could.
func (l *Registry) makeRoom(n int) bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for now := time.Now().UnixNano(); n > 0 && l.evict(now); n-- {
	}
	return n == 0
}

// evict chooses a connection to go and wakes its reader. It needs the lock.
func (l *Registry) evict(now int64) bool {
	var chosen *front.Client
	var since int64
	how, looked := uint32(0), 0
	for c := range l.Conns {
		if looked++; looked > sampled {
			break
		}
		idle, may := c.Idle.Load(), uint32(front.GoIdle)
		if c.Blocked.Load() > now {
			may = front.GoNow
		}
		switch {
		case c.Leaving != nil || idle == 0 || may == front.GoIdle && now-idle < int64(leastIdle):
		case may > how || may == how && idle < since:
			chosen, how, since = c, may, idle
		}
	}
	if chosen == nil {
		return false
	}
	l.Stats.Evicted.Add(1)
	l.uncount(chosen)
	// Before the deadline: a Read that sets its own after this one looks again
	chosen.Going.Store(how)
	_ = chosen.Raw.SetReadDeadline(socket.LongAgo)
	return true
}

// cut closes the connection that is leaving for longest. It needs the lock.
func (l *Registry) cut() bool {
	looked := 0
	for e := l.away.Front(); e != nil && looked < sampled; e = e.Next() {
		c := e.Value.(*front.Client)
		if looked++; c.Going.Load() != 0 && c.Idle.Load() == 0 && !c.Closed.Load() {
			continue // a request came just before it had to go
		}
		l.drop(c)
		c.Raw.Close()
		return true
	}
	return false
}

// leave notes that a connection is being closed.
func (l *Registry) leave(c *front.Client) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.uncount(c)
}

// comeBack notes that a connection is not being closed after all. It reports false where its source
// has no room for it, which others may have taken meanwhile: then it does not count, as before, and
// is cut for a new one in its turn.
func (l *Registry) comeBack(c *front.Client) bool {
	source, capped := l.Source(c.Peer)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case c.Leaving == nil:
		return true
	case capped && l.counts[source] >= l.perSource:
		return false
	}
	l.away.Remove(c.Leaving)
	if c.Leaving = nil; capped {
		l.counts[source]++
		c.Source = source
	}
	return true
}

// uncount needs the lock, as what follows does.
func (l *Registry) uncount(c *front.Client) {
	if _, open := l.Conns[c]; open && c.Leaving == nil {
		c.Leaving = l.away.PushBack(c)
	}
	l.discount(c)
}

func (l *Registry) forget(c *front.Client) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.drop(c)
}

func (l *Registry) drop(c *front.Client) {
	delete(l.Conns, c)
	if c.Leaving != nil {
		l.away.Remove(c.Leaving)
		c.Leaving = nil
	}
	l.discount(c)
}

// Retire closes the connections that are idle and have had notice: it wakes their readers, and
// readOn decides which end.
func (l *Registry) Retire(now time.Time) {
	before := now.UnixNano() - l.Notice.Load()
	if l.Left.Load() > before {
		return
	}
	// Before the deadlines: a Read that sets its own after this one looks again
	l.Retired.Store(before)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for c := range l.Conns {
		if !c.Woken && c.Old() {
			c.Woken = true
			_ = c.Raw.SetReadDeadline(socket.LongAgo)
		}
	}
}
