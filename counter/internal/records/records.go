// Package records is a hash table of fixed-size records, cut into shards.
//
// It is linear hashing (Litwin, VLDB 1980) over pages of memory with overflow into neighbouring
// pages (after Larson, "Linear Hashing with Overflow-Handling by Linear Probing", ACM TODS 1985). A
// shard begins with a few of its pages and splits one for each record added, while they are rather
// full, until it uses all. All records of an ID belong in the page that its hash chooses. A page
// has a line of tags, a byte of hash for each of its records, of which eight are compared at once.
// So to find a record memory is waited for about once, however many classes of an ID are looked
// for: tags and records are read at the same time.
//
// A record takes its size, a byte for the tag and a twelfth to spare: 72 bytes for one of 64. There
// are no pointers for the garbage collector; all memory is allocated by New and touched only as
// shards grow. When a page and its neighbours are full, a new record pushes out the one of eight at
// which the caller gives the least eviction cost: what was in that is lost.
package records

import (
	"iter"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Table is the memory of all shards.
type Table struct {
	words []uint64 // the pages, one record after the other
	// Of each page. Within the pages all of them would compete for a few sets of the processor's
	// caches
	tags []tagLine
	// Of the shards, close together and so at hand: every search begins there, and Prefetch would
	// wait for each shard's line
	extents   []extent
	record    int // words of a record
	page      int // of a page
	tagWords  int // of its tags
	shards    int
	pagesEach int // how many a shard may use
}

// A page of 63 records of 64 bytes and its tags are as much as one of the processor's pages. Each
// such record has a line of the cache to itself.
const (
	pageBytes = 4096
	slotBits  = 6 // a record's index is its page's, and in the lowest bits its tag's index in that
	slots     = 1 << slotBits
	ways      = 8 // tags in a word, and so the records that compete to stay
)

type tagLine [slots / ways]uint64

// Tags that are no hash; those are odd. A page's first tag is no record's.
const (
	tagEmpty = 0
	tagUsed  = 2 // of the first: not free
	// Empty, but its word of tags was full: records that did not fit may stand in the next
	tagTombstone = 4
	tagProbe     = 8 // of the first, so many times: see probes

	odd = 0x0101010101010101
)

// Head is a record without its numbers: half a line of the processor's cache.
type Head struct {
	ID    [16]byte // with Class and Kind the key
	Class uint32
	Kind  uint8
	Own   [11]byte // the caller's; 0 in a new record
}

const (
	headWords  = int(unsafe.Sizeof(Head{})) / 8
	maxNumbers = 7
)

// New makes a table of so many shards, each with room for so many records of a head and so many
// numbers, 7 at most.
func New(shards, perShard, numbers int) *Table {
	t := layout(shards, perShard, numbers)
	hugePages(t.words)
	return t
}

func layout(shards, perShard, numbers int) *Table {
	t := &Table{shards: shards, record: headWords + min(numbers, maxNumbers)}
	t.tagWords = ((pageBytes-int(unsafe.Sizeof(tagLine{})))/(8*t.record) + 1) / ways
	t.page = t.perPage() * t.record
	// A twelfth to spare, so that few records are pushed out before there are as many as were
	// configured.
	t.pagesEach = max((13*perShard+12*t.perPage()-1)/(12*t.perPage()), 1)
	t.words = make([]uint64, shards*t.pagesEach*t.page)
	t.tags = make([]tagLine, shards*t.pagesEach)
	t.extents = make([]extent, shards)
	for i := range t.extents {
		t.extents[i].begin(t.pagesEach)
	}
	return t
}

// Shard is one of a table's. The caller holds the shard's lock.
type Shard struct {
	*Table
	*extent // how many of its pages it uses
	// These are its pages: first, first+shards, and so on, so that all shards together use the
	// first pages
	first int32
	used  int32 // records
}

// Shard is the shard with a number.
func (t *Table) Shard(number int) Shard {
	return Shard{Table: t, extent: &t.extents[number], first: int32(number)}
}

func (t *Table) perPage() int { return t.tagWords*ways - 1 }

// Head is that of the record with an index.
func (t *Table) Head(i int) *Head { return (*Head)(unsafe.Pointer(&t.words[t.at(i)])) }

// Record is the head and the numbers of the record with an index.
func (t *Table) Record(i int) (*Head, []uint64) {
	words := t.words[t.at(i):][:t.record:t.record]
	return (*Head)(unsafe.Pointer(&words[0])), words[headWords:]
}

// Numbers are those of the record with an index, 0 in a new one.
func (t *Table) Numbers(i int) []uint64 {
	return t.words[t.at(i):][headWords:t.record:t.record]
}

// at is where a record begins in words.
func (t *Table) at(i int) int { return i>>slotBits*t.page + (i&(slots-1)-1)*t.record }

func (t *Table) tagsOf(page int) []uint64 { return t.tags[page][:t.tagWords] }

// Len is how many records there are.
func (s *Shard) Len() int { return int(s.used) }

// Bytes is how much memory the pages that it uses take, with their tags. None is touched before
// there is a record.
func (s *Shard) Bytes() int {
	if s.used == 0 {
		return 0
	}
	return s.inUse() * (8*s.page + int(unsafe.Sizeof(tagLine{})))
}

// Cap is how many there is room for before many are pushed out.
func (s *Shard) Cap() int { return s.pagesEach * s.perPage() * 12 / 13 }

// full reports whether a page's neighbours, too, are likely to have no room.
func (s *Shard) full() bool { return int(s.used) >= s.pagesEach*s.perPage()*31/32 }

// neighbours is how many pages take in a page's records: itself and, when it is full, those around
// it. Records of an ID come together, so pages fill unevenly; so many of them even that out.
const neighbours = 8

// neighbour is a page's k-th by distance, unless it is not used yet.
func (s *Shard) neighbour(number, k int) (page int, ok bool) {
	if number += k / 2; k%2 != 0 { // below and above in turn
		number -= k
	}
	switch {
	case number < 0:
		number += s.pagesEach
	case number >= s.pagesEach:
		number -= s.pagesEach
	}
	return s.memory(number), number < s.inUse()
}

// memory is where in the table's memory the shard's page with a number is.
func (s *Shard) memory(number int) int { return int(s.first) + s.shards*number }

// home is a record's first choice in its page, and its tag.
func (t *Table) home(hash uint64, class uint32) (slot int, tag uint8) {
	x := hash ^ uint64(class)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return 1 + int(x>>48)*t.perPage()>>16, uint8(x>>40) | 1
}

// Prefetch has the processor fetch what Find will look at first. The shard need not be locked:
// while its lock is on the way from another processor, memory is as well.
func (t *Table) Prefetch(shard int, hash uint64, class uint32) {
	page := shard + t.shards*t.extents[shard].pageOf(hash)
	home, _ := t.home(hash, class)
	prefetch(unsafe.Pointer(&t.tags[page]), unsafe.Pointer(&t.words[t.at(page<<slotBits|home)]))
}

// Find finds a record by its key and the hash of its ID. The index is good until the record is
// removed, pushed out or moved.
func (s *Shard) Find(hash uint64, id *[16]byte, class uint32, kind uint8) (int, bool) {
	number := s.pageOf(hash)
	home, tag := s.home(hash, class)
	page, w := s.memory(number), home/ways
	tags := s.tagsOf(page)
	for m := match(tags[w], tag); m != 0; m &= m - 1 { // most stand there, and need no call
		if i := page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3; s.Head(i).is(id, class,
			kind) {
			return i, true
		}
	}
	for k := 0; k <= probes(tags); k++ {
		if page, ok := s.neighbour(number, k); ok {
			if i, ok := s.search(page, w, tag, id, class, kind); ok {
				return i, true
			}
		}
	}
	return 0, false
}

// search finds a record in a page, from a word of tags on.
func (s *Shard) search(page, w int, tag uint8, id *[16]byte, class uint32, kind uint8) (int, bool) {
	tags := s.tagsOf(page)
	for range tags {
		for m := match(tags[w], tag); m != 0; m &= m - 1 {
			if i := page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3; s.Head(i).is(id, class,
				kind) {
				return i, true
			}
		}
		if match(tags[w], tagEmpty) != 0 {
			break
		}
		if w++; w == len(tags) {
			w = 0
		}
	}
	return 0, false
}

// probes is how far from their page its records stand: no further than this neighbour.
func probes(tags []uint64) int { return int(tags[0] & 0xff / tagProbe) }

func (h *Head) is(id *[16]byte, class uint32, kind uint8) bool {
	return h.Class == class && h.ID == *id && h.Kind == kind
}

// match marks the highest bit of each byte of tags that equals tag.
func match(tags uint64, tag uint8) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	x := tags ^ uint64(tag)*odd
	return ^((x & low) + low | x | low)
}

