package rules

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"sluice/counter"
	"sluice/edge/message"
)

// maxHops bounds how many proxies' addresses are read from a forwarding header. A longer chain ends there, which makes
// the proxy at its end the source.
const maxHops = 32

// Sources tells who a request is counted for, and whom to believe about it.
type Sources struct {
	V4, V6 int
	Trust  *bart.Lite // nil: nobody
	header message.Kind
	proxy  bool // trusted peers begin with a PROXY header
}

func NewSources(c SourceConfig) *Sources {
	s := &Sources{V4: c.IPv4Prefix, V6: c.IPv6Prefix, Trust: NewPrefixes(c.Trust), header: message.ForwardedFor, proxy: c.ProxyProtocol}
	switch strings.ToLower(c.Header) {
	case "x-real-ip":
		s.header = message.RealIP
	case "forwarded":
		s.header = message.Forwarded
	}
	return s
}

func (s *Sources) Of(addr netip.Addr) counter.Source { return counter.SourceOf(addr, s.V4, s.V6) }

// Connection says whose connection a peer's counts as; false is a trusted proxy, which brings many clients.
func (s *Sources) Connection(peer netip.Addr) (counter.Source, bool) {
	return s.Of(peer), !IsIn(s.Trust, peer)
}

// Proxied reports whether a peer must begin its connections with a PROXY header. From any other, one is no HTTP.
func (s *Sources) Proxied(peer netip.Addr) bool { return s.proxy && IsIn(s.Trust, peer) }

// Identify finds the address that a request comes from: the peer's own, or, if the peer is trusted, the one that it and
// the trusted proxies before it report. The forwarding header is read from right to left, over all its lines, to the first
// address that is not trusted; what stands left of it was written by that client and is not read at all. An entry that is
// no address ends the search, and the one who passed it on is the source.
//
// It appends to hops the addresses believed, the nearest first, the client's last; with the peer they are the chain that
// the origin is told.
func (s *Sources) Identify(peer netip.Addr, h *message.Head, hops []netip.Addr) (client netip.Addr, chain []netip.Addr, trusted bool) {
	peer = peer.Unmap()
	if !IsIn(s.Trust, peer) {
		return peer, hops, false
	}
	client = peer
	for i := len(h.Lines) - 1; i >= 0; i-- {
		if h.Lines[i].Kind != s.header {
			continue
		}
		for rest := h.Lines[i].Value; len(rest) > 0; {
			var entry []byte
			if comma := bytes.LastIndexByte(rest, ','); comma >= 0 {
				entry, rest = rest[comma+1:], rest[:comma]
			} else {
				entry, rest = rest, nil
			}
			if entry = message.TrimSpace(entry); len(entry) == 0 {
				continue // RFC 9110, 5.6.1: empty elements of a list do not count
			}
			addr, ok := parseHop(entry, s.header == message.Forwarded)
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

// parseHop reads one entry: an address, perhaps with a port, or an element of Forwarded (RFC 7239). A comma within a quoted
// string of Forwarded cuts it into two entries, of which neither is an address; addresses have no commas.
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

// forwardedFor is the value of for= in an element of Forwarded, without its quotes.
func forwardedFor(element []byte) ([]byte, bool) {
	for rest := element; len(rest) > 0; {
		var pair []byte
		pair, rest, _ = bytes.Cut(rest, []byte{';'})
		name, value, ok := bytes.Cut(pair, []byte{'='})
		if !ok || !message.EqualFold(message.TrimSpace(name), "for") {
			continue
		}
		value = message.TrimSpace(value)
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		return value, true
	}
	return nil, false
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

func IsIn(t *bart.Lite, addr netip.Addr) bool { return t != nil && t.Lookup(addr) }
