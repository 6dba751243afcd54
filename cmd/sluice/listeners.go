package main

import (
	"cmp"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"sluice/cmd/sluice/internal/upgrade"
	"sluice/edge/config"
)

// listeners are the sockets of an edge. Those that a configuration does not name are nil.
type listeners struct {
	front, secure []net.Listener // requests; those over TLS. Several share the connections of one address
	back          net.Listener   // operators
	calls         net.Listener   // proxies that call over gRPC
	peers         net.Listener   // edges of other PoPs
}

// open listens everywhere, or takes the sockets that were given, and closes those that were given and not wanted.
func (l *listeners) open(ours *upgrade.Sockets, c *config.Config) (err error) {
	several := func(name, address string, sockets int) (all []net.Listener) {
		if err == nil && address != "" {
			all, err = ours.Listen(name, address, sockets)
		}
		return all
	}
	one := func(name, address string) net.Listener {
		if all := several(name, address, 1); all != nil {
			return all[0]
		}
		return nil
	}
	sockets := cmp.Or(c.ListenSockets, runtime.GOMAXPROCS(0))
	l.front, l.secure = several("listen", c.Listen, sockets), several("listen_tls", c.ListenTLS, sockets)
	l.back, l.calls, l.peers = one("admin", c.Admin), one("rate_limit_service", c.RateLimitService.Listen), one("peers_listen", c.PoP.PeersListen)
	if err != nil {
		return err
	}
	ours.Close(false)
	// A name, or a socket that was given, may lead further than it said.
	if err := c.CheckAdmin(l.back.Addr().String()); err != nil || l.calls == nil {
		return err
	}
	return c.RateLimitService.CheckAddress(l.calls.Addr().String())
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

// fitDescriptors keeps the cap on connections below what the process may open, and returns what was configured: a
// client needs one descriptor and its request to the origin another. Without any left, no one could connect, operators
// included.
func fitDescriptors(c *config.Config) (wanted int) {
	wanted = c.Limits.Connections
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		c.Limits.Connections = min(wanted, max(1, (int(min(limit.Cur, 1<<30))-spareDescriptors)/2))
	}
	return wanted
}
