package tokens

import (
	"crypto/rand"
	"encoding/binary"
	"sync"

	"github.com/dchest/siphash"
)

// A table keeps what came of tokens, by a keyed digest of each: no client can make two that share
// one, or choose which shard is full. Full, a shard forgets the oldest. When full it holds about 70
// bytes for each, and of a good token's claims up to 256 bytes for each claim that rules use.
type table struct {
	k0, k1 uint64
	shards [32]tableShard
}

type tableShard struct {
	mu   sync.Mutex
	at   map[[16]byte]*Claims
	ring [][16]byte // in the order in which they came
	next int
}

// secret keys all tables of a process.
var secret = sync.OnceValues(func() (k0, k1 uint64) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
})

func newTable() *table {
	t := new(table)
	t.k0, t.k1 = secret()
	for i := range t.shards {
		t.shards[i].at = make(map[[16]byte]*Claims)
	}
	return t
}

func (t *table) digest(text []byte) (d [16]byte) {
	a, b := siphash.Hash128(t.k0, t.k1, text)
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return d
}

func (t *table) shard(d [16]byte) *tableShard { return &t.shards[int(d[0])%len(t.shards)] }

func (t *table) get(d [16]byte) (c *Claims, known bool) {
	s := t.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known = s.at[d]
	return c, known
}

func (t *table) put(d [16]byte, c *Claims) {
	s := t.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[d]; known { // two have verified it at once
		return
	}
	if most := tableSize / len(t.shards); len(s.ring) < most {
		s.ring = append(s.ring, d)
	} else {
		delete(s.at, s.ring[s.next])
		s.ring[s.next] = d
		s.next = (s.next + 1) % most
	}
	s.at[d] = c
}
