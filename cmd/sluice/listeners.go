package main

import (
	"cmp"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"sluice/cmd/sluice/internal/upgrade"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/listen"
)

// listeners are the sockets of an edge. Those that a configuration does not name are nil.
type listeners struct {
	front, secure []entrance   // requests; those over TLS
	back          net.Listener // operators
	peers         net.Listener // edges of other PoPs
}

// An entrance is a listener for clients, with the sockets that share its connections.
type entrance struct {
	*listen.Entry
	sockets []net.Listener
}

func (e entrance) addr() net.Addr { return e.sockets[0].Addr() }

// entrances are listeners of the configuration, with their sockets.
func entrances(field string, list []config.Listener, sockets [][]net.Listener) (all []entrance) {
	for i, l := range list {
		all = append(all, entrance{&listen.Entry{Field: field, Address: l.Address,
			ProxyProtocol: l.ProxyProtocol}, sockets[i]})
	}
	return all
}

// addresses are where they listen.
func addresses(all []entrance) (list []string) {
	for _, e := range all {
		list = append(list, e.addr().String())
	}
	return list
}

// open listens everywhere, or takes the sockets that were given, and closes those that were given
// and not wanted. Those of services are in them.
func (l *listeners) open(ours *upgrade.Sockets, c *config.Config, services []*called) (err error) {
	clients := func(field string, list []config.Listener) []entrance {
		var sockets [][]net.Listener
		if err == nil {
			var where []string
			for _, l := range list {
				where = append(where, l.Address)
			}
			sockets, err = ours.Listen(field, where, cmp.Or(c.ListenSockets, runtime.GOMAXPROCS(0)))
		}
		if err != nil {
			return nil
		}
		return entrances(field, list, sockets)
	}
	one := func(name, address string) net.Listener {
		if err != nil || address == "" {
			return nil
		}
		var all [][]net.Listener
		if all, err = ours.Listen(name, []string{address}, 1); err != nil {
			return nil
		}
		return all[0][0]
	}
	l.front, l.secure = clients("listen", c.Listen), clients("listen_tls", c.ListenTLS)
	l.back, l.peers = one("admin", c.Admin), one("peers_listen", c.PoP.PeersListen)
	for _, s := range services {
		s.at = one(s.Name, s.Listen)
	}
	if err != nil {
		return err
	}
	if err := ours.Refuse(); err != nil {
		return err
	}
	ours.Close(false)
	var secure net.Addr
	if len(l.secure) > 0 {
		secure = l.secure[0].addr()
	}
	for i := range l.front {
		l.front[i].Redirect = c.Listen[i].HTTPSPort(secure)
	}
	// A name, or a socket that was given, may lead further than it said.
	if err := c.CheckAdmin(l.back.Addr().String()); err != nil {
		return err
	}
	for _, s := range services {
		if err := s.CheckAddress(s.at.Addr().String()); err != nil {
			return err
		}
	}
	return nil
}

// sockets is how many there are for clients.
func (l *listeners) sockets() (n int) {
	for _, e := range append(append([]entrance(nil), l.front...), l.secure...) {
		n += len(e.sockets)
	}
	return n
}

// reachable is where an edge listens, with the host's name instead of all of its addresses.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	host, err := os.Hostname()
	if err != nil {
		return a.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// spareDescriptors are for what is not a client and its origin: nodes, operators, files.
const spareDescriptors = 64

// fitDescriptors keeps the cap on connections below what the process may open, and returns what was
// configured: a client needs one descriptor and its request to the origin another. Without any
// left, no one could connect, operators included.
func fitDescriptors(c *config.Config) (wanted int) {
	wanted = c.Limits.Connections
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		c.Limits.Wanted = wanted
		c.Limits.Connections = min(wanted, max(1, (int(min(limit.Cur, 1<<30))-spareDescriptors)/2))
	}
	return wanted
}

// status is what operators see of the listeners for clients.
func (l *listeners) status() []control.Listener {
	all := []control.Listener{}
	for _, e := range append(append([]entrance(nil), l.front...), l.secure...) {
		all = append(all, control.Listener{Field: e.Field, Address: e.addr().String(),
			Redirect: int(e.Redirect), Accepted: e.Accepted.Load()})
	}
	return all
}

// ports are those of the first listener of each kind that is no Unix socket.
func (l *listeners) ports() (p edge.Ports) {
	for _, e := range l.front {
		if tcp, ok := e.addr().(*net.TCPAddr); ok && p.HTTP == 0 {
			if p.HTTP = tcp.Port; !tcp.IP.IsUnspecified() {
				p.Host = tcp.IP.String()
			}
		}
	}
	for _, e := range l.secure {
		if tcp, ok := e.addr().(*net.TCPAddr); ok && p.TLS == 0 {
			p.TLS = tcp.Port
		}
	}
	return p
}
