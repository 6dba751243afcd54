package challenge

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/dchest/siphash"
)

const (
	// Both are base64 in a URL's alphabet: a name of the sort, times, an identity, and a MAC.
	questionBytes = 1 + 4 + 4 + 2 + idBytes + macBytes
	passBytes     = 1 + 4 + 1 + 2 + idBytes + macBytes
	questionText  = (questionBytes*8 + 5) / 6
	passText      = (passBytes*8 + 5) / 6
	idBytes       = 8
	macBytes      = 16

	// answerWithin is how long a question may be answered: a tab may have slept meanwhile. As far
	// may the clocks of two edges be apart: only an edge makes questions, so one of the future is
	// no forgery.
	answerWithin = 5 * time.Minute

	hostMax = 255 // no name of DNS is longer
)

// The first byte of a question and of a pass: of which sort it is, and whether it is bound to a
// network. It is under the MAC, so neither can be taken for another.
const (
	sortQuestion byte = 'q'
	sortPass     byte = 'p'
	boundToo     byte = 1 << 7
)

// Keys are the keys of the MACs: the first makes them, all are believed. While one secret replaces
// another there are two. They are safe for concurrent use.
type Keys [][16]byte

// An ID is who a pass is of. It is that of the question, so a question that is answered twice makes
// one pass.
type ID [idBytes]byte

// A Holder is who a question is asked, and who may show the pass.
type Holder struct {
	Host []byte // as a rule sees it
	Addr netip.Addr
}

// A Question is what a client has to answer for a pass.
type Question struct {
	ID         ID
	Asked      time.Time     // whole seconds
	PassFor    time.Duration // whole seconds, less than 2^17; from Asked on
	Difficulty int           // how many bits of the hash must be zero, less than 32
	Bound      bool          // to the network that it was asked in
	Networks   int           // from how many the pass may be shown, less than 32; 0: any number
	Rule       uint16        // that asks (ruleID)
}

// A Pass is what was made of an answer.
type Pass struct {
	ID       ID
	End      time.Time // whole seconds
	Bound    bool
	Networks int
	Rule     uint16
}

// Pass is the pass for an answer to the question: always the same.
func (q *Question) Pass() Pass {
	return Pass{q.ID, q.Asked.Add(q.PassFor), q.Bound, q.Networks, q.Rule}
}

// ruleID is how questions and passes name the rule that asked, for counting.
func ruleID(name string) uint16 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return uint16(h.Sum32())
}

// AppendQuestion appends a question for a holder, as it stands on a page.
func (k Keys) AppendQuestion(b []byte, q Question, h Holder) []byte {
	var room [questionBytes]byte
	raw := append(room[:0], sortQuestion|bound(q.Bound))
	raw = binary.BigEndian.AppendUint32(raw, uint32(q.Asked.Unix()))
	raw = binary.BigEndian.AppendUint32(raw,
		uint32(q.PassFor/time.Second)<<10|uint32(q.Difficulty)<<5|uint32(q.Networks))
	raw = binary.BigEndian.AppendUint16(raw, q.Rule)
	raw = append(raw, q.ID[:]...)
	return base64.RawURLEncoding.AppendEncode(b, k.seal(raw, h))
}

// Question reads a question that one of the keys has made for this holder. It reports false for
// every other, and for one that is too old to be answered.
func (k Keys) Question(text []byte, h Holder, now time.Time) (q Question, ok bool) {
	var room [questionBytes]byte
	raw, ok := k.open(room[:], text, sortQuestion, h)
	if !ok {
		return q, false
	}
	q.Bound = raw[0]&boundToo != 0
	q.Asked = time.Unix(int64(binary.BigEndian.Uint32(raw[1:])), 0)
	numbers := binary.BigEndian.Uint32(raw[5:])
	q.PassFor = time.Duration(numbers>>10) * time.Second
	q.Difficulty, q.Networks = int(numbers>>5&31), int(numbers&31)
	q.Rule = binary.BigEndian.Uint16(raw[9:])
	copy(q.ID[:], raw[11:])
	return q, now.Sub(q.Asked).Abs() < answerWithin
}

// AppendPass appends a pass for a holder, as its cookie has it.
func (k Keys) AppendPass(b []byte, p Pass, h Holder) []byte {
	var room [passBytes]byte
	raw := append(room[:0], sortPass|bound(p.Bound))
	raw = binary.BigEndian.AppendUint32(raw, uint32(p.End.Unix()))
	raw = binary.BigEndian.AppendUint16(append(raw, byte(p.Networks)), p.Rule)
	raw = append(raw, p.ID[:]...)
	return base64.RawURLEncoding.AppendEncode(b, k.seal(raw, h))
}

