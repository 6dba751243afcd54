package address

import (
	"bytes"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"sluice/counter"
	"sluice/edge/message"
)

// maxHops bounds how many proxies' addresses are read from a forwarding header. A longer chain ends
// there, which makes the proxy at its end the source.
const maxHops = 32

// Sources finds the source of a request, by the proxies that it trusts.
type Sources struct {
	V4, V6 int
	Trust  *bart.Lite // nil: none
	// Invalid, if not nil, counts headers of trusted peers that should name a client and do not.
	Invalid *atomic.Uint64

	header message.Kind // message.Other: that of name
	name   []byte
	proxy  bool // trusted peers begin with a PROXY header
}

func NewSources(c Config) *Sources {
	s := &Sources{V4: c.IPv4Prefix, V6: c.IPv6Prefix, Trust: NewPrefixes(c.Trust),
		header: message.ForwardedFor, proxy: c.ProxyProtocol}
	switch strings.ToLower(c.Header) {
	case "x-real-ip":
		s.header = message.RealIP
	case "forwarded":
		s.header = message.Forwarded
	case "x-forwarded-for", "":
	default:
		s.header, s.name = message.Other, []byte(strings.ToLower(c.Header))
	}
	return s
}

// Distrust drops the lines that name the client and may not go on to the origin, and reports
// whether an untrusted peer sent some.
func (s *Sources) Distrust(h *message.Head, trusted bool) (named bool) {
	if s.name != nil {
		named = h.OnlyFrom(trusted, s.name)
	}
	if trusted {
		return false
	}
	return h.Distrust() || named
}

func (s *Sources) Of(addr netip.Addr) counter.Source { return counter.SourceOf(addr, s.V4, s.V6) }

// Connection returns the source that a peer's connection counts for; false is a trusted proxy,
// which brings many clients.
func (s *Sources) Connection(peer netip.Addr) (counter.Source, bool) {
	return s.Of(peer), !IsIn(s.Trust, peer)
}

// Proxied reports whether a peer must begin its connections with a PROXY header. From any other,
// one is no HTTP.
func (s *Sources) Proxied(peer netip.Addr) bool { return s.proxy && IsIn(s.Trust, peer) }

// Identify finds the address that a request comes from: the peer's own, or, if the peer is trusted,
// the one that it and the trusted proxies before it report. The forwarding header is read from
// right to left, over all its lines, to the first address that is not trusted; what stands left of
// it was written by that client and is not read at all. An entry that is no address ends the
// search, and the proxy that passed it on is the source. A header that is no list must be there
// once, with one address.
//
// It appends to hops the addresses believed, the nearest first, the client's last; with the peer
// they are the chain that goes to the origin. The client is a plain address (counter.Plain).
func (s *Sources) Identify(peer netip.Addr, h *message.Head,
	hops []netip.Addr) (client netip.Addr, chain []netip.Addr, trusted bool) {
	client, chain, trusted = s.identify(peer, h, hops)
	return counter.Plain(client), chain, trusted
}

func (s *Sources) identify(peer netip.Addr, h *message.Head,
	hops []netip.Addr) (client netip.Addr, chain []netip.Addr, trusted bool) {
	peer = peer.Unmap()
	if !IsIn(s.Trust, peer) {
		return peer, hops, false
	}
	client = peer
	if s.header == message.RealIP || s.header == message.Other {
		value, n := s.single(h)
		if n == 0 {
			return client, hops, true
		}
		addr, ok := parseHop(value, false)
		if n > 1 || !ok {
			s.invalid()
			return client, hops, true
		}
		return addr, append(hops, addr), true
	}
	for i := len(h.Lines) - 1; i >= 0; i-- {
		if h.Lines[i].Kind != s.header {
			continue
		}
		for rest := h.Lines[i].Value; len(rest) > 0; {
			var entry []byte
			if comma := s.lastComma(rest); comma >= 0 {
				entry, rest = rest[comma+1:], rest[:comma]
			} else {
				entry, rest = rest, nil
			}
			if entry = message.TrimSpace(entry); len(entry) == 0 {
				continue // RFC 9110, 5.6.1: empty elements of a list do not count
			}
			addr, ok := parseHop(entry, s.header == message.Forwarded)
			if !ok {
				s.invalid()
			}
			if !ok || len(hops) == maxHops {
				return client, hops, true
			}
			client, hops = addr, append(hops, addr)
			if !IsIn(s.Trust, addr) {
				return client, hops, true
			}
		}
	}
	return client, hops, true
}

