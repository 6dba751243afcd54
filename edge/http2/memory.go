package http2

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/counter"
)

// Over HTTP/1.1 a connection has one request, so caps on connections bound what requests hold. Over
// HTTP/2 it has many, and a client that opens no window, or reads nothing, keeps all of them for as
// long as its pace allows. So what streams hold is counted, for each source and in all, and whoever
// lets most of it wait gives way:
//
//   - above half of the bound, streams that have waited for their client for patience are reset,
//     those of the source with most of them first (Memory.choose), and it begins no others for
//     penalty;
//   - above three quarters, those are that have waited for a moment, of sources that hold more than
//     their share: the bound by the number of sources that hold any; a source with half of that
//     begins nothing while such a stream waits;
//   - above the bound, a source begins nothing that holds its share, which shrinks to nothing until
//     a third more than the bound is held; if nothing has waited for it for a moment, its
//     connections are read on once there is room, and only after patience is one refused
//     (conn.queue). A connection is always read of which a stream waits for its client, whose word,
//     or body, may be there already.
//
// So a source that lets nothing wait, and sends no bodies, is always served, if its requests end
// within patience: its share of them at once.
//
// A request adds what it holds once and takes it back once, in at most four atomic operations. The
// lock is taken for a stream that waits for its client, and for a write of more than a frame.
const (
	// requestHolds is what a request holds besides its texts, and what its origin's answer is read
	// with: its stack, most of all.
	requestHolds = 24 << 10
	// patience is how long a client may take nothing of what is there for it, at least, where
	// memory is short.
	patience = 500 * time.Millisecond
	// moment is how long it may where there is least.
	moment = 50 * time.Millisecond
	// penalty is how long a source begins nothing that has had to give way, where memory is short.
	penalty = time.Second
	// mostBeyond is by which part of the bound all together may pass it: a third.
	mostBeyond = 3
	// lookEvery is how soon streams are looked for again where none could be reset: all sources
	// with some that wait are looked at.
	lookEvery = 5 * time.Millisecond
)

// A Memory bounds what the streams of all connections hold.
type Memory struct {
	most    int64 // bytes
	source  func(netip.Addr) (counter.Source, bool)
	held    atomic.Int64 // bytes
	holders atomic.Int64 // sources that hold some
	stalled atomic.Int64 // bytes that wait for their clients

	mu       sync.Mutex // comes after that of a connection
	sources  map[counter.Source]*holder
	stalling []*holder
	again    [2]time.Time // when to look again, above half of the bound and above three quarters
}

// A holder is a source, or a connection of none.
type holder struct {
	held, stalled atomic.Int64
	gave          atomic.Int64  // when it had to give way last, Unix nanoseconds,
	waits         atomic.Int64  // and since when its first has waited; 0: none does
	queued        atomic.Int32  // requests that are held back until others have ended,
	freed         chan struct{} // of which one is told that others have

	// What follows is guarded by Memory.mu.
	of          counter.Source // the source; zero: none
	conns       int
	at          int    // in Memory.stalling
	first, last *stall // those that have waited longest come first
}

// A stall is what is held by a stream, or by a connection that is written to, and whether it waits
// for its client.
type stall struct {
	conn *conn
	id   uint32 // the stream; 0: it is the connection's
	// What follows is guarded by Memory.mu while it is in the list of its holder, and else its
	// owner's.
	bytes         int64 // 0 as well: it has given way
	since         time.Time
	before, after *stall
	listed        bool
}

// A pause is a loop's wait for room, in which its connection is not read. There is none while a
// stream waits for the client, whose word may be there already. Nor is there one for patience after
// one that was in vain: what the client says behind the request that was refused is to be read.
type pause struct {
	next time.Time // it begins no sooner; the loop's
	// What follows is guarded by Memory.mu.
	waiting int           // streams of the connection that wait for the client
	over    chan struct{} // is told that one begins to; nil: the loop is reading
}

func newHolder(of counter.Source) *holder { return &holder{of: of, freed: make(chan struct{}, 1)} }

