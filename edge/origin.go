package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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
}

func newOrigin(u *url.URL) *origin {
	o := &origin{name: u.Scheme + "://" + u.Host, host: u.Host, addr: u.Host, dialer: net.Dialer{Timeout: connectTimeout}}
	if u.Port() == "" {
		port := "80"
		if u.Scheme == "https" {
			port = "443"
		}
		o.addr = net.JoinHostPort(u.Hostname(), port)
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
	nc, err := o.dialer.Dial("tcp", o.addr)
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
	timeout  time.Duration
	upgrades []string // protocols that requests may switch to, in lower case
	next     atomic.Uint32
}

// pick chooses the server for a request.
func (g *group) pick() *origin {
	n := uint32(len(g.servers))
	if n == 1 {
		return g.servers[0]
	}
	first := g.next.Add(1)
	if g.balance == RoundRobin {
		return g.servers[first%n]
	}
	best := g.servers[first%n] // a tie goes round
	for i := uint32(1); i < n; i++ {
		if o := g.servers[(first+i)%n]; o.active.Load() < best.active.Load() {
			best = o
		}
	}
	return best
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
		g := &group{balance: config.Balance, timeout: config.Timeout, upgrades: config.Upgrades}
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
