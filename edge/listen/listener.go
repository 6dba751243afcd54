// Package listen is where connections come in: listeners, the PROXY protocol, certificates, the
// caps on connections of a source and in all, and on memory. At a cap an idle connection makes room
// for a new one.
package listen

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge/front"
	"sluice/edge/socket"
)

const (
	// acceptPause is the first pause after a failed accept; it doubles up to acceptPauses. Without
	// descriptors there is nothing to do but to wait until one is closed.
	acceptPause  = 5 * time.Millisecond
	acceptPauses = 100 * time.Millisecond
	// stopTime is how long a listener that stops still accepts what is waiting.
	stopTime = 50 * time.Millisecond
)

// Stats counts connections.
type Stats struct {
	TurnedAway  atomic.Uint64 // above the cap of their source
	OverCap     atomic.Uint64 // above the cap on all
	OverMemory  atomic.Uint64 // above the limit on memory
	Evicted     atomic.Uint64 // idle, that made room for others
	Shed        atomic.Uint64 // of mitigated sources
	BadProxy    atomic.Uint64 // of proxies without a valid PROXY header
	AcceptFails atomic.Uint64
}

// A Registry knows which connections are open, so that draining can end them, and caps those of a
// source.
type Registry struct {
	*front.Server
	Admission
	Stats     Stats
	most      int // connections, tunnels among them; 0: any number. See spareConnections
	perSource int
	Memory    *MemoryCap // nil: no limit

	// When Leave was called, Unix nanoseconds; this and what follows: see room.go
	Left   atomic.Int64
	Notice atomic.Int64 // that idle connections have, nanoseconds

	Mu      sync.Mutex
	Conns   map[*front.Client]struct{} // all that are open
	entries []*Entry                   // that there are listeners of
	// Of *conn: those of them that are leaving and count no more, see room.go
	away   list.List
	counts map[counter.Source]int // of those that count
}

// An Admission decides which connections may come in.
type Admission struct {
	// The source of a peer's connection; false: a trusted proxy's, which has no cap
	Source func(netip.Addr) (counter.Source, bool)
	// Does a peer begin with a PROXY header, where its listener does not say?
	Proxied func(netip.Addr) bool
	// Would it, where its listener says that proxies do?
	Trusted func(netip.Addr) bool
	Shed    func(netip.Addr) bool // is a peer to be turned away?
	// Hello is what modules find out of a ClientHello, for Client.Hello; nil, or of nil: nothing.
	Hello func() func(*tls.ClientHelloInfo) []any
	// ShedNamed is Shed for a client that a PROXY header names: it is no peer, so a firewall, which
	// sees peers, cannot drop it.
	ShedNamed func(netip.Addr) bool
}

// spareConnections are accepted above the cap and answered with 503, or make up for those that are
// leaving (room.go); with those there as well, a connection is closed unanswered.
const spareConnections = 16

// NewRegistry completes a site with what the registry does for its connections.
func NewRegistry(s *front.Server, a Admission) (*Registry, error) {
	memory, err := newMemoryCap(s.Limits.Memory)
	if err != nil {
		return nil, err
	}
	l := &Registry{Server: s, Admission: a, Memory: memory, most: s.Limits.Connections,
		perSource: s.Limits.PerSource,
		Conns:     make(map[*front.Client]struct{}), counts: make(map[counter.Source]int)}
	s.Slack = min(s.Limits.HeaderTimeout, s.Limits.IdleTimeout) / 64
	s.Leave, s.Return, s.Forget = l.leave, l.comeBack, l.forget
	return l, nil
}

// A Listener accepts connections on one socket: it goes on after temporary failures.
type Listener struct {
	net.Listener
	*Registry
	Entry *Entry      // nil: nothing is said of it
	TLS   *tls.Config // nil: plain

	shedder  acceptShedder
	Ended    chan struct{} // closed when the last connection has been accepted
	stopping atomic.Bool
}

// Accept returns a guarded connection, and io.EOF once the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.acceptClient()
	if err != nil {
		close(l.Ended) // fasthttp does not call again after an error
		return nil, err
	}
	return front.New(c), nil
}