// single is the value of the last line of a header that is no list, and how many lines there are.
func (s *Sources) single(h *message.Head) (value []byte, n int) {
	for i := range h.Lines {
		if l := &h.Lines[i]; s.name == nil && l.Kind == s.header || s.name != nil &&
			bytes.EqualFold(l.Name, s.name) {
			value, n = l.Value, n+1
		}
	}
	return value, n
}

func (s *Sources) invalid() {
	if s.Invalid != nil {
		s.Invalid.Add(1)
	}
}

// lastComma is where the last entry of a list is cut off: of Forwarded the last comma that is in no
// quoted string. The line is read from its end, which the nearest proxy has written, so a quote
// that a client leaves open hides nothing.
func (s *Sources) lastComma(list []byte) int {
	if s.header != message.Forwarded {
		return bytes.LastIndexByte(list, ',')
	}
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case ',':
			if !quoted {
				return i
			}
		case '"':
			if !escaped(list, i) {
				quoted = !quoted
			}
		}
	}
	return -1
}

// escaped reports whether the byte at i stands behind a backslash that is not itself escaped.
func escaped(text []byte, i int) bool {
	n := 0
	for i--; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// parseHop reads one entry: an address, perhaps with a port, or an element of Forwarded (RFC 7239).
func parseHop(entry []byte, forwarded bool) (netip.Addr, bool) {
	if forwarded {
		var ok bool
		if entry, ok = forwardedFor(entry); !ok {
			return netip.Addr{}, false
		}
	}
	if len(entry) > 64 {
		return netip.Addr{}, false
	}
	if addr, ok := parseIPv4(entry); ok {
		return addr, true
	}
	text := string(entry)
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 || len(text) > end+1 && !isPort(text[end+1:]) {
			return netip.Addr{}, false
		}
		text = text[1:end]
		if !strings.Contains(text, ":") {
			return netip.Addr{}, false
		}
	case strings.Count(text, ":") == 1:
		colon := strings.IndexByte(text, ':')
		if !isPort(text[colon:]) {
			return netip.Addr{}, false
		}
		text = text[:colon]
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}

// forwardedFor is the value of for= in an element of Forwarded (RFC 7239, 4), without its quotes.
// It reports false unless the whole element is as it must be and has one for=: what a client wrote
// into another parameter, which its proxy quoted, must not be taken for the proxy's own.
func forwardedFor(element []byte) (node []byte, ok bool) {
	for rest := element; len(rest) > 0; {
		name, after, assigned := bytes.Cut(rest, []byte{'='})
		name = message.TrimSpace(name)
		if len(name) == 0 && !assigned && len(after) == 0 {
			break // a ; at the end
		}
		if !assigned || !message.IsToken(name) {
			return nil, false
		}
		value, after, valid := cutValue(message.TrimSpace(after))
		if !valid {
			return nil, false
		}
		if message.EqualFold(name, "for") {
			if ok {
				return nil, false
			}
			node, ok = value, true
		}
		rest = after
	}
	return node, ok
}

// cutValue cuts the value of a parameter, without its quotes, from what follows its semicolon.
// Addresses need no quoted pairs, so those stay as they are. A value that should have been quoted,
// an IPv6 address perhaps, is taken as it is.
func cutValue(text []byte) (value, after []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		value, after, _ = bytes.Cut(text, []byte{';'})
		value = message.TrimSpace(value)
		return value, after, len(value) > 0 && !bytes.ContainsAny(value, "\"\\ \t=")
	}
	for i := 1; i < len(text); i++ {
		if text[i] != '"' || escaped(text, i) {
			continue
		}
		value, after = text[1:i], message.TrimSpace(text[i+1:])
		if len(after) > 0 && after[0] != ';' {
			return nil, nil, false
		}
		return value, after[min(1, len(after)):], true
	}
	return nil, nil, false
}

// parseIPv4 reads a plain dotted address without making a string of it.
func parseIPv4(text []byte) (netip.Addr, bool) {
	var b [4]byte
	part, digits, value := 0, 0, 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9' && digits < 3 && !(digits > 0 && value == 0):
			digits++
			value = value*10 + int(c-'0')
		case c == '.' && digits > 0 && value < 256 && part < 3:
			b[part] = byte(value)
			part, digits, value = part+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	if part != 3 || digits == 0 || value > 255 {
		return netip.Addr{}, false
	}
	b[3] = byte(value)
	return netip.AddrFrom4(b), true
}

func isPort(text string) bool {
	if len(text) < 2 || len(text) > 6 || text[0] != ':' {
		return false
	}
	for _, c := range []byte(text[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