// Pass reads a pass that one of the keys has made for this holder, and that has not ended. It
// reports false for every other.
func (k Keys) Pass(text []byte, h Holder, now time.Time) (p Pass, ok bool) {
	var room [passBytes]byte
	raw, ok := k.open(room[:], text, sortPass, h)
	if !ok {
		return p, false
	}
	p.Bound = raw[0]&boundToo != 0
	p.End = time.Unix(int64(binary.BigEndian.Uint32(raw[1:])), 0)
	p.Networks, p.Rule = int(raw[5]), binary.BigEndian.Uint16(raw[6:])
	copy(p.ID[:], raw[8:])
	return p, now.Before(p.End)
}

func bound(is bool) byte {
	if is {
		return boundToo
	}
	return 0
}

func (k Keys) seal(raw []byte, h Holder) []byte {
	mac := sum(&k[0], raw, h)
	return append(raw, mac[:]...)
}

// open decodes what has the length of raw, and returns what stands before its MAC.
func (k Keys) open(raw, text []byte, sort byte, h Holder) ([]byte, bool) {
	if len(text) != (len(raw)*8+5)/6 || len(h.Host) > hostMax {
		return nil, false
	}
	n, err := strict.Decode(raw, text)
	if err != nil || n != len(raw) || raw[0]&^boundToo != sort {
		return nil, false
	}
	said, mac := raw[:len(raw)-macBytes], raw[len(raw)-macBytes:]
	for i := range k {
		if real := sum(&k[i], said, h); real == [macBytes]byte(mac) {
			return said, true
		}
	}
	return nil, false
}

// strict takes one spelling of each value alone.
var strict = base64.RawURLEncoding.Strict()

// sum is the MAC of what is said to a holder. The comparison of two of them may end early: what its
// time tells of a MAC under a key of 128 bits, over a network, is nothing.
func sum(key *[16]byte, said []byte, h Holder) (mac [macBytes]byte) {
	var room [questionBytes + 16 + hostMax]byte
	b := append(room[:0], said...)
	if said[0]&boundToo != 0 {
		network := networkOf(h.Addr)
		b = append(b, network[:]...)
	}
	// Last, because only its length is not known
	b = append(b, h.Host[:min(len(h.Host), hostMax)]...)
	lo, hi := siphash.Hash128(binary.LittleEndian.Uint64(key[:8]),
		binary.LittleEndian.Uint64(key[8:]), b)
	binary.BigEndian.PutUint64(mac[:], lo)
	binary.BigEndian.PutUint64(mac[8:], hi)
	return mac
}

// networkOf is the network that an address belongs to, as a binding has it: /24, or /48 of IPv6. A
// single address is never one, because carriers give the requests of one client several.
func networkOf(a netip.Addr) [16]byte {
	a = a.Unmap()
	bits := 24
	if a.Is6() {
		bits = 48
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return [16]byte{} // of no address
	}
	return p.Addr().As16()
}

// A pass is in a cookie of one of these names: over TLS in one that browsers take of the host itself
// alone (RFC 6265bis, 4.1.3.2). Of the other a neighbour under the same domain may set some for it,
// with passes of his own, whose limit he has used up.
const (
	cookieName = "sluice_pass"
	hostCookie = "__Host-" + cookieName
)

// passesMost is how many cookies of a pass are tried: more than browsers keep of one domain (180 at
// most), so that no neighbour's hide a good one.
const passesMost = 192

// cookies calls found for the value of each cookie in a Cookie line that may hold a pass, and
// removes them from it in place: those that a neighbour may have set, and with hosts all. It returns
// what is left.
func cookies(line []byte, hosts bool, found func(value []byte)) []byte {
	if !bytes.Contains(line, []byte(cookieName)) {
		return line
	}
	left := line[:0]
	for rest := line; len(rest) > 0; {
		var pair []byte
		pair, rest, _ = bytes.Cut(rest, []byte{';'})
		name, value, _ := bytes.Cut(pair, []byte{'='})
		name = bytes.Trim(name, " \t")
		if string(name) == cookieName || hosts && string(name) == hostCookie {
			found(bytes.Trim(value, " \t"))
			continue
		}
		if len(left) > 0 {
			left = append(left, ';')
		} else {
			pair = bytes.TrimLeft(pair, " \t")
		}
		left = append(left, pair...)
	}
	return left
}

// appendCookie appends a Set-Cookie line's value for a pass.
func appendCookie(b []byte, k Keys, p Pass, h Holder, secure bool, now time.Time) []byte {
	name := cookieName
	if secure {
		name = hostCookie
	}
	b = append(append(b, name...), '=')
	b = k.AppendPass(b, p, h)
	b = append(b, "; Path=/; Max-Age="...)
	b = appendSeconds(b, p.End.Sub(now))
	b = append(b, "; HttpOnly; SameSite=Lax"...)
	if secure {
		b = append(b, "; Secure"...)
	}
	return b
}
