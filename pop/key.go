package pop

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
)

// Secret is what the edges of a PoP share and clients do not know. It keys where sources are placed, when their windows
// begin, what memcached keys are called, and what in the tier is authentic: each of these by a key of its own, so that nothing
// that an outsider chooses is ever hashed under the key of a MAC.
type Secret struct {
	names    key // placement, phase, keys in the tier
	records  key // MACs of bits and of the mitigation log
	words    key // MACs of the operators' list
	presence key // MACs of what edges say of themselves
	clients  key // digests of what clients send
}

// key is one of SipHash.
type key struct{ k0, k1 uint64 }

// SecretOf makes the secret from any bytes that are hard to guess. Made from a PoP's name alone it keeps nobody out who knows
// the name and reaches the tier.
func SecretOf(b []byte) Secret {
	derive := func(use string) key {
		h := sha256.Sum256(append([]byte("sluice pop "+use+"\x00"), b...))
		return key{binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])}
	}
	return Secret{derive("names"), derive("records"), derive("words"), derive("presence"), derive("clients")}
}

// Bytes is the key for digests of what clients send.
func (s Secret) Bytes() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:8], s.clients.k0)
	binary.LittleEndian.PutUint64(b[8:], s.clients.k1)
	return b
}

// macSize is the bytes of a MAC: SipHash of 128 bits.
const macSize = 16

// appendMAC appends the MAC of b, which is meant for a use.
func (k key) appendMAC(b []byte, use byte) []byte {
	lo, hi := siphash.Hash128(k.k0, k.k1, append(b[:len(b):len(b)], use))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, lo), hi)
}

// checks reports whether b ends in the MAC of what is before.
func (k key) checks(b []byte, use byte) bool {
	body := b[:len(b)-macSize]
	return subtle.ConstantTimeCompare(k.appendMAC(body[:len(body):len(body)], use)[len(body):], b[len(body):]) == 1
}

// What a hash is for is hashed with it, so that no two uses share values.
const (
	forPlace   = 'n'
	forPhase   = 'p'
	forCounter = 'c'
	forBit     = 'b'
	forLog     = 'l'
	forHead    = 'h'
	forNear    = 'a'
	forFull    = 'f'
	forEdge    = 'e'
	forRule    = 'r'
	forMAC     = 'm'
	forWords   = 'w'
)

func (s Secret) hashSource(use byte, source counter.Source) uint64 {
	var b [1 + counter.SourceSize]byte
	b[0] = use
	return siphash.Hash(s.names.k0, s.names.k1, source.AppendBinary(b[:1]))
}

// Phase is how late a source's windows begin: see counter.Options.
func (s Secret) Phase(source counter.Source) uint16 {
	return uint16(s.hashSource(forPhase, source))
}

// Keys are of fixed width and hold no user data: a letter, then a keyed 128-bit digest of what they name.

// counterName is what the keys of a counter's groups begin with.
type counterName [1 + 22]byte

func (s Secret) counterName(c counter.Counter, epoch uint64) (name counterName) {
	s.appendDigest(name[:0], forCounter, c, epoch)
	return name
}

// claimKey names who is the first to announce a counter in a group: 29 characters.
func (m *Machine) claimKey(c counter.Counter, what byte, group uint32) string {
	var name counterName
	m.secret.appendDigest(name[:0], what, c, m.epoch(c.Rule, c.Source))
	return name.key(group)
}

const counterKeySize = len(counterName{}) + 6

// key names a group of a counter: 29 characters.
func (n *counterName) key(group uint32) string {
	var room [counterKeySize]byte
	return string(n.append(room[:0], group))
}

func (n *counterName) append(key []byte, group uint32) []byte {
	const digits = "0123456789abcdef"
	return append(append(key, n[:]...), digits[group>>20&15], digits[group>>16&15], digits[group>>12&15],
		digits[group>>8&15], digits[group>>4&15], digits[group&15])
}

// sheet is what keys and values of reports are written on, because a thousand small pieces of memory cost more than a large one. It
// is free when the last of them is.
type sheet struct {
	text   strings.Builder
	values []byte
}

const sheetSize = 4096

// write returns what it is given, as a string.
func (s *sheet) write(text []byte) string {
	if s.text.Cap()-s.text.Len() < len(text) {
		s.text.Reset()
		s.text.Grow(sheetSize)
	}
	from := s.text.Len()
	s.text.Write(text)
	return s.text.String()[from:]
}

// number is a value of 20 digits.
func (s *sheet) number(n uint64) []byte {
	const digits = 20
	if cap(s.values)-len(s.values) < digits {
		s.values = make([]byte, 0, sheetSize)
	}
	from := len(s.values)
	s.values = s.values[:from+digits]
	value := s.values[from : from+digits : from+digits]
	for i := len(value) - 1; i >= 0; i-- {
		value[i] = byte('0' + n%10)
		n /= 10
	}
	return value
}

// bitKey names the mitigation bit of a counter: 23 characters.
func (s Secret) bitKey(c counter.Counter, epoch uint64) string {
	var text [64]byte
	return string(s.appendDigest(text[:0], forBit, c, epoch))
}

// appendDigest names what belongs to a counter. Since an operator lifted the source (Machine.epoch) it has other names: what was
// counted before is not found any more, whoever still adds to it.
func (s Secret) appendDigest(key []byte, use byte, c counter.Counter, epoch uint64) []byte {
	var b [192]byte
	named := append(b[:0], use)
	named = c.Source.AppendBinary(named)
	if epoch != 0 {
		named[0] |= 0x80
		named = binary.BigEndian.AppendUint64(named, epoch)
	}
	named = append(named, c.Rule.Identity()...)
	return s.append128(append(key, use), named)
}

func (s Secret) append128(key, named []byte) []byte {
	lo, hi := siphash.Hash128(s.names.k0, s.names.k1, named)
	var d [16]byte
	binary.LittleEndian.PutUint64(d[:8], lo)
	binary.LittleEndian.PutUint64(d[8:], hi)
	return base64.RawURLEncoding.AppendEncode(key, d[:])
}

// headKey names the last number of a node's log.
func (s Secret) headKey() string { return string(s.append128([]byte{forHead}, []byte{forHead})) }

// itemKey names an item of a node's log.
func (s Secret) itemKey(number uint64) string {
	var text [1 + 22]byte
	return string(s.append128(append(text[:0], forLog), binary.BigEndian.AppendUint64([]byte{forLog}, number)))
}

// edgeKey names a slot in which an edge says that it is there.
func (s Secret) edgeKey(slot int) string {
	return string(s.append128([]byte{forEdge}, fmt.Appendf(nil, "%c%d", forEdge, slot)))
}

// ruleDigest names a rule's counters in the mitigation log.
func (s Secret) ruleDigest(r *counter.Rule) uint64 {
	return siphash.Hash(s.names.k0, s.names.k1, append([]byte{forRule}, r.Identity()...))
}

// wordsKeys name the operators' list, and its head.
func (s Secret) wordsKeys() (list, head string) {
	return string(s.append128([]byte{forWords}, []byte{forWords, 'l'})), string(s.append128([]byte{forWords}, []byte{forWords, 'h'}))
}
