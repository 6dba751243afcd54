package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/counter"
)

const (
	// connectTimeout bounds a connect, and a TLS handshake with it.
	connectTimeout = 5 * time.Second
	// idleOrigin is how long a connection to an origin is kept for the next request, unless the origin says less.
	idleOrigin = 30 * time.Second
	maxIdle    = 512 // kept connections to one server
	// originHead bounds the head of an answer: it must fit the read buffer.
	originHead   = 32 << 10
	originWriter = 8 << 10
)

// An origin is one server that requests are passed on to, with the connections to it.
type origin struct {
	name   string // scheme://host:port; the label of its metrics
	host   string // for requests that name none
	addr   string
	tls    *tls.Config // nil: plain
	dialer net.Dialer

	lookup string // the name, if the server is not known by an address
	port   string
	addrs  atomic.Pointer[[]string] // host:port of each address of the name; nil: not looked up yet
	turn   atomic.Uint32

	failures  atomic.Int32 // in a row
	ejected   atomic.Int64 // until when, Unix nanoseconds; 0: it is not
	down      atomic.Bool  // its checks fail
	probe     atomic.Pointer[probe]
	probing   atomic.Bool
	probeAt   atomic.Int64
	resolveAt atomic.Int64

	probesFailed int // in a row; belongs to the check under way

	attempts atomic.Uint64
	answers  [codes]atomic.Uint64
	active   atomic.Int64

	mu   sync.Mutex
	idle []*link // the least recently used first
}

// A link is a connection to an origin.
type link struct {
	net.Conn
	origin *origin
	br     *bufio.Reader
	bw     *bufio.Writer
	reused bool
	until  time.Time // when an idle link is too old
	raw    syscall.RawConn
	peek   func(fd uintptr)
	quiet  bool // what peek found: nothing to read, not closed

	setAt   time.Time     // when begin set a deadline,
	setFor  time.Duration // how far ahead,
	touched atomic.Bool   // and whether another has been set since
}

// begin gives an exchange its deadline. Moving deadlines costs, so one that a request set just now will do for the next.
func (l *link) begin(now time.Time, timeout time.Duration) error {
	if since := now.Sub(l.setAt); timeout == l.setFor && since >= 0 && since < min(timeout/64, time.Second) && !l.touched.Load() {
		return nil
	}
	l.setAt, l.setFor = now, timeout
	l.touched.Store(false)
	return l.Conn.SetDeadline(now.Add(timeout))
}

func (l *link) SetDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetDeadline(t)
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetReadDeadline(t)
}

func (l *link) SetWriteDeadline(t time.Time) error {
	l.touched.Store(true)
	return l.Conn.SetWriteDeadline(t)
}

