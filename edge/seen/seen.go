// Package seen remembers, in bounded memory, which keys an edge has counted of late: the heaviest by requests, by refusals and by what shadows
// would refuse, and from which addresses they came.
//
// A key is known by its digest and by what it is of (header:X-Api-Key); of the key itself there are the first characters alone, where a
// rule says so (key.Start). The heaviest are found as sluice/edge/top finds sources: 1,024 for each kind, in small sets, each with a lock of its
// own. Of addresses 4,096 pairs of one and a key are kept, in sets by the address; the pair that was not seen for longest goes first. So who
// sends many keys pushes out those of a few other addresses, and no more. Together that is 0.8 MB, whatever clients do.
package seen

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"sluice/counter"
	"sluice/edge/rules/key"
)

const (
	ways     = 8
	topSets  = 128
	pairSets = 512
)

// A Kind is by what keys are the heaviest.
type Kind uint8

const (
	Requests Kind = iota
	Refused       // requests that a rule by the key refused
	Spared        // those that a shadow or a candidate would have refused
	kinds
)

// Keys is what is remembered. It is safe for concurrent use, and allocates nothing for a request.
type Keys struct {
	seed  maphash.Seed
	tops  [kinds][topSets]topSet
	pairs [pairSets]pairSet
}

type topSet struct {
	mu      sync.Mutex
	entries [ways]topEntry
}

type topEntry struct {
	key         key.Counted
	count, over uint64 // count 0: a free entry
}

type pairSet struct {
	mu      sync.Mutex
	entries [ways]pair
}

type pair struct {
	address counter.Source
	key     key.Counted
	last    time.Time // zero: a free entry
}

// New makes one that remembers nothing yet.
func New() *Keys { return &Keys{seed: maphash.MakeSeed()} }

// Request notes a request with a key, from an address as rules tell them apart.
func (k *Keys) Request(of *key.Counted, address counter.Source, now time.Time) {
	k.Hit(Requests, of)
	set := &k.pairs[maphash.Comparable(k.seed, address)%pairSets]
	set.mu.Lock()
	defer set.mu.Unlock()
	oldest := &set.entries[0]
	for i := range set.entries {
		p := &set.entries[i]
		if p.key.Digest == of.Digest && p.address == address && p.key.By == of.By {
			p.last = now
			return
		}
		if p.last.Before(oldest.last) {
			oldest = p
		}
	}
	*oldest = pair{address, *of, now}
}

// Hit counts a request with a key among the heaviest of a kind.
func (k *Keys) Hit(kind Kind, of *key.Counted) {
	set := k.set(kind, of.Digest)
	set.mu.Lock()
	defer set.mu.Unlock()
	lightest := &set.entries[0]
	for i := range set.entries {
		e := &set.entries[i]
		if e.key.Digest == of.Digest && e.key.By == of.By && e.count > 0 {
			e.count++
			return
		}
		if e.count < lightest.count {
			lightest = e
		}
	}
	*lightest = topEntry{key: *of, count: lightest.count + 1, over: lightest.count}
}

// set is where a digest is. It is one under a secret, so nobody can choose it.
func (k *Keys) set(kind Kind, digest counter.Source) *topSet {
	var room [counter.SourceSize]byte
	b := digest.AppendBinary(room[:0])
	return &k.tops[kind][binary.LittleEndian.Uint16(b[1:])%topSets]
}

// Fade halves all counts. That keeps their order.
func (k *Keys) Fade() {
	for kind := range k.tops {
		for i := range k.tops[kind] {
			set := &k.tops[kind][i]
			set.mu.Lock()
			for j := range set.entries {
				set.entries[j].count /= 2
				set.entries[j].over /= 2
			}
			set.mu.Unlock()
		}
	}
}

// A Heavy is a key and how often it came: at least Count - Error, at most Count, of late.
type Heavy struct {
	key.Counted
	Count, Error uint64
}

// Heaviest returns at most n keys, the heaviest first: those that are of what by says; nil: of anything.
func (k *Keys) Heaviest(kind Kind, n int, by func(string) bool) (list []Heavy) {
	for i := range k.tops[kind] {
		set := &k.tops[kind][i]
		set.mu.Lock()
		for _, e := range set.entries {
			if e.count > e.over && (by == nil || by(e.key.By)) {
				list = append(list, Heavy{e.key, e.count, e.over})
			}
		}
		set.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Digest.String(), b.Digest.String()))
	})
	return list[:min(n, len(list))]
}

// Start is what is shown of a key, if it is among the heaviest of some kind; nothing otherwise.
func (k *Keys) Start(by string, digest counter.Source) (start key.Start) {
	for kind := range kinds {
		set := k.set(kind, digest)
		set.mu.Lock()
		for i := range set.entries {
			if e := &set.entries[i]; e.key.Digest == digest && e.key.By == by {
				start = e.key.Start
			}
		}
		set.mu.Unlock()
		if start != (key.Start{}) {
			break
		}
	}
	return start
}

// A Pair is a key that came from an address, and when it last did.
type Pair struct {
	key.Counted
	Last time.Time
}

// From are the keys that came from an address of late, the latest first.
func (k *Keys) From(address counter.Source) (list []Pair) {
	set := &k.pairs[maphash.Comparable(k.seed, address)%pairSets]
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, p := range set.entries {
		if !p.last.IsZero() && p.address == address {
			list = append(list, Pair{p.key, p.last})
		}
	}
	slices.SortFunc(list, func(a, b Pair) int { return b.Last.Compare(a.Last) })
	return list
}