// Insert makes a record that Find did not find. evicted is the one that had to go, if the shard was
// full there. Records of the same ID come with the same hash.
func (s *Shard) Insert(hash uint64, id *[16]byte, class uint32, kind uint8,
	of EvictionCost) (i int, evicted Head, full bool) {
	number := s.pageOf(hash)
	home, tag := s.home(hash, class)
	i, ok := s.free(number, home)
	if ok {
		s.used++
	} else {
		i = s.victim(s.memory(number)<<slotBits|home, int(hash%ways), of)
		evicted, full = *s.Head(i), true
	}
	s.tag(i, tag)
	h, numbers := s.Record(i)
	*h = Head{ID: *id, Class: class, Kind: kind}
	clear(numbers)
	return i, evicted, full
}

// free finds a free slot for a record: in its page or, while the shard has room, in one of the
// neighbours.
func (s *Shard) free(number, home int) (i int, ok bool) {
	own := s.tagsOf(s.memory(number))
	for k := range min(neighbours, s.pagesEach) {
		if k > 0 && s.full() {
			break
		}
		page, ok := s.neighbour(number, k)
		if !ok {
			continue
		}
		if slot, ok := freeSlot(s.tagsOf(page), home); ok {
			if k > probes(own) {
				own[0] += uint64(k-probes(own)) * tagProbe
			}
			return page<<slotBits | slot, true
		}
	}
	return 0, false
}

