package counter

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// spread says over how many pages a store's counters are spread: a few at the start, and twice as many whenever those are rather
// full, so that a table takes memory as it fills, and few sources share few pages, which stay in the processor's caches. The
// pages of a size are split one by one, from the last to the first, one for each counter added. A hash falls into pages in its
// own order, so the counters of page j of n belong in pages from j on of the n' that come next, and none of those but j itself
// is yet to be split.
//
// It changes under the shard's lock, and is read without it where a page is only brought to hand.
type spread struct {
	size  atomic.Uint32 // how many pages a hash chooses from
	split atomic.Uint32 // of these, those from here on have been split:
	next  atomic.Uint32 // a hash that falls into one of them chooses from so many
}

// steps is how often a store's pages double until it uses all.
const steps = 5

// begin chooses from a part of the pages.
func (p *spread) begin(pages int) {
	p.double((pages+1<<steps-1)>>steps, pages)
}

// double has all pages of a size, of which none has been split.
func (p *spread) double(size, pages int) {
	p.size.Store(uint32(size))
	p.split.Store(uint32(size))
	p.next.Store(uint32(following(size, pages)))
}

// following is the next size on the way to so many pages.
func following(size, pages int) int {
	for n := steps; n > 0; n-- {
		if next := (pages + 1<<(n-1) - 1) >> (n - 1); next > size {
			return next
		}
	}
	return pages
}

// page is the number of the page that a source's counters belong in.
func (p *spread) page(x uint64) int {
	page, _ := bits.Mul64(x, uint64(p.size.Load()))
	if page >= uint64(p.split.Load()) {
		page, _ = bits.Mul64(x, uint64(p.next.Load()))
	}
	return int(page)
}

// inUse is how many pages may hold counters.
func (p *spread) inUse() int {
	size := p.size.Load()
	if p.split.Load() == size {
		return int(size)
	}
	return int(p.next.Load())
}

// all ranges over the counters.
func (st *store) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for page := range st.inUse() {
			for i := range st.within(st.at(page)) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// within ranges over the counters of a page.
func (st *store) within(page int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, tags := range st.tags(page) {
			for m := tags & 0x0101010101010101; m != 0; m &= m - 1 { // tags of counters are odd
				if !yield(page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3) {
					return
				}
			}
		}
	}
}

// crowded reports whether a page should be split. Pages overflow by chance, and one of more than nine sixteenths in the mean
// would too often.
func (st *store) crowded() bool {
	size := int(st.size.Load())
	return size < st.pages && (int(st.split.Load()) < size || 16*int(st.used) > 9*size*st.perPage())
}

// spreadOut splits a page of the stores that should grow.
func (s *shard) spreadOut(t *Table) {
	s.grows = false
	for _, st := range [...]*store{&s.narrow, &s.wide} {
		if st.crowded() {
			s.grow(t, st)
		}
	}
}

// grow splits a page of a store: its counters, and those of others that stand in it, move to where they belong among more pages.
func (s *shard) grow(t *Table, st *store) {
	number := int(st.split.Load()) - 1
	page := st.at(number)
	var room [2 * slots]moved
	list := room[:0]
	for i := range st.within(page) {
		list = append(list, s.pickUp(st, i))
	}
	for k := 1; k <= reach(st.tags(page)); k++ {
		mate, ok := st.mate(number, k)
		if !ok {
			continue
		}
		for i := range st.within(mate) {
			source := Source{id: st.head(i).id, code: st.head(i).code}
			if st.page(t.hash(&source)) == number {
				list = append(list, s.pickUp(st, i))
				st.tag(i, tagGone)
			}
		}
	}
	st.split.Store(uint32(number))
	clear(st.tags(page))
	st.used -= int32(len(list))
	for k := range list {
		m := &list[k]
		source := Source{id: m.id, code: m.code}
		i := s.insert(st, t.hash(&source), m.rule, source, nil, func(int) float64 { return 0 })
		*st.head(i) = m.head
		copy(st.groups(i), m.lanes[:])
		if m.work != 0 {
			s.works.at(m.work).slot = int32(i)
		}
		if m.fine >= 0 {
			s.link(m.fine, st, i)
		}
	}
	if number == 0 {
		st.double(int(st.next.Load()), st.pages)
	}
}

// pickUp copies a counter that is about to move.
func (s *shard) pickUp(st *store, i int) moved {
	m := moved{head: *st.head(i), fine: -1}
	copy(m.lanes[:], st.groups(i))
	if m.state&hasFine != 0 {
		m.fine = s.unlink(st, i)
	}
	return m
}

// moved is a counter on its way from one page to another.
type moved struct {
	head
	lanes [maxGroups]uint64
	fine  int32 // or -1
}