// NewMemory bounds what streams hold to most bytes. source is the source of a peer; false: it has
// none, as a trusted proxy.
func NewMemory(most int, source func(netip.Addr) (counter.Source, bool)) *Memory {
	return &Memory{most: int64(most), source: source, sources: make(map[counter.Source]*holder)}
}

// enter has a connection counted. There is no bound if m is nil.
func (m *Memory) enter(c *conn) {
	if m == nil {
		return
	}
	source, has := m.source(c.client.Peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch c.holder = m.sources[source]; {
	case !has:
		c.holder = newHolder(source)
	case c.holder == nil:
		c.holder = newHolder(source)
		m.sources[source] = c.holder
	}
	c.holder.conns++
}

// leave forgets a connection, which holds nothing any more.
func (m *Memory) leave(c *conn) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.holder.conns--; c.holder.conns == 0 && m.sources[c.holder.of] == c.holder {
		delete(m.sources, c.holder.of)
	}
}

// hold counts n bytes more, or fewer, as held.
func (c *conn) hold(n int64) {
	if n == 0 || c.holder == nil {
		return
	}
	m := c.site.Memory
	m.held.Add(n)
	switch c.holder.held.Add(n) {
	case n:
		m.holders.Add(1)
	case 0:
		m.holders.Add(-1)
	}
	if n < 0 {
		c.holder.free()
	}
}

// free tells a request that is held back, if there is one, that there may be room.
func (h *holder) free() {
	if h.queued.Load() > 0 {
		select {
		case h.freed <- struct{}{}:
		default:
		}
	}
}

// admits counts a request, and reports whether it may be served.
func (c *conn) admits(st *Stream) bool {
	m, h := c.site.Memory, c.holder
	if m == nil {
		return true
	}
	if st.in.Refused == nil && c.site.Awaited != nil {
		st.ahead = c.site.Awaited()
	}
	st.held.bytes = st.holds()
	c.hold(st.held.bytes)
	if m.held.Load() <= m.most/2 {
		return true
	}
	m.makeRoom()
	held := m.held.Load()
	now, since := time.Now().UnixNano(), h.waits.Load()
	gave := held > m.most/2 && now-h.gave.Load() < int64(penalty)
	waits := since != 0 && now-since >= int64(moment)
	switch {
	case gave, waits && held > m.most/4*3 && m.shares(h) >= 0.5: // others come first
	case m.hasRoom(h, st.held.bytes, 0), !waits && c.queue(st):
		return true
	}
	c.hold(-st.held.bytes)
	st.held.bytes = 0
	c.site.Stats.MemoryRefused.Add(1)
	return false
}

// hasRoom reports whether a source may have n bytes more, of which so many are to be counted yet:
// they are within the bound, or within its share. What all together hold beyond the bound takes
// from each share, or the second source would get half of the bound on top of the first's whole,
// the third a third, and so on without end.
func (m *Memory) hasRoom(h *holder, n, uncounted int64) bool {
	held, own, holders := m.held.Load()+uncounted, h.held.Load()+uncounted, m.holders.Load()
	if held <= m.most {
		return true
	}
	if own == uncounted { // it may be more than a share by itself
		holders++
	}
	left := m.most - max(held-n-m.most, 0)*mostBeyond
	return float64(own)*float64(holders) < float64(left)
}

// queue holds a request back, and its connection with it, until there is room, which others of the
// source make as they end. It reports whether there is.
func (c *conn) queue(st *Stream) bool {
	m, h, n, began := c.site.Memory, c.holder, st.held.bytes, time.Now()
	if st.in.Refused != nil || began.Before(c.pause.next) || c.flush() != nil || c.sends(st) ||
		!m.pause(c) {
		return false
	}
	defer m.goOn(c)
	h.queued.Add(1)
	defer h.free() // another, too
	defer h.queued.Add(-1)
	c.hold(-n)
	defer c.hold(n)
	look := time.NewTicker(moment) // other sources may have made room, and tell nobody
	defer look.Stop()
	for {
		if m.hasRoom(h, n, n) {
			return true
		}
		if now := time.Now(); now.Sub(began) >= patience {
			c.pause.next = now.Add(patience)
			return false
		}
		select {
		case <-h.freed:
		case <-look.C:
		case <-c.pause.over:
			return false
		}
	}
}