// freeSlot finds a free slot in a page: home, its neighbour, which memory brings along, or the
// next.
func freeSlot(tags []uint64, home int) (slot int, ok bool) {
	tags[0] |= tagUsed
	for _, slot := range [...]int{home, home ^ 1} {
		if t := uint8(tags[slot/ways] >> (uint(slot%ways) * 8)); t == tagEmpty ||
			t == tagTombstone {
			return slot, true
		}
	}
	w := home / ways
	for range tags {
		if m := match(tags[w], tagEmpty) | match(tags[w], tagTombstone); m != 0 {
			return w*ways | bits.TrailingZeros64(m)>>3, true
		}
		if w++; w == len(tags) {
			w = 0
		}
	}
	return 0, false
}

func (s *Shard) tag(i int, tag uint8) {
	word, shift := &s.tagsOf(i >> slotBits)[i&(slots-1)/ways], uint(i%ways)*8
	*word = *word&^(0xff<<shift) | uint64(tag)<<shift
}

// An EvictionCost says how much would be lost with the record of an index: 0 if nothing. One of
// highCost or more is not pushed out while there is a lesser one in its page.
type EvictionCost func(i int) float64

// highCost is half of what there is to lose.
const highCost = 0.5

// victim chooses the record that leaves the full page of slot: the record with the least eviction
// cost of those in its word of tags, which have begun to be fetched, or of the page if none of
// those is below highCost.
func (s *Shard) victim(slot, start int, of EvictionCost) int {
	best, least := s.least(slot&^(ways-1), ways, start, of)
	if least >= highCost {
		if b, l := s.least(slot&^(slots-1), s.tagWords*ways, start, of); l < least {
			best = b
		}
	}
	return best
}

// least finds the record with the least eviction cost among n from first on.
func (s *Shard) least(first, n, start int, of EvictionCost) (best int, least float64) {
	best = -1
	for k := range n {
		i := first + (start+k)%n
		if i%slots == 0 { // the tags
			continue
		}
		if stake := of(i); best < 0 || stake < least {
			best, least = i, stake
		}
		if least == 0 {
			break
		}
	}
	return best, least
}

// Remove removes a record.
func (s *Shard) Remove(i int) {
	s.tag(i, tagTombstone)
	s.used--
}

// All ranges over the records.
func (s *Shard) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for number := range s.inUse() {
			page := s.memory(number)
			for w, tags := range s.tagsOf(page) {
				for m := tags & odd; m != 0; m &= m - 1 {
					if !yield(page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3) {
						return
					}
				}
			}
		}
	}
}

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

// Slab keeps values of one kind, each under an index: what belongs to some records only. Its blocks
// are small and stay where they are when more are needed, so that it takes hardly more memory than
// is used. Values that were given back are the next to be taken.
type Slab[T any] struct {
	blocks []*[Block]T
	n      int      // how many there are
	free   []uint16 // of these, those that were given back
}

// Block is how many values are allocated together.
const Block = 8 // blocks of this size have few bytes to spare in the allocator's classes

// At is the value under an index.
func (sl *Slab[T]) At(i int) *T { return &sl.blocks[i/Block][i%Block] }

// Add makes a value.
func (sl *Slab[T]) Add() (i int) {
	if sl.n%Block == 0 {
		sl.blocks = append(sl.blocks, new([Block]T))
	}
	sl.n++
	return sl.n - 1
}

// Take gives out a value that is as it was given back, or else zero. Its index is never 0.
func (sl *Slab[T]) Take() uint16 {
	if last := len(sl.free) - 1; last >= 0 {
		i := sl.free[last]
		sl.free = sl.free[:last]
		return i
	}
	if sl.n == 0 {
		sl.Add()
	}
	return uint16(sl.Add())
}

// Give takes a value back.
func (sl *Slab[T]) Give(i uint16) { sl.free = append(sl.free, i) }

// InUse is how many have been taken and not given back.
func (sl *Slab[T]) InUse() int { return max(sl.n-1, 0) - len(sl.free) }

// Len is how many there are, those that were given back included.
func (sl *Slab[T]) Len() int { return sl.n }

// Free is how many were given back.
func (sl *Slab[T]) Free() int { return len(sl.free) }

// Bytes is what they take.
func (sl *Slab[T]) Bytes() int {
	return len(sl.blocks)*int(unsafe.Sizeof([Block]T{})) + 8*cap(sl.blocks) + 2*cap(sl.free)
}
