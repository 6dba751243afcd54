// Package secret keeps what the edges of a PoP share and clients do not know. All of it follows
// from the secret's bytes and the PoP's name (At), so PoPs of two names stay apart, though they
// have the same secret and nodes. It decides which node has a source and when its windows begin,
// how keys in the tier are named, and what in the tier is authentic. Keys are of fixed width and
// hold no user data: a letter, then a keyed 128-bit digest of what they name. What is sealed
// carries a MAC, because an outsider that reaches the tier can write into it.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
)

// Secret is a PoP's. Each of its uses has a key of its own, so that nothing that an outsider
// chooses is ever hashed under the key of a MAC.
type Secret struct {
	names        key // placement, phase, keys in the tier
	records      key // MACs of bits and of the mitigation log
	operatorList key // MACs of the operators' list
	presence     key // MACs of what edges say of themselves
	clients      key // digests of what clients send
	passes       key // MACs of what clients are given, to show it again
	digest       [8]byte
	older        *Secret   // that it replaces; nil: there is none
	unnamed      *material // from which it was made
}

// material is a secret before it is a PoP's.
type material struct {
	root [sha256.Size]byte
	of   Secret
}

// MaxLines is how many secrets an edge can have: while one replaces another, both.
const MaxLines = 2

// key is one of SipHash.
type key struct{ k0, k1 uint64 }

// Of makes a secret from any bytes that are hard to guess: that of no PoP yet (At). Made from a
// PoP's name alone it keeps out no one who knows the name and reaches the tier.
func Of(b []byte) Secret {
	s := derive(func(use string) []byte { return append([]byte("sluice pop "+use+"\x00"), b...) })
	s.unnamed = &material{root: sha256.Sum256(append([]byte("sluice pop root\x00"), b...)), of: s}
	return s
}

// At is the secret of the PoP of that name: no value of it is another PoP's, or that of the bare
// bytes. Digests of what clients send are the exception, because PoPs may share a store of clients'
// plans.
func (s Secret) At(pop string) Secret {
	root := s.unnamed.root
	named := derive(func(use string) []byte {
		return append(append([]byte("sluice pop "+use+" of\x00"), root[:]...), pop...)
	})
	named.clients, named.unnamed = s.unnamed.of.clients, s.unnamed
	if s.older != nil {
		return named.After(s.older.At(pop))
	}
	return named
}

// derive makes each part of a secret from what is hashed for its use.
func derive(hashed func(use string) []byte) Secret {
	of := func(use string) key {
		h := sha256.Sum256(hashed(use))
		return key{binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])}
	}
	public := sha256.Sum256(hashed("digest"))
	return Secret{names: of("names"), records: of("records"), operatorList: of("words"),
		presence: of("presence"), clients: of("clients"),
		passes: of("passes"), digest: [8]byte(public[:8])}
}

// After is the secret, replacing an older one. Everything is named and sealed under the new one;
// only what operators said (Lines, OpenAny) and bits (Older) are read under both, and what clients
// send has the digests that it had, so that blocks and quotas of keys hold.
func (s Secret) After(older Secret) Secret {
	s.older = &older
	return s
}

// Lines are the secret and the one that it replaces, one by one.
func (s Secret) Lines() []Secret {
	older := s.older
	s.older = nil
	if older == nil {
		return []Secret{s}
	}
	return append([]Secret{s}, older.Lines()...)
}

// Older is the secret that this one replaces.
func (s Secret) Older() (older Secret, is bool) {
	if s.older == nil {
		return older, false
	}
	return *s.older, true
}

// OnDisk is the secret for reading what was kept on this machine or comes from the process before
// this one: versions before 0.2.0 sealed that without the PoP's name. What is in the tier is never
// read by it.
func (s Secret) OnDisk() Secret {
	lines := s.Lines()
	for _, line := range lines {
		lines = append(lines, line.unnamed.of)
	}
	all := lines[len(lines)-1]
	for _, line := range slices.Backward(lines[:len(lines)-1]) {
		all = line.After(all)
	}
	return all
}

// Digests name the secrets of Lines in the open, so that edges can see whether they have the same.
// No secret can be learned from it: it is 64 bits of a SHA-256 that is used for nothing else.
// Secrets are random files, far too many to try, and an attacker that tries a few can do so with
// any name in the tier as well. A secret that follows from a PoP's name can be guessed from its
// digest, as from all else.
func (s Secret) Digests() (list []string) {
	for _, line := range s.Lines() {
		list = append(list, hex.EncodeToString(line.digest[:]))
	}
	return list
}

// Bytes is the key for digests of what clients send: the oldest secret's.
func (s Secret) Bytes() (b [16]byte) {
	if s.older != nil {
		return s.older.Bytes()
	}
	binary.LittleEndian.PutUint64(b[:8], s.clients.k0)
	binary.LittleEndian.PutUint64(b[8:], s.clients.k1)
	return b
}

