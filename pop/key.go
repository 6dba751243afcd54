package pop

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
)

// Secret is what the edges of a PoP share and clients do not know. It keys where sources are placed, when their windows
// begin, what memcached keys are called, and what in the tier is authentic.
type Secret struct {
	k0, k1 uint64
}

// SecretOf makes the secret from any bytes that are hard to guess. Made from a PoP's name alone it keeps nobody out who knows
// the name and reaches the tier.
func SecretOf(b []byte) Secret {
	h := sha256.Sum256(append([]byte("sluice pop secret\x00"), b...))
	return Secret{binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])}
}

// Bytes is the key itself, for digests of what clients send.
func (s Secret) Bytes() (key [16]byte) {
	binary.LittleEndian.PutUint64(key[:8], s.k0)
	binary.LittleEndian.PutUint64(key[8:], s.k1)
	return key
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
)

func (s Secret) hashSource(use byte, source counter.Source) uint64 {
	var b [1 + counter.SourceSize]byte
	b[0] = use
	return siphash.Hash(s.k0, s.k1, source.AppendBinary(b[:1]))
}

// Phase is how late a source's windows begin: see counter.Options.
func (s Secret) Phase(source counter.Source) uint16 {
	return uint16(s.hashSource(forPhase, source))
}

// Keys are of fixed width and hold no user data: a letter, then a keyed 128-bit digest of what they name.

// counterName is what the keys of a counter's groups begin with.
type counterName [1 + 22]byte

func (m *Machine) counterName(c counter.Counter) (name counterName) {
	m.secret.appendDigest(name[:0], forCounter, c, m.epoch(c))
	return name
}

// bitKey names the mitigation bit of a counter: 23 characters.
func (m *Machine) bitKey(c counter.Counter) string {
	var text [1 + 22]byte
	return string(m.secret.appendDigest(text[:0], forBit, c, m.epoch(c)))
}

// claimKey names who is the first to announce a counter in a group: 29 characters.
func (m *Machine) claimKey(c counter.Counter, what byte, group uint32) string {
	var name counterName
	m.secret.appendDigest(name[:0], what, c, m.epoch(c))
	return name.key(group)
}

// epoch tells what is counted of a source since an operator last lifted it from what was before.
func (m *Machine) epoch(counter.Counter) uint64 { return 0 }

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

// appendDigest names a counter of an epoch: see Machine.epoch.
func (s Secret) appendDigest(key []byte, use byte, c counter.Counter, epoch uint64) []byte {
	var b [192]byte
	named := append(b[:0], use)
	named = c.Source.AppendBinary(named)
	named = append(named, c.Rule.Identity()...)
	if epoch != 0 {
		named = binary.BigEndian.AppendUint64(append(named, 0), epoch)
	}
	return s.append128(append(key, use), named)
}

func (s Secret) append128(key, named []byte) []byte {
	lo, hi := siphash.Hash128(s.k0, s.k1, named)
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
	return siphash.Hash(s.k0, s.k1, append([]byte{forRule}, r.Identity()...))
}