func newOrigin(u *url.URL) *origin {
	o := &origin{name: u.Scheme + "://" + u.Host, host: u.Host, addr: u.Host, dialer: net.Dialer{Timeout: connectTimeout}}
	if o.port = u.Port(); o.port == "" {
		o.port = "80"
		if u.Scheme == "https" {
			o.port = "443"
		}
		o.addr = net.JoinHostPort(u.Hostname(), o.port)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		o.lookup = u.Hostname()
	}
	if u.Scheme == "https" {
		o.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return o
}

// acquire returns a connection: an idle one, the most recently used first, or a new one.
func (o *origin) acquire(now time.Time, fresh bool) (*link, error) {
	for !fresh {
		o.mu.Lock()
		n := len(o.idle)
		if n == 0 {
			o.mu.Unlock()
			break
		}
		l := o.idle[n-1]
		o.idle[n-1] = nil
		o.idle = o.idle[:n-1]
		o.mu.Unlock()
		if now.Before(l.until) && l.alive() {
			l.reused = true
			return l, nil
		}
		l.Close()
	}
	return o.dial()
}

func (o *origin) dial() (*link, error) {
	nc, err := o.connect()
	if err != nil {
		return nil, err
	}
	l := &link{Conn: nc, origin: o}
	if tcp, ok := nc.(*net.TCPConn); ok {
		if l.raw, err = tcp.SyscallConn(); err != nil {
			nc.Close()
			return nil, err
		}
		l.peek = l.look
	}
	if o.tls != nil {
		secure := tls.Client(nc, o.tls)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		l.Conn, l.raw = secure, nil
	}
	l.br = bufio.NewReaderSize(l.Conn, originHead)
	l.bw = bufio.NewWriterSize(l.Conn, originWriter)
	return l, nil
}

// alive reports whether an idle connection may carry a request. One that the origin has closed would fail it; one with
// something to read has an answer on it that nobody asked for, which the next client must not get.
func (l *link) alive() bool {
	if l.br.Buffered() > 0 {
		return false
	}
	if l.raw == nil {
		return true
	}
	l.quiet = false
	return l.raw.Control(l.peek) == nil && l.quiet
}

func (l *link) look(fd uintptr) {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	l.quiet = errors.Is(err, syscall.EAGAIN)
}

// release keeps a connection for the next request.
func (o *origin) release(l *link, now time.Time, keep time.Duration) {
	l.until = now.Add(keep)
	o.mu.Lock()
	if len(o.idle) < maxIdle {
		o.idle = append(o.idle, l)
		l = nil
	}
	o.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// sweep closes connections that have been idle too long. With a zero time it closes all.
func (o *origin) sweep(now time.Time) {
	o.mu.Lock()
	var old []*link
	kept := o.idle[:0]
	for _, l := range o.idle {
		if now.IsZero() || now.After(l.until) {
			old = append(old, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(o.idle[len(kept):])
	o.idle = kept
	o.mu.Unlock()
	for _, l := range old {
		l.Close()
	}
}

// A group is the servers that answer for a host.
type group struct {
	servers  []*origin
	balance  Balance
	most     int64 // requests under way at each server; 0: any number
	timeout  time.Duration
	upgrades []string // protocols that requests may switch to, in lower case
	next     atomic.Uint32
}

// pick chooses the server for a request, one of those that are healthy and have room, and counts the request among those
// under way there. If none is healthy, all are taken to be: an answer from a doubtful server is better than none. nil means
// that none has room.
func (g *group) pick(source counter.Source, now time.Time, not *origin) *origin {
	if len(g.servers) == 1 {
		return g.take(g.servers[0])
	}
	for _, any := range [...]bool{false, true} {
		if o := g.choose(source, now, not, any); o != nil {
			return o
		}
	}
	return nil
}

func (g *group) choose(source counter.Source, now time.Time, not *origin, any bool) *origin {
	n := uint32(len(g.servers))
	first := g.next.Add(1)
	tried := uint64(0) // a bit for each of the first 64
	for range n {
		var best *origin
		at, weight := uint32(0), uint64(0)
		for i := range n {
			at2 := (first + i) % n // a tie goes round
			o := g.servers[at2]
			if o == not || tried&(1<<(at2%64)) != 0 || !any && !o.healthy(now) {
				continue
			}
			var w uint64
			switch g.balance {
			case LeastConnections:
				w = ^uint64(o.active.Load())
			case BySource:
				w = affinity(o.name, source)
			}
			if best == nil || w > weight {
				best, at, weight = o, at2, w
			}
			if g.balance == RoundRobin {
				break
			}
		}
		if best == nil {
			return nil
		}
		if o := g.take(best); o != nil {
			return o
		}
		tried |= 1 << (at % 64)
	}
	return nil
}

// take counts a request as under way at a server, if there is room for it.
func (g *group) take(o *origin) *origin {
	if n := o.active.Add(1); g.most > 0 && n > g.most {
		o.active.Add(-1)
		return nil
	}
	return o
}

// affinity weighs a server for a source (rendezvous hashing): the source goes to the heaviest that is healthy, so a server
// that is lost moves only its own. The hash is FNV-1a with the finish of MurmurHash3, alike on all edges.
func affinity(server string, source counter.Source) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(server) {
		h = (h ^ uint64(server[i])) * 1099511628211
	}
	var buf [counter.SourceSize]byte
	for _, c := range source.AppendBinary(buf[:0]) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// origins finds the group for a host.
type origins struct {
	all    []*origin // each server once
	byHost map[string]*group
	wild   map[string]*group
	any    *group
}

// newOrigins keeps the servers of before that are still there, with their connections and counts.
func newOrigins(c []OriginConfig, before *origins) *origins {
	s := &origins{byHost: make(map[string]*group), wild: make(map[string]*group)}
	servers := make(map[string]*origin)
	if before != nil {
		for _, o := range before.all {
			servers[o.name] = o
		}
	}
	used := make(map[string]bool)
	for _, config := range c {
		g := &group{balance: config.Balance, timeout: config.Timeout, most: int64(config.MaxRequests), upgrades: config.Upgrades}
		if config.Upgrades == nil {
			g.upgrades = []string{"websocket"}
		}
		for _, u := range config.Servers {
			fresh := newOrigin(u)
			o := servers[fresh.name]
			if o == nil {
				o = fresh
				servers[o.name] = o
			}
			var p *probe
			if config.Health.Active != "" {
				p = &probe{config.Health.Active, config.Health.Interval}
			}
			o.probe.Store(p)
			if !used[o.name] {
				used[o.name] = true
				s.all = append(s.all, o)
			}
			g.servers = append(g.servers, o)
		}
		for _, h := range config.Hosts {
			switch {
			case h == "*":
				s.any = g
			case h[0] == '*':
				s.wild[h[1:]] = g
			default:
				s.byHost[h] = g
			}
		}
	}
	return s
}

// of returns the group for a canonical host: the host's own, that of the longest suffix, that of all; nil if there is none.
func (s *origins) of(host []byte) *group {
	if len(s.byHost) > 0 {
		if g := s.byHost[string(host)]; g != nil {
			return g
		}
	}
	if len(s.wild) > 0 {
		for i, c := range host {
			if c == '.' {
				if g := s.wild[string(host[i:])]; g != nil {
					return g
				}
			}
		}
	}
	return s.any
}