// sends reports whether the body is on its way of a request before st, which may end once it has
// been read.
func (c *conn) sends(st *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.streams {
		if other != st && !other.ended {
			return true
		}
	}
	return false
}

// pause begins a pause of a connection's loop, and reports whether there may be one.
func (m *Memory) pause(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.pause.waiting > 0 {
		return false
	}
	c.pause.over = make(chan struct{}, 1)
	return true
}

// goOn ends it.
func (m *Memory) goOn(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.pause.over = nil
}

// shares is how many times as much a source holds as each may where all hold the same.
func (m *Memory) shares(h *holder) float64 {
	return float64(h.held.Load()) * float64(m.holders.Load()) / float64(m.most)
}

// isShort reports whether half of the bound is held: then no stream gets more than the least.
func (m *Memory) isShort() bool { return m != nil && m.held.Load() > m.most/2 }

// holds is what a stream holds now, in bytes, as far as it is counted.
func (st *Stream) holds() int64 {
	n := requestHolds + cap(st.text) + cap(st.block) + cap(st.out) + st.copied + st.ahead
	if !st.bodiless {
		n += firstWindow
	}
	return int64(n)
}

// stalls notes that a stream waits for its client.
func (st *Stream) stalls() {
	c := st.conn
	if c.holder == nil || st.held.bytes == 0 { // nothing is bounded, or it has given way
		return
	}
	now := st.holds()
	c.hold(now - st.held.bytes)
	st.held.bytes, st.held.conn, st.held.id = now, c, st.id
	c.site.Memory.list(&st.held)
	st.stalled = true
}

// goesOn notes that it does so no more.
func (st *Stream) goesOn() {
	if st.stalled {
		st.stalled = false
		st.conn.site.Memory.unlist(&st.held)
	}
}

// release counts what a stream has held that is over.
func (c *conn) release(st *Stream) {
	st.goesOn()
	c.hold(-st.held.bytes - st.trailing)
	st.held.bytes, st.trailing = 0, 0
}

// trails counts what has come after the body of a stream, and reports false where there is no room
// for it. It needs c.mu.
func (c *conn) trails(st *Stream) bool {
	if c.holder == nil || c.streams[st.id] != st { // nothing is bounded, or it is over
		return true
	}
	st.trailing = int64(cap(st.tail))
	c.hold(st.trailing)
	if c.site.Memory.hasRoom(c.holder, st.trailing, 0) {
		return true
	}
	c.site.Stats.MemoryReset.Add(1)
	return false
}

// writes notes that n bytes are being written, while as many may gather. It needs c.mu, as wrote
// and gathers do.
func (c *conn) writes(n int) {
	if c.holder != nil && n > frameSize {
		c.held = stall{conn: c, bytes: 2 * int64(n)}
		c.hold(c.held.bytes)
		c.site.Memory.list(&c.held)
	}
}

// gathers notes that more than a frame has gathered behind a shorter write: soon it is as much as
// may.
func (c *conn) gathers() {
	if c.writing && c.held.conn == nil && len(c.out) > frameSize {
		c.writes(mostUnwritten / 2)
	}
}

// wrote notes that they have been, or will never be.
func (c *conn) wrote() {
	if c.held.conn != nil {
		c.site.Memory.unlist(&c.held)
		c.hold(-c.held.bytes)
		c.held.conn = nil
	}
}

// list adds what waits to its holder's.
func (m *Memory) list(e *stall) {
	h := e.conn.holder
	m.mu.Lock()
	defer m.mu.Unlock()
	e.since, e.before, e.after, e.listed = time.Now(), h.last, nil, true
	if e.id != 0 {
		p := &e.conn.pause
		if p.waiting++; p.over != nil {
			signal(p.over)
		}
	}
	if h.last == nil {
		h.first, h.at = e, len(m.stalling)
		h.waits.Store(e.since.UnixNano())
		m.stalling = append(m.stalling, h)
	} else {
		h.last.after = e
	}
	h.last = e
	h.stalled.Add(e.bytes)
	m.stalled.Add(e.bytes)
}

