// Package seen remembers, in bounded memory, which keys an edge has counted of late: the heaviest
// by requests, by refusals and by what shadows would refuse, and from which addresses they came.
//
// A key is known by its digest and by what it is of (header:X-Api-Key); of the key itself there are
// the first characters alone, where a rule says so (key.Start). The heaviest are found as
// sluice/edge/top finds sources: 1,024 for each kind, in small sets, each with a lock of its own.
// Of addresses 4,096 pairs of one and a key are kept, in sets by the address; the pair that was not
// seen for longest goes first, once that is a second ago. So who sends many keys pushes out those
// of a few other addresses, and no more. Together that is 0.8 MB, whatever clients do.
package seen

import (
	"cmp"
	"encoding/binary"
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
	// churn is how old a pair must be to make room for another: while more addresses come than
	// there is room for, most cost a look and no more.
	churn = time.Second
)

// A Kind is by what keys are the heaviest.
type Kind uint8

const (
	Requests    Kind = iota
	Refused          // requests that a rule by the key refused
	NotEnforced      // those that a shadow would have refused
	kinds
)

// Keys is what is remembered. It is safe for concurrent use, and allocates nothing for a request.
type Keys struct {
	hasher counter.Hasher
	tops   [kinds][topSets]topSet
	pairs  [pairSets]pairSet
}

// A topSet is looked through by its tags, which are in one line of the cache; a key that is not
// meant is not touched.
type topSet struct {
	mu    sync.Mutex
	tags  [ways]uint64 // of digests
	count [ways]uint64 // 0: a free entry
	over  [ways]uint64
	keys  [ways]key.Counted
}

type pairSet struct {
	mu        sync.Mutex
	tags      [ways]uint64 // of digests and addresses
	last      [ways]int64  // Unix nanoseconds; 0: a free entry
	addresses [ways]counter.Source
	keys      [ways]key.Counted
}

// New makes one that remembers nothing yet.
func New() *Keys { return &Keys{hasher: counter.NewHasher(0)} }

// tagOf is of a digest, which is one under a secret, so nobody can choose it.
func tagOf(digest counter.Source) uint64 {
	var room [counter.SourceSize]byte
	return binary.LittleEndian.Uint64(digest.AppendBinary(room[:0])[1:])
}

// is reports whether two are one key.
func is(a, b *key.Counted) bool { return a.Digest == b.Digest && a.By == b.By }

// Request notes a request with a key, from an address as rules tell them apart.
func (k *Keys) Request(of *key.Counted, address counter.Source, now time.Time) {
	k.Hit(Requests, of)
	hash := k.hasher.Of(&address)
	set, tag, at := &k.pairs[hash%pairSets], tagOf(of.Digest)^hash, now.UnixNano()
	set.mu.Lock()
	for i := range set.tags {
		if set.tags[i] == tag && set.addresses[i] == address && is(&set.keys[i], of) {
			set.last[i] = at
			set.mu.Unlock()
			return
		}
	}
	oldest := 0
	for i := range set.last {
		if set.last[i] < set.last[oldest] {
			oldest = i
		}
	}
	if at-set.last[oldest] < int64(churn) {
		set.mu.Unlock()
		return
	}
	set.tags[oldest], set.last[oldest], set.addresses[oldest], set.keys[oldest] = tag, at, address,
		*of
	set.mu.Unlock()
}

// Hit counts a request with a key among the heaviest of a kind.
func (k *Keys) Hit(kind Kind, of *key.Counted) { k.Add(kind, of, 1, 0) }

// Add adds what another process counted of a key: at least count - over, at most count. Of several
// keys the lightest comes first, so that none pushes out a heavier one.
func (k *Keys) Add(kind Kind, of *key.Counted, count, over uint64) {
	tag := tagOf(of.Digest)
	set := &k.tops[kind][tag%topSets]
	set.mu.Lock()
	for i := range set.tags {
		if set.tags[i] == tag && set.count[i] > 0 && is(&set.keys[i], of) {
			set.count[i] += count
			set.over[i] += over
			set.mu.Unlock()
			return
		}
	}
	lightest := 0
	for i := range set.count {
		if set.count[i] < set.count[lightest] {
			lightest = i
		}
	}
	set.over[lightest] = set.count[lightest] + over
	set.count[lightest] += count
	set.tags[lightest], set.keys[lightest] = tag, *of
	set.mu.Unlock()
}

// Fade halves all counts. That keeps their order.
func (k *Keys) Fade() {
	for kind := range k.tops {
		for i := range k.tops[kind] {
			set := &k.tops[kind][i]
			set.mu.Lock()
			for j := range set.count {
				set.count[j] /= 2
				set.over[j] /= 2
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

// List returns at most n keys, the heaviest first: those that are of what by says; nil: of
// anything. Rest is how much a key that is not listed has at most.
func (k *Keys) List(kind Kind, n int, by func(string) bool) (list []Heavy, rest uint64) {
	for i := range k.tops[kind] {
		set := &k.tops[kind][i]
		set.mu.Lock()
		for j, key := range set.keys {
			switch {
			case set.count[j] <= set.over[j]:
				rest = max(rest, set.count[j])
			case by == nil || by(key.By):
				list = append(list, Heavy{key, set.count[j], set.over[j]})
			}
		}
		// In a set with a free entry there is no other key
		rest = max(rest, slices.Min(set.count[:]))
		set.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Digest.String(),
			b.Digest.String()))
	})
	if n < len(list) {
		rest = max(rest, list[n].Count)
	}
	return list[:min(n, len(list))], rest
}

// Start is what is shown of a key, if it is among the heaviest of some kind; nothing otherwise.
func (k *Keys) Start(by string, digest counter.Source) (start key.Start) {
	tag := tagOf(digest)
	for kind := range kinds {
		set := &k.tops[kind][tag%topSets]
		set.mu.Lock()
		for i := range set.tags {
			if set.tags[i] == tag && is(&set.keys[i], &key.Counted{By: by, Digest: digest}) {
				start = set.keys[i].Start
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
	set := &k.pairs[k.hasher.Of(&address)%pairSets]
	set.mu.Lock()
	defer set.mu.Unlock()
	for i := range set.keys {
		if set.last[i] != 0 && set.addresses[i] == address {
			list = append(list, Pair{set.keys[i], time.Unix(0, set.last[i]).UTC()})
		}
	}
	slices.SortFunc(list, func(a, b Pair) int { return b.Last.Compare(a.Last) })
	return list
}
