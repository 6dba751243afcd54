package records

import (
	"math/bits"
	"sync/atomic"
)

// extent says how many pages a shard uses, by linear hashing: a few at the start, and twice as many
// whenever those are rather full, so that a table takes memory as it fills, and few records share
// few pages, which stay in the processor's caches. The pages of a size are split one by one, from
// the last to the first, one for each record added. A hash falls into pages in its own order, so
// the records of page j of n belong in pages from j on of the n' that come next, and none of those
// but j itself is yet to be split.
//
// It changes under the shard's lock, and is read without it by Prefetch.
type extent struct {
	size  atomic.Uint32 // how many pages a hash chooses from
	split atomic.Uint32 // of these, those from here on have been split:
	next  atomic.Uint32 // a hash that falls into one of them chooses from so many
}

// doublings is how often a shard's pages double until it uses all.
const doublings = 5

// begin chooses from a part of the pages.
func (e *extent) begin(pages int) { e.double((pages+1<<doublings-1)>>doublings, pages) }

// double has all pages of a size, of which none has been split.
func (e *extent) double(size, pages int) {
	e.size.Store(uint32(size))
	e.split.Store(uint32(size))
	e.next.Store(uint32(following(size, pages)))
}

// following is the next size on the way to so many pages.
func following(size, pages int) int {
	for n := doublings; n > 0; n-- {
		if next := (pages + 1<<(n-1) - 1) >> (n - 1); next > size {
			return next
		}
	}
	return pages
}

// pageOf is the number of the page that records with a hash belong in.
func (e *extent) pageOf(hash uint64) int {
	page, _ := bits.Mul64(hash, uint64(e.size.Load()))
	if page >= uint64(e.split.Load()) {
		page, _ = bits.Mul64(hash, uint64(e.next.Load()))
	}
	return int(page)
}

// inUse is how many pages may hold records.
func (e *extent) inUse() int {
	size := e.size.Load()
	if e.split.Load() == size {
		return int(size)
	}
	return int(e.next.Load())
}

// Crowded reports whether a page should be split. Pages overflow by chance, and one of more than
// nine sixteenths in the mean would too often.
func (s *Shard) Crowded() bool {
	size := int(s.size.Load())
	return size < s.pagesEach && (int(s.split.Load()) < size || 16*int(s.used) > 9*size*s.perPage())
}

// Move is a record that has moved from one index to another; where there was no room for it, To is
// -1, and it is gone.
type Move struct {
	Head
	From, To int
	numbers  [maxNumbers]uint64
}

// Moves is room for the moves of a split, more than there mostly are.
type Moves [2 * slots]Move

// Split splits the next page of a crowded shard: its records, and those of others that stand in it,
// move to where they belong among more pages. hash is that of a record's ID. Indices in From and To
// may be the same ones.
func (s *Shard) Split(hash func(id [16]byte, kind uint8) uint64, room *Moves) []Move {
	number := int(s.split.Load()) - 1
	page := s.memory(number)
	moves := room[:0]
	for k := range probes(s.tagsOf(page)) + 1 {
		at, ok := s.neighbour(number, k)
		if !ok {
			continue
		}
		for w, tags := range s.tagsOf(at) {
			for m := tags & odd; m != 0; m &= m - 1 {
				i := at<<slotBits | w*ways | bits.TrailingZeros64(m)>>3
				if h := s.Head(i); k == 0 || s.pageOf(hash(h.ID, h.Kind)) == number {
					moves = append(moves, s.pickUp(i))
					s.tag(i, tagTombstone)
				}
			}
		}
	}
	s.split.Store(uint32(number))
	clear(s.tagsOf(page))
	s.used -= int32(len(moves))
	for k := range moves {
		s.putDown(&moves[k], hash(moves[k].ID, moves[k].Kind))
	}
	if number == 0 {
		s.double(int(s.next.Load()), s.pagesEach)
	}
	return moves
}

func (s *Shard) pickUp(i int) Move {
	m := Move{Head: *s.Head(i), From: i}
	copy(m.numbers[:], s.Numbers(i))
	return m
}

func (s *Shard) putDown(m *Move, hash uint64) {
	home, tag := s.home(hash, m.Class)
	i, ok := s.free(s.pageOf(hash), home)
	if m.To = i; !ok {
		m.To = -1
		return
	}
	s.used++
	s.tag(i, tag)
	h, numbers := s.Record(i)
	*h = m.Head
	copy(numbers, m.numbers[:])
}
