package listen

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/net/netutil"

	"sluice/edge/metric"
)

// MaxPrograms is how many connections programs may have open to a service of the edge's; further
// ones wait. One other machine may have a quarter of them, MaxPerMachine, so that it leaves room
// for others: its further ones are closed at once, before anything is read of them.
const (
	MaxPrograms   = 1024
	MaxPerMachine = MaxPrograms / 4
)

// Programs is the connections of those who call a service of the edge's: the rate limit service or
// the limit API. Programs of this machine share its address, and have no cap but that of all. The
// zero value is ready. It is safe for concurrent use.
type Programs struct {
	all     atomic.Int64  // those that are open
	refused atomic.Uint64 // those that were closed at once

	mu   sync.Mutex
	open map[netip.Addr]int // by source
}

// Listener is ln with these bounds.
func (p *Programs) Listener(ln net.Listener) net.Listener {
	return netutil.LimitListener(&capped{ln, p}, MaxPrograms)
}

// Collect gives their metrics. name begins the metrics' names, service is the field of the
// configuration.
func (p *Programs) Collect(to metric.Sink, name, service string) {
	to.Gauge(float64(p.all.Load()), name+"_connections",
		fmt.Sprintf("Connections of programs to %s. Once there are %d, further ones wait.", service,
			MaxPrograms))
	to.Count(p.refused.Load(), name+"_connections_refused_total",
		fmt.Sprintf("Connections to %s that were closed at once, because their machine had %d.",
			service, MaxPerMachine))
}

type capped struct {
	net.Listener
	programs *Programs
}

func (l *capped) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := l.programs
		from, other := sourceOf(nc.RemoteAddr())
		if other && !p.enter(from) {
			p.refused.Add(1)
			_ = nc.Close()
			continue
		}
		p.all.Add(1)
		return &counted{Conn: nc, leave: sync.OnceFunc(func() {
			if p.all.Add(-1); other {
				p.leave(from)
			}
		})}, nil
	}
}

// sourceOf is the address that a connection is from, of IPv6 the first 64 bits, which one machine
// has; false: it is from this machine.
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

func (p *Programs) enter(from netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[from] >= MaxPerMachine {
		return false
	}
	if p.open == nil {
		p.open = make(map[netip.Addr]int)
	}
	p.open[from]++
	return true
}

func (p *Programs) leave(from netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[from]--; p.open[from] == 0 {
		delete(p.open, from)
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