func (m *Memory) unlist(e *stall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.listed {
		m.remove(e)
	}
}

// remove takes something from its holder's. It needs m.mu.
func (m *Memory) remove(e *stall) {
	h := e.conn.holder
	if e.before != nil {
		e.before.after = e.after
	} else {
		if h.first = e.after; e.after != nil {
			h.waits.Store(e.after.since.UnixNano())
		} else {
			h.waits.Store(0)
		}
	}
	if e.after != nil {
		e.after.before = e.before
	} else {
		h.last = e.before
	}
	e.before, e.after, e.listed = nil, nil, false
	if e.id != 0 {
		e.conn.pause.waiting--
	}
	h.stalled.Add(-e.bytes)
	m.stalled.Add(-e.bytes)
	if h.first == nil {
		last := len(m.stalling) - 1
		m.stalling[h.at] = m.stalling[last]
		m.stalling[h.at].at = h.at
		m.stalling[last] = nil
		m.stalling = m.stalling[:last]
	}
}

// A victim is a stream that gives way, or a connection if there is no id.
type victim struct {
	conn *conn
	id   uint32
}

// makeRoom has streams give way where too much is held. No connection's lock may be held.
func (m *Memory) makeRoom() {
	if m == nil || m.held.Load() <= m.most/2 || m.stalled.Load() == 0 {
		return
	}
	for _, v := range m.choose(time.Now()) {
		v.conn.giveWay(v.id)
	}
}

// choose chooses what gives way, and counts it as held no more: of the source with most that waits
// what has waited longest, and of all that have more than half as much, until they have that half;
// and so on, until it is enough. Each time all sources are looked at that have something waiting,
// and each time the most that one has is halved.
func (m *Memory) choose(now time.Time) (chosen []victim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	level := 0
	if m.held.Load() > m.most/4*3 {
		level = 1
	}
	if now.Before(m.again[level]) {
		return nil
	}
	for held := m.held.Load(); held > m.most/2; held = m.held.Load() {
		before, most := len(chosen), int64(0)
		for _, h := range m.stalling {
			if m.next(h.first, now) != nil {
				most = max(most, h.stalled.Load())
			}
		}
		// One that has none left has its place taken by one that was looked at
		for i := len(m.stalling) - 1; i >= 0; i-- {
			h := m.stalling[i]
			for e := m.next(h.first, now); e != nil && h.stalled.Load() > most/2 &&
				m.held.Load() > m.most/2; {
				after := e.after
				m.remove(e)
				e.conn.hold(-e.bytes)
				e.bytes = 0
				h.gave.Store(now.UnixNano())
				chosen = append(chosen, victim{e.conn, e.id})
				e = m.next(after, now)
			}
		}
		if len(chosen) == before {
			break
		}
	}
	if len(chosen) == 0 {
		m.again[level] = now.Add(lookEvery)
	}
	return chosen
}

// next is the first from e on that may have to give way. Of a source that holds less than its
// share, and of what is being written, that is what has waited for long: most clients let something
// wait for a moment.
func (m *Memory) next(e *stall, now time.Time) *stall {
	least := patience
	if e != nil && m.held.Load() > m.most/4*3 && m.shares(e.conn.holder) >= 1 {
		least = moment
	}
	for ; e != nil && now.Sub(e.since) >= least; e = e.after { // what follows has waited less
		if e.id != 0 || now.Sub(e.since) >= patience {
			return e
		}
	}
	return nil
}

// giveWay resets a stream, or ends the connection, whose client reads nothing.
func (c *conn) giveWay(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		c.site.Stats.MemoryCut.Add(1)
		c.breakOff(errGone)
		c.client.Reset()
		return
	}
	if st := c.streams[id]; st != nil {
		c.site.Stats.MemoryReset.Add(1)
		c.reset(st, frames.ErrCodeEnhanceYourCalm)
		c.drained.Broadcast() // it may wait there
	}
}
