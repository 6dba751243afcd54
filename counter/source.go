package counter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Source is what a request is counted for: an address prefix, or the digest of something a client
// sent. It is a plain value of 17 bytes without pointers, comparable and fit for a map key. The
// zero Source is none.
type Source struct {
	id   [16]byte
	code uint8
}

// Values of Source.code: which kind it is and, for an address, its prefix length.
const (
	codeIPv4   = 1              // to 33: IPv4, /0 to /32
	codeIPv6   = codeIPv4 + 33  // to 162: IPv6, /0 to /128
	codeDigest = codeIPv6 + 129 // a keyed digest
)

// SourceOf is the source that addr belongs to when IPv4 sources are distinguished by their first v4
// bits (0 to 32) and IPv6 sources by their first v6 (0 to 128). A mapped address (::ffff:192.0.2.1)
// is its IPv4 address; a zone is dropped. It panics on prefix lengths out of range and returns the
// zero Source for the zero Addr.
func SourceOf(addr netip.Addr, v4, v6 int) Source {
	if !addr.IsValid() {
		return Source{}
	}
	addr = Plain(addr)
	bits, code := v6, codeIPv6
	if addr.Is4() {
		bits, code = v4, codeIPv4
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		panic(fmt.Sprintf("counter: prefix length %d for %s", bits, addr))
	}
	s := Source{code: uint8(code + bits)}
	if a := p.Addr(); a.Is4() {
		b := a.As4()
		copy(s.id[:], b[:])
	} else {
		s.id = a.As16()
	}
	return s
}

// nat64 is the prefix under which translators present IPv4 clients to IPv6 servers (RFC 6052, 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Plain is an address without its zone, and one of IPv4 that is written in IPv6, mapped
// (::ffff:0:0/96) or translated (64:ff9b::/96), as that: all of IPv4 would be one source of IPv6
// otherwise.
func Plain(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if b := addr.As16(); [4]byte(b[:4]) == [4]byte{0, 0x64, 0xff, 0x9b} &&
			nat64.Contains(addr.WithZone("")) {
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return addr.Unmap().WithZone("")
}

// SourceOfDigest is the source named by a digest. The digest must come from a hash keyed with a
// secret, or clients could make two values that count as one.
func SourceOfDigest(d [16]byte) Source { return Source{id: d, code: codeDigest} }

// IsValid reports whether s is a source.
func (s Source) IsValid() bool { return s.code != 0 }

// Prefix is the address prefix of s, and false if s is a digest or zero.
func (s Source) Prefix() (netip.Prefix, bool) {
	switch {
	case s.code >= codeDigest || s.code < codeIPv4:
		return netip.Prefix{}, false
	case s.code >= codeIPv6:
		return netip.PrefixFrom(netip.AddrFrom16(s.id), int(s.code-codeIPv6)), true
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(s.id[:4])), int(s.code-codeIPv4)), true
}

// Hasher hashes sources for tables in memory: 64 good bits that are unpredictable without the seed.
// NewHasher makes one.
type Hasher struct {
	process maphash.Seed
	seed    uint64
}

// NewHasher returns one with a random seed of this process if seed is 0. Any other seed hashes
// alike in every run: that is for simulations, because a client that knows the seed can crowd one
// bucket of a table.
func NewHasher(seed uint64) Hasher { return Hasher{maphash.MakeSeed(), seed} }

// Of is the hash of a source.
func (h *Hasher) Of(s *Source) uint64 {
	if h.seed != 0 {
		var b [8 + SourceSize]byte
		binary.BigEndian.PutUint64(b[:], h.seed)
		s.AppendBinary(b[:8])
		return xxhash.Sum64(b[:])
	}
	return maphash.Bytes(h.process, s.id[:]) ^ uint64(s.code)*0xd6e8feb86659fd93
}

// String is the address of s where the prefix is a whole address, else the prefix in CIDR form; "#"
// and 32 hexadecimal digits for a digest; and "nobody" for the zero Source. ParseSource reads it
// back.
func (s Source) String() string {
	if p, ok := s.Prefix(); ok {
		if p.IsSingleIP() {
			return p.Addr().String()
		}
		return p.String()
	}
	if s.code == codeDigest {
		return "#" + hex.EncodeToString(s.id[:])
	}
	return "nobody"
}

// AppendText appends what String says.
func (s Source) AppendText(b []byte) []byte {
	if s.code == codeDigest {
		return hex.AppendEncode(append(b, '#'), s.id[:])
	}
	return append(b, s.String()...)
}

// ParseSource reads what String writes.
func ParseSource(text string) (Source, error) {
	if digest, ok := strings.CutPrefix(text, "#"); ok {
		b, err := hex.DecodeString(digest)
		if err != nil || len(b) != 16 {
			return Source{},
				fmt.Errorf("counter: parse source %q: want # and 32 hexadecimal digits", text)
		}
		return SourceOfDigest([16]byte(b)), nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		if Plain(p.Addr()).Is4() && p.Addr().Is6() { // its bits are not those of the IPv4 prefix
			return Source{},
				fmt.Errorf("counter: parse source %q: it is IPv4 in IPv6: write the IPv4 prefix",
					text)
		}
		return SourceOf(p.Addr(), min(p.Bits(), 32), p.Bits()), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return Source{},
			fmt.Errorf("counter: parse source %q: want an address, a prefix, or # and 32 hexadecimal digits", text)
	}
	return SourceOf(addr, 32, 128), nil
}

// SourceSize is how many bytes AppendBinary appends.
const SourceSize = 17

// AppendBinary appends the 17 bytes that stand for s in a hash or on the wire.
func (s Source) AppendBinary(b []byte) []byte { return append(append(b, s.code), s.id[:]...) }

// SourceFromBinary reads what AppendBinary appended, and reports whether it was a source.
func SourceFromBinary(b []byte) (Source, bool) {
	if len(b) != SourceSize || b[0] == 0 || b[0] > codeDigest {
		return Source{}, false
	}
	s := Source{code: b[0], id: [16]byte(b[1:])}
	if p, ok := s.Prefix(); ok && s != SourceOf(p.Addr(), min(p.Bits(), 32), p.Bits()) {
		return Source{}, false // bits beyond the prefix, or an IPv4 address written as IPv6
	}
	return s, true
}