// Passes are the keys of MACs under what clients are given: that of the secret, then that of the
// one which it replaces.
func (s Secret) Passes() (keys [][16]byte) {
	for _, line := range s.Lines() {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:8], line.passes.k0)
		binary.LittleEndian.PutUint64(b[8:], line.passes.k1)
		keys = append(keys, b)
	}
	return keys
}

// MACSize is the bytes of a MAC: SipHash of 128 bits.
const MACSize = 16

// Use is what is sealed. What is sealed for one use does not open for another.
type Use uint8

const (
	Records      Use = iota // a bit, or a record of the mitigation log
	OperatorList            // the operators' list
	Head                    // which list a node has
	Presence                // what an edge publishes about itself
	Exact                   // a bucket of instants
	View                    // that somebody looks at the PoP, and what edges show him
)

// key of a use, and what is hashed with it so that no two uses share MACs.
func (s *Secret) key(u Use) (k key, letter byte) {
	switch u {
	case OperatorList:
		return s.operatorList, 'w'
	case Head:
		return s.operatorList, 'h'
	case Presence:
		return s.presence, 'e'
	case Exact:
		return s.records, 'x'
	case View:
		return s.presence, 'v'
	}
	return s.records, 'm'
}

// Seal appends the MAC of b.
func (s Secret) Seal(u Use, b []byte) []byte {
	mac := s.mac(u, b)
	return append(b, mac[:]...)
}

func (s *Secret) mac(u Use, b []byte) (mac [MACSize]byte) {
	k, letter := s.key(u)
	var room [256]byte // most is shorter
	lo, hi := siphash.Hash128(k.k0, k.k1, append(append(room[:0], b...), letter))
	binary.BigEndian.PutUint64(mac[:], lo)
	binary.BigEndian.PutUint64(mac[8:], hi)
	return mac
}

// Open reads what Seal made, and reports whether it is authentic.
func (s Secret) Open(u Use, b []byte) (in Reader, ok bool) {
	if len(b) < MACSize {
		return in, false
	}
	body := b[: len(b)-MACSize : len(b)-MACSize]
	mac := s.mac(u, body)
	return Reader{rest: body}, subtle.ConstantTimeCompare(mac[:], b[len(body):]) == 1
}

// SealAt is Seal for what stands under one key, and is authentic nowhere else.
func (s Secret) SealAt(u Use, key string, b []byte) []byte {
	mac := s.mac(u, append([]byte(key+"\x00"), b...))
	return append(b, mac[:]...)
}

// OpenAt reads what SealAt made for a key.
func (s Secret) OpenAt(u Use, key string, b []byte) (in Reader, ok bool) {
	if len(b) < MACSize {
		return in, false
	}
	body := b[: len(b)-MACSize : len(b)-MACSize]
	mac := s.mac(u, append([]byte(key+"\x00"), body...))
	return Reader{rest: body}, subtle.ConstantTimeCompare(mac[:], b[len(body):]) == 1
}

// OpenAny is Open for what may have been sealed before the secret replaced another.
func (s Secret) OpenAny(u Use, b []byte) (in Reader, ok bool) {
	for _, line := range s.Lines() {
		if in, ok = line.Open(u, b); ok {
			break
		}
	}
	return in, ok
}

// What a hash is for is hashed with it, so that no two uses share values.
const (
	forPlacement    = 'n'
	forPhase        = 'p'
	forCounter      = 'c'
	forBit          = 'b'
	forLog          = 'l'
	forHead         = 'h'
	forEdge         = 'e'
	forRule         = 'r'
	forOperatorList = 'w'
	forFlight       = 'i'
	forExact        = 'x'
	forView         = 'v'
	forVia          = 'y'
)

func (s Secret) hashSource(use byte, source counter.Source) uint64 {
	var b [1 + counter.SourceSize]byte
	b[0] = use
	return siphash.Hash(s.names.k0, s.names.k1, source.AppendBinary(b[:1]))
}

// PlacementHash is a source's hash for the choice of its node.
func (s Secret) PlacementHash(source counter.Source) uint64 {
	return s.hashSource(forPlacement, source)
}

// Via is by what the PoP knows, in the header Via, requests that an edge of it has passed on.
// Origins learn it.
func (s Secret) Via() uint64 { return siphash.Hash(s.names.k0, s.names.k1, []byte{forVia}) }

// Bucket is which of a rule's buckets of instants has a source's.
func (s Secret) Bucket(source counter.Source) uint32 {
	return uint32(s.hashSource(forExact, source) % exact.Buckets)
}

// Phase is how late a source's windows begin: see counter.Options.
func (s Secret) Phase(source counter.Source) uint16 {
	return uint16(s.hashSource(forPhase, source))
}

// CounterName is what the keys of a counter's groups begin with.
type CounterName [1 + 22]byte

func (s Secret) CounterName(c counter.Counter, epoch uint64) (name CounterName) {
	s.appendDigest(name[:0], forCounter, c, epoch)
	return name
}