func (l *Listener) acceptClient() (*front.Client, error) {
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
			l.Stats.AcceptFails.Add(1)
			time.Sleep(pause)
			pause = min(2*pause, acceptPauses)
			continue
		}
		if c := l.Admit(nc); c != nil {
			return c, nil
		}
		nc.Close()
	}
}

// Admit counts a connection for its source; nil means that the source is shed or has too many, or
// the process too little memory.
func (l *Listener) Admit(nc net.Conn) *front.Client {
	var redirect uint16
	if e := l.Entry; e != nil {
		e.Accepted.Add(1)
		redirect = e.Redirect
	}
	peer := front.PeerOf(nc.RemoteAddr())
	if l.Shed != nil && l.Shed(peer) {
		l.shedder.shed++
		return nil
	}
	l.shedder.shed = 0
	if l.Memory != nil && l.Memory.exceeded(time.Now()) && !l.makeRoom(memoryRoom) {
		l.Stats.OverMemory.Add(1)
		return nil
	}
	nc = socket.New(nc)
	c := &front.Client{Conn: nc, Raw: nc, Server: l.Server, Peer: peer, Accepted: time.Now().UnixNano(),
		Redirect: redirect}
	if l.proxied(c.Peer) {
		c.Conn = &proxiedConn{Conn: nc, client: c, then: l.Limits.HeaderTimeout,
			registry: l.Registry}
	}
	if l.TLS != nil {
		if l.Hello != nil {
			if find := l.Hello(); find != nil {
				c.Conn = &greeted{c.Conn, c, find}
			}
		}
		c.Secure, c.Conn = true, tls.Server(c.Conn, l.TLS) // the first Read shakes hands
	}
	if !l.recount(c) || !l.enter(c) {
		return nil
	}
	return c
}

// A greeted connection is one of whose ClientHello modules find out something.
type greeted struct {
	net.Conn
	client *front.Client
	find   func(*tls.ClientHelloInfo) []any
}

// UnsafeConn is the connection below.
func (g *greeted) UnsafeConn() net.Conn { return g.Conn }

// proxied reports whether a peer begins with a PROXY header here.
func (l *Listener) proxied(peer netip.Addr) bool {
	if e := l.Entry; e != nil && e.ProxyProtocol != nil {
		return *e.ProxyProtocol && l.Trusted(peer)
	}
	return l.Proxied != nil && l.Proxied(peer)
}

// recount counts a connection for its peer's source instead of the one it was counted for. It
// reports whether that has room for it.
func (l *Registry) recount(c *front.Client) bool {
	source, capped := l.Source(c.Peer)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.discount(c)
	if capped {
		if l.counts[source] >= l.perSource {
			l.Stats.TurnedAway.Add(1)
			return false
		}
		l.counts[source]++
		c.Source = source
	}
	return true
}

// discount needs the lock.
func (l *Registry) discount(c *front.Client) {
	if !c.Source.IsValid() {
		return
	}
	if l.counts[c.Source]--; l.counts[c.Source] <= 0 {
		delete(l.counts, c.Source)
	}
	c.Source = counter.Source{}
}

func (l *Registry) Open() int {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return len(l.Conns)
}

// CloseAll cuts every connection that is still open.
func (l *Registry) CloseAll() {
	l.Mu.Lock()
	open := make([]*front.Client, 0, len(l.Conns))
	for c := range l.Conns {
		open = append(open, c)
	}
	l.Mu.Unlock()
	for _, c := range open {
		c.Raw.Close() // not conn.Close: no lingering now
	}
}

// Stop takes the connections that are waiting to be accepted, and then no more: closing at once
// would reset them.
func (l *Listener) Stop() {
	if l.stopping.Swap(true) {
		return
	}
	l.shedder.stop()
	if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok &&
		d.SetDeadline(time.Now().Add(stopTime)) == nil {
		return // Accept closes it when the time is up
	}
	l.Listener.Close()
}
