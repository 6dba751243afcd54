// Package address finds which address a request comes from, and in which lists of prefixes an
// address is.
//
// The peer is the client, unless it is a trusted proxy: then the client is the address that it and
// the trusted proxies before it report. What a client can write itself is never believed
// (Sources.Identify). An address, or the prefix that it shares with its neighbours, is the source
// that is counted.
package address

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"sluice/counter"
	"sluice/edge/message"
)

// Config is how the client of a request is found.
type Config struct {
	IPv4Prefix     int            `json:"ipv4_prefix" want:"8 to 32"`
	IPv6Prefix     int            `json:"ipv6_prefix" want:"16 to 128"`
	Trust          []netip.Prefix `json:"trust"`           // peers whose Header is believed
	TrustEverybody bool           `json:"trust_everybody"` // Trust may hold every address
	// X-Forwarded-For and Forwarded are lists; any other, such as X-Real-IP, holds one address
	Header string `json:"header" want:"source header"`
	// ProxyProtocol: trusted peers begin every connection with a PROXY header (version 1 or 2),
	// which names its client: one without is closed. The client named is then the peer, and is
	// believed about others only if it is trusted as well. From peers that are not trusted such a
	// header is refused, as it always is without ProxyProtocol.
	ProxyProtocol bool `json:"proxy_protocol"`
}

// TrustsEverybody reports whether Trust names all addresses of a family.
func (c *Config) TrustsEverybody() bool {
	return slices.ContainsFunc(c.Trust, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// IsSourceHeader reports whether a proxy may give the address of a client in a header of that name:
// it has no other meaning for the edge.
func IsSourceHeader(name string) bool {
	if !message.IsToken([]byte(name)) {
		return false
	}
	switch message.KindOf([]byte(name)) {
	case message.Other, message.ForwardedFor, message.RealIP, message.Forwarded:
		return true
	}
	return false
}

// NewPrefixes makes a list of prefixes; nil: there are none.
func NewPrefixes(list []netip.Prefix) *bart.Lite {
	if len(list) == 0 {
		return nil
	}
	t := new(bart.Lite)
	for _, p := range list {
		t.Insert(p)
	}
	return t
}

// IsIn reports whether an address, as a plain one, is in a list.
func IsIn(t *bart.Lite, addr netip.Addr) bool { return t != nil && t.Lookup(counter.Plain(addr)) }

// Single is the prefix of one address.
func Single(addr netip.Addr) netip.Prefix {
	addr = counter.Plain(addr)
	return netip.PrefixFrom(addr, addr.BitLen())
}
