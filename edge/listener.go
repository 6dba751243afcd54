package edge

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge/screen"
	"sluice/edge/socket"
)

const (
	// acceptPause is the first pause after a failed accept; it doubles up to acceptPauses. Without descriptors there is nothing
	// to do but to wait for somebody to close one.
	acceptPause  = 5 * time.Millisecond
	acceptPauses = 100 * time.Millisecond
	// stopTime is how long a listener that stops still accepts what is waiting.
	stopTime = 50 * time.Millisecond
)

// connStats counts connections.
type connStats struct {
	turnedAway  atomic.Uint64 // above the cap of their source
	crowded     atomic.Uint64 // above the cap on all
	starved     atomic.Uint64 // above the limit on memory
	evicted     atomic.Uint64 // idle, that made room for others
	shed        atomic.Uint64 // of mitigated sources
	badProxy    atomic.Uint64 // of proxies without a valid PROXY header
	acceptFails atomic.Uint64
}

// A registry knows which connections are open, so that draining can end them, and caps those of a source.
type registry struct {
	*screen.Site
	admission
	stats     connStats
	most      int // connections, tunnels among them; 0: any number. See spareConnections
	perSource int
	memory    *memoryCap // nil: no limit

	left   atomic.Int64 // when Leave was called, Unix nanoseconds; this and what follows: see drain.go
	notice atomic.Int64 // that idle connections have, nanoseconds

	mu     sync.Mutex
	conns  map[*screen.Client]struct{} // all that are open
	away   list.List                   // of *conn: those of them that are leaving and count no more, see room.go
	counts map[counter.Source]int      // of those that count
}

// An admission says who may come in.
type admission struct {
	source  func(netip.Addr) (counter.Source, bool) // whose connection a peer's is; false: a trusted proxy's, which has no cap
	proxied func(netip.Addr) bool                   // does a peer begin with a PROXY header?
	shed    func(netip.Addr) bool                   // is a peer to be turned away?
}

// spareConnections are accepted above the cap and answered with 503, or make up for those that are leaving (room.go); with those there
// as well, a connection is closed unanswered.
const spareConnections = 16

// newRegistry completes a site with what the registry does for its connections.
func newRegistry(s *screen.Site, a admission) (*registry, error) {
	memory, err := newMemoryCap(s.Limits.Memory)
	if err != nil {
		return nil, err
	}
	l := &registry{Site: s, admission: a, memory: memory, most: s.Limits.Connections, perSource: s.Limits.PerSource,
		conns: make(map[*screen.Client]struct{}), counts: make(map[counter.Source]int)}
	s.Slack = min(s.Limits.HeaderTimeout, s.Limits.IdleTimeout) / 64
	s.Alone = runtime.GOMAXPROCS(0) == 1
	s.Leave, s.Forget = l.leave, l.forget
	return l, nil
}

// A listener accepts connections on one socket: it goes on after temporary failures.
type listener struct {
	net.Listener
	*registry
	tls *tls.Config // nil: plain

	siege    siege
	ended    chan struct{} // closed when the last connection has been accepted
	stopping atomic.Bool
}

// Accept returns a screen, and io.EOF once the listener is closed.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		close(l.ended) // fasthttp does not call again after an error
		return nil, err
	}
	return screen.New(c), nil
}

func (l *listener) accept() (*screen.Client, error) {
	pause := acceptPause
	for {
		nc, err := l.next()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return nil, io.EOF
		case l.stopping.Load():
			l.Listener.Close()
			return nil, io.EOF
		case errors.Is(err, syscall.ECONNABORTED):
			continue
		default:
			l.stats.acceptFails.Add(1)
			time.Sleep(pause)
			pause = min(2*pause, acceptPauses)
			continue
		}
		if c := l.admit(nc); c != nil {
			return c, nil
		}
		nc.Close()
	}
}

// admit counts a connection for its source; nil means that the source is shed or has too many, or the process too little memory.
func (l *listener) admit(nc net.Conn) *screen.Client {
	peer := peerAddr(nc.RemoteAddr())
	if l.shed != nil && l.shed(peer) {
		l.siege.shed++
		return nil
	}
	l.siege.shed = 0
	if l.memory != nil && l.memory.exceeded(time.Now()) && !l.makeRoom(memoryRoom) {
		l.stats.starved.Add(1)
		return nil
	}
	nc = socket.New(nc)
	c := &screen.Client{Conn: nc, Raw: nc, Site: l.Site, Peer: peer, Accepted: time.Now().UnixNano()}
	if l.proxied != nil && l.proxied(c.Peer) {
		c.Conn = &proxied{Conn: nc, conn: c, then: l.Limits.HeaderTimeout, registry: l.registry}
	}
	if l.tls != nil {
		c.Secure, c.Conn = true, tls.Server(c.Conn, l.tls) // the first Read shakes hands
	}
	if !l.recount(c) || !l.enter(c) {
		return nil
	}
	return c
}

// recount counts a connection for the source that its peer is, in place of the one it was counted for. It reports whether
// that has room for it.
func (l *registry) recount(c *screen.Client) bool {
	source, capped := l.source(c.Peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.discount(c)
	if capped {
		if l.counts[source] >= l.perSource {
			l.stats.turnedAway.Add(1)
			return false
		}
		l.counts[source]++
		c.Source = source
	}
	return true
}

// discount needs the lock.
func (l *registry) discount(c *screen.Client) {
	if !c.Source.IsValid() {
		return
	}
	if l.counts[c.Source]--; l.counts[c.Source] <= 0 {
		delete(l.counts, c.Source)
	}
	c.Source = counter.Source{}
}

func (l *registry) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// closeAll cuts every connection that is still open.
func (l *registry) closeAll() {
	l.mu.Lock()
	open := make([]*screen.Client, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.Raw.Close() // not conn.Close: no lingering now
	}
}

func peerAddr(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}) // whoever it is, it is this machine
	}
	return netip.IPv6Unspecified() // an in-memory connection
}

// stop takes the connections that are waiting to be accepted, and then no more: closing at once would reset them.
func (l *listener) stop() {
	if l.stopping.Swap(true) {
		return
	}
	l.siege.lift()
	if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(time.Now().Add(stopTime)) == nil {
		return // Accept closes it when the time is up
	}
	l.Listener.Close()
}
