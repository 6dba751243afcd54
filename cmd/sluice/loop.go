package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/edge/config"
)

// schemePorts are where servers listen whose address names no port.
var schemePorts = map[string]string{"http": "80", "https": "443", "h2c": "80", "h2": "443"}

// originsHere are warnings about servers of origins that are this edge: they have an address that
// it listens at, on this machine. A request to one comes back, and is refused then (508), which
// nobody would find before there are requests.
func originsHere(c *config.Config) (warnings []string) {
	type entry struct{ field, address string }
	var at []entry
	for _, l := range c.Listen {
		at = append(at, entry{"listen", l.Address})
	}
	for _, l := range c.ListenTLS {
		at = append(at, entry{"listen_tls", l.Address})
	}
	own := ownAddresses()
	for _, o := range c.Origins {
		for _, u := range o.Servers {
			var addrs []netip.Addr
			if u.Scheme != "unix" {
				addrs = addressesOf(u.Hostname())
			}
			for _, e := range at {
				if leadsTo(u, addrs, e.address, own) {
					warnings = append(warnings,
						fmt.Sprintf("origin %s is this edge: it is served at %s %s, so each request would come back and be refused (508)", u, e.field, e.address))
					break
				}
			}
		}
	}
	return warnings
}

// leadsTo reports whether a server with these addresses is what listens at an address, on a machine
// with own ones.
func leadsTo(u *url.URL, addrs []netip.Addr, listens string, own map[netip.Addr]bool) bool {
	if path, unix := strings.CutPrefix(listens, "unix:"); unix || u.Scheme == "unix" {
		return unix && u.Scheme == "unix" && path == u.Path
	}
	host, port, err := net.SplitHostPort(listens)
	if err != nil || portNumber(port) == 0 { // 0: the system chooses one
		return false
	}
	to := u.Port()
	if to == "" {
		to = schemePorts[u.Scheme]
	}
	if portNumber(port) != portNumber(to) {
		return false
	}
	var at []netip.Addr // none: every address
	if host != "" {
		at = addressesOf(host)
		if len(at) == 0 {
			return false
		}
	}
	for _, a := range addrs {
		if a.IsUnspecified() { // a connection to it goes to loopback
			a = netip.MustParseAddr("127.0.0.1")
		}
		if !own[a] && !a.IsLoopback() {
			continue
		}
		if at == nil {
			return true
		}
		for _, l := range at {
			// [::] takes IPv4 as well, as Go listens.
			if l == a || l.IsUnspecified() && (l.Is6() || a.Is4()) {
				return true
			}
		}
	}
	return false
}

func portNumber(port string) int {
	n, err := strconv.Atoi(port)
	if err != nil {
		n, _ = net.LookupPort("tcp", port)
	}
	return n
}

// addressesOf are those of a host, which may be an address; none: it is not found, which is for
// others to say.
func addressesOf(host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range list {
		list[i] = list[i].Unmap().WithZone("")
	}
	return list
}

// ownAddresses are those of this machine's interfaces.
func ownAddresses() map[netip.Addr]bool {
	own := make(map[netip.Addr]bool)
	list, _ := net.InterfaceAddrs() // an error leaves loopback, which needs no list
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap().WithZone("")] = true
		}
	}
	return own
}
