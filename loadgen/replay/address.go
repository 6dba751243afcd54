package replay

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/loadgen/trace"
)

// Carrier is how the address of a source reaches an edge.
type Carrier uint8

const (
	// Loopback gives every source a peer address of its own out of 127.0.0.0/8, and its own
	// connections.
	Loopback Carrier = iota
	// Forwarded names the source in X-Forwarded-For, over connections that all sources share.
	Forwarded
	// Proxy names the source in a PROXY protocol v2 header at the start of its own connections.
	Proxy
)

// ParseCarrier reads "loopback", "xff" or "proxy".
func ParseCarrier(s string) (Carrier, error) {
	for c := Loopback; c <= Proxy; c++ {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("source %q: want loopback, xff or proxy", s)
}

func (c Carrier) String() string { return [...]string{"loopback", "xff", "proxy"}[c] }

// Addresses gives each source of the trace the address under which an edge sees it, no two the
// same. Loopback addresses follow from the source's place in the trace. The other carriers keep the
// address of the log where it is an IPv4 address that one source alone has, or one that rotates
// through a prefix, and replace it by one of 10.0.0.0/8 otherwise: an edge counts an IPv6 source by
// its prefix, and a folded log has one address under several names.
func (c Carrier) Addresses(trace *trace.Trace) []netip.Addr {
	out := make([]netip.Addr, len(trace.Sources))
	next := AddrWalk{Network: 127}
	seen := make(map[netip.Addr]int)
	if c != Loopback {
		next.Network = 10
		for _, s := range trace.Sources {
			seen[s.Addr.Unmap()]++
		}
	}
	for i, s := range trace.Sources {
		if a := s.Addr.Unmap(); c != Loopback && (a.Is4() && seen[a] == 1 || s.Spread > 1) {
			out[i] = a
			continue
		}
		for {
			a := next.Next()
			if _, taken := seen[a]; !taken {
				out[i] = a
				break
			}
		}
	}
	return out
}

// AddrWalk walks the addresses of an /8 in an order that jumps about: stepping by an odd number
// visits all 2^24 before any comes twice, and the golden ratio's step keeps neighbours far apart.
// It leaves out the first and the last /16, where systems keep addresses of their own (127.0.0.1,
// 127.0.0.53).
type AddrWalk struct {
	Network byte
	at      uint32
}

// Next is the next address.
func (s *AddrWalk) Next() netip.Addr {
	for {
		s.at = (s.at + 10368889) & (1<<24 - 1)
		if net := s.at >> 16; net != 0 && net != 255 {
			return netip.AddrFrom4([4]byte{s.Network, byte(net), byte(s.at >> 8), byte(s.at)})
		}
	}
}

// appendProxy appends a PROXY protocol v2 header (haproxy.org, proxy-protocol.txt, section 2.2) for
// a TCP connection.
func appendProxy(b []byte, from netip.Addr, port uint16, to netip.AddrPort) []byte {
	b = append(b, "\r\n\r\n\x00\r\nQUIT\n\x21"...)
	if from.Is4() {
		b = append(b, 0x11, 0, 12)
		b = append(b, from.AsSlice()...)
		b = append(b, to.Addr().AsSlice()...)
	} else {
		b = append(b, 0x21, 0, 36)
		src, dst := from.As16(), to.Addr().As16()
		b = append(b, src[:]...)
		b = append(b, dst[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, port)
	return binary.BigEndian.AppendUint16(b, to.Port())
}
