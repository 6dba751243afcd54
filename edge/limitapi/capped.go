package limitapi

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// capped is a listener of which one source has at most so many connections open; further ones are closed at once, so that who opens many leaves room for
// others. Programs of this machine share its address, and have no cap but that of all.
type capped struct {
	net.Listener
	most    int
	all     *atomic.Int64  // of all sources, those that are open
	refused *atomic.Uint64 // those that were closed at once

	mu   sync.Mutex
	open map[netip.Addr]int
}

func (l *capped) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, other := sourceOf(nc.RemoteAddr())
		if other && !l.enter(from) {
			l.refused.Add(1)
			_ = nc.Close()
			continue
		}
		l.all.Add(1)
		return &counted{Conn: nc, leave: sync.OnceFunc(func() {
			if l.all.Add(-1); other {
				l.leave(from)
			}
		})}, nil
	}
}

// sourceOf is the address that a connection is from, of IPv6 the first 64 bits, which one machine has; false: it is from this machine.
func sourceOf(a net.Addr) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil { // a Unix socket's
		return netip.Addr{}, false
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.IsLoopback() {
		return addr, false
	}
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr, true
}

func (l *capped) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.most {
		return false
	}
	if l.open == nil {
		l.open = make(map[netip.Addr]int)
	}
	l.open[from]++
	return true
}

func (l *capped) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// counted is a connection that is one of those that are open until it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