// InFlightName is what the keys of a source's requests in flight begin with, under rules of that
// name. Groups are epochs.
func (s Secret) InFlightName(rule string, source counter.Source) (name CounterName) {
	var b [192]byte
	s.append128(append(name[:0], forFlight), append(source.AppendBinary(append(b[:0], forFlight)),
		rule...))
	return name
}

// ExactName is what the keys of a rule's buckets begin with, and of whose instants those are.
// Groups are buckets.
func (s Secret) ExactName(id string) (name CounterName) {
	var b [192]byte
	s.append128(append(name[:0], forExact), append(append(b[:0], forExact), id...))
	return name
}

// ExactTag is by what a source is known in a bucket since an operator has lifted it.
func (s Secret) ExactTag(id string, source counter.Source, epoch uint64) uint64 {
	var b [192]byte
	named := binary.BigEndian.AppendUint64(source.AppendBinary(append(b[:0], forExact)), epoch)
	return siphash.Hash(s.names.k0, s.names.k1, append(named, id...))
}

const CounterKeySize = len(CounterName{}) + 6

// Key names a group of a counter: 29 characters.
func (n *CounterName) Key(group uint32) string {
	var room [CounterKeySize]byte
	return string(n.Append(room[:0], group))
}

// Append appends Key.
func (n *CounterName) Append(key []byte, group uint32) []byte {
	const digits = "0123456789abcdef"
	return append(append(key, n[:]...), digits[group>>20&15], digits[group>>16&15],
		digits[group>>12&15], digits[group>>8&15], digits[group>>4&15], digits[group&15])
}

// BitKey names the mitigation bit of a counter: 23 characters.
func (s Secret) BitKey(c counter.Counter, epoch uint64) string {
	var text [64]byte
	return string(s.AppendBitKey(text[:0], c, epoch))
}

// AppendBitKey appends BitKey.
func (s Secret) AppendBitKey(key []byte, c counter.Counter, epoch uint64) []byte {
	return s.appendDigest(key, forBit, c, epoch)
}

// appendDigest names what belongs to a counter. After an operator has lifted the source (an epoch
// begins) it has other names: what was counted before is not found any more, even if an edge still
// adds to it.
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

// LogHeadKey names the last number of a node's log.
func (s Secret) LogHeadKey() string { return string(s.append128([]byte{forHead}, []byte{forHead})) }

// LogItemKey names an item of a node's log.
func (s Secret) LogItemKey(number uint64) string {
	var text [1 + 22]byte
	return string(s.append128(append(text[:0], forLog),
		binary.BigEndian.AppendUint64([]byte{forLog}, number)))
}

// NamesLogItem reports whether a key is that of an item of a log.
func NamesLogItem(key string) bool { return key[0] == forLog }

// SlotKey names a slot for an edge's presence.
func (s Secret) SlotKey(slot int) string {
	return string(s.append128([]byte{forEdge}, fmt.Appendf(nil, "%c%d", forEdge, slot)))
}

// ViewKey names the item that says that somebody looks at the whole PoP, and PartKey what an edge
// shows him: 23 characters each.
func (s Secret) ViewKey() string { return string(s.append128([]byte{forView}, []byte{forView})) }

func (s Secret) PartKey(edge uint64) string {
	var b [9]byte
	return string(s.append128([]byte{forView}, binary.BigEndian.AppendUint64(append(b[:0], forView),
		edge)))
}

// RuleDigest names a rule's counters in the mitigation log.
func (s Secret) RuleDigest(r *algorithm.Spec) uint64 {
	return siphash.Hash(s.names.k0, s.names.k1, append([]byte{forRule}, r.Identity()...))
}

// OperatorListKeys name the operators' list, and its head.
func (s Secret) OperatorListKeys() (list, head string) {
	return string(s.append128([]byte{forOperatorList}, []byte{forOperatorList, 'l'})),
		string(s.append128([]byte{forOperatorList}, []byte{forOperatorList, 'h'}))
}

// Reader reads what was sealed: numbers in big endian, and pieces. Beyond the end it gives zeros,
// and is bad.
type Reader struct {
	rest []byte
	bad  bool
}

// Whole reports whether all was read, and nothing that was not there.
func (r *Reader) Whole() bool { return !r.bad && len(r.rest) == 0 }

// Bad reports whether more was read than there is.
func (r *Reader) Bad() bool { return r.bad }

// Next is the next n bytes.
func (r *Reader) Next(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.bad = nil, true
		return make([]byte, n)
	}
	piece := r.rest[:n]
	r.rest = r.rest[n:]
	return piece
}

// Rest is all that has not been read yet.
func (r *Reader) Rest() []byte { return r.Next(len(r.rest)) }

// Number is that of the next size bytes.
func (r *Reader) Number(size int) (n uint64) {
	for _, b := range r.Next(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

// Uvarint is a number as binary.AppendUvarint writes it.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// Time reads what AppendTime wrote.
func (r *Reader) Time() time.Time {
	if n := int64(r.Number(8)); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// AppendTime writes nanoseconds since 1970, 0 for no time.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.BigEndian.AppendUint64(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixNano()))
}
