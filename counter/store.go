package counter

import (
	"math/bits"
	"slices"
)

// A store is a set-associative cache, like a processor's: a counter stands in one page of memory, which a hash chooses, and in
// that page nearly always at home, where the hash puts it if that is free. The page begins with a line of tags, a byte of hash
// for each of its records. So a decision about a source that has not been seen for a while waits for memory about once: for a
// page, in which the tags and, if it is at home, the record are read at the same time. Adding a counter to a full page pushes
// out the one of eight that matters least. No chains, no pointers for the garbage collector, nothing to resize: a store that
// is not full uses the first of its pages only, and spreads to more as it fills (grow.go).
type store struct {
	narrow []page     // the one or
	wide   []widePage // the other: the pages of all shards
	words  int        // of tags in a page
	first  int        // this shard's pages: first, first+stride, and so on, so that all shards together use the first pages
	stride int
	pages  int     // how many it may use
	spread         // how many it does use
	used   int     // records
	fines  []int32 // for each page the first fine of its counters: one more than the index in shard.fines, or 0
}

// A page of 63 counters is one of the processor's pages. Each record has a line of its cache to itself.
type page struct {
	tags    [8]uint64
	records [63]record
}

type record struct {
	head
	lanes [narrowGroups]uint64 // the newest group first
}

type widePage struct {
	tags    [5]uint64
	records [39]wideRecord
}

type wideRecord struct {
	head
	lanes [maxGroups]uint64
}

// Tags that are no hash; those are odd. A page's first tag stands for the tags themselves.
const (
	tagEmpty = 0
	tagSelf  = 2
	tagGone  = 4 // empty, but its word of tags was full: counters that did not fit may stand in the next
)

const (
	slotBits = 6 // a counter's index is its page's, and in the lowest bits its tag's place in that
	slots    = 1 << slotBits
	ways     = 8 // tags in a word, and so who competes to stay
)

func (st *store) head(i int) *head {
	if st.wide == nil {
		return &st.narrow[i>>slotBits].records[i&(slots-1)-1].head
	}
	return &st.wide[i>>slotBits].records[i&(slots-1)-1].head
}

func (st *store) groups(i int) []uint64 {
	if st.wide == nil {
		return st.narrow[i>>slotBits].records[i&(slots-1)-1].lanes[:]
	}
	return st.wide[i>>slotBits].records[i&(slots-1)-1].lanes[:]
}

func (st *store) tags(page int) []uint64 {
	if st.wide == nil {
		return st.narrow[page].tags[:]
	}
	return st.wide[page].tags[:]
}

// narrowGroups is how many groups of 16-bit lanes a window touches: 13 lanes, four to a group.
const narrowGroups = 4

// head is what a counter is besides its lanes: 32 bytes.
type head struct {
	id    [16]byte
	rule  uint32
	base  uint32 // the group of the first lanes
	phase uint16
	heard uint16 // when the tier last answered about this counter, 0: never, and a flag; see recency
	work  uint16 // index of its work in the shard, or 0
	code  uint8
	state uint8 // heat and flags
}

const (
	heatMask = 0x07 // how near its limit the counter was when last looked at, in sevenths
	hasFine  = 0x08 // the counter is among store.fines
	heardNow = 0x10 // the tier has answered about the newest group
	readPast = 0x20 // the tier has been asked about the older groups since the newest began
	toldNear = 0x40 // whoever found the counter in the last third of its limit has said so
	toldFull = 0x80 // whoever found it at its limit has said so
)

// pagesFor is how many pages hold n counters with a tenth to spare, so that few are pushed out before there are n: 72 bytes for
// each narrow counter.
func pagesFor(n, perPage int) int {
	sparse := perPage * 12 / 13
	return max((n*11+perPage*5)/(perPage*10), (n+sparse-1)/sparse, 1)
}

func (st *store) perPage() int { return st.words*ways - 1 }

func (st *store) capacity() int { return st.pages * st.perPage() * 10 / 11 }

// place gives a counter's page, its home there, and its tag.
func (st *store) place(hash uint64, rule uint32) (page, home int, tag uint8) {
	x := hash ^ uint64(rule)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	y := x * 0xa0761d6478bd642f
	return st.first + st.stride*st.spread.page(x), 1 + int(y>>48)*st.perPage()>>16, uint8(y>>32) | 1
}

// find finds a counter. Nothing depends on a record before its tag is known to match: a processor that guesses that the counter
// is at home reads the tags and the record at once, and would wait for a wrong record in vain.
func (st *store) find(hash uint64, rule uint32, s *Source) (int, bool) {
	page, home, tag := st.place(hash, rule)
	tags, w := st.tags(page), home/ways
	if i := page<<slotBits | home; uint8(tags[w]>>(uint(home%ways)*8)) == tag && st.head(i).is(rule, s) {
		return i, true
	}
	for range tags {
		for m := match(tags[w], tag); m != 0; m &= m - 1 {
			if i := page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3; st.head(i).is(rule, s) {
				return i, true
			}
		}
		if match(tags[w], tagEmpty) != 0 { // it never was full, so nobody stands behind it
			break
		}
		if w++; w == len(tags) {
			w = 0
		}
	}
	return 0, false
}

func (h *head) is(rule uint32, s *Source) bool {
	return h.rule == rule && h.id == s.id && h.code == s.code
}

// match marks the highest bit of each byte of tags that may equal tag: all that do, and rarely one more.
func match(tags uint64, tag uint8) uint64 {
	x := tags ^ uint64(tag)*0x0101010101010101
	return (x - 0x0101010101010101) &^ x & 0x8080808080808080
}

// insert makes room for a counter that find did not find. evicted is the one that had to go, if the store was full there.
// keep are counters that are in use and must stay.
func (st *store) insert(hash uint64, rule uint32, s Source, keep []int) (i int, evicted head, full bool) {
	page, home, tag := st.place(hash, rule)
	slot, ok := freeSlot(st.tags(page), home)
	if ok {
		i = page<<slotBits | slot
		st.used++
	} else {
		i = st.victim(page<<slotBits|home&^(ways-1), int(hash%ways), keep)
		evicted, full = *st.head(i), true
	}
	st.tag(i, tag)
	*st.head(i) = head{id: s.id, code: s.code, rule: rule}
	clear(st.groups(i))
	return i, evicted, full
}

// freeSlot finds a free place in a page: home, its neighbour, which memory brings along, or the next.
func freeSlot(tags []uint64, home int) (slot int, ok bool) {
	tags[0] = tags[0]&^0xff | tagSelf
	for _, slot := range [...]int{home, home ^ 1} {
		if t := uint8(tags[slot/ways] >> (uint(slot%ways) * 8)); t == tagEmpty || t == tagGone {
			return slot, true
		}
	}
	w := home / ways
	for range tags {
		if m := match(tags[w], tagEmpty) | match(tags[w], tagGone); m != 0 {
			return w*ways | bits.TrailingZeros64(m)>>3, true
		}
		if w++; w == len(tags) {
			w = 0
		}
	}
	return 0, false
}

func (st *store) tag(i int, tag uint8) {
	word, shift := &st.tags(i >> slotBits)[i&(slots-1)/ways], uint(i%ways)*8
	*word = *word&^(0xff<<shift) | uint64(tag)<<shift
}

// victim chooses who leaves a full page, among the eight from first on: the coldest counter that has no work. If even that
// was warm, all the others cool by as much, so that a source that was near its limit long ago does not stay for ever. keep are
// not to leave.
func (st *store) victim(first, start int, keep []int) int {
	best, least := -1, uint8(0xff)
	for n := range ways {
		i := first + (start+n)%ways
		if i%slots == 0 { // the tags
			continue
		}
		h := st.head(i)
		heat := h.state & heatMask
		switch {
		case slices.Contains(keep, i):
			continue
		case h.work != 0:
			heat = heatMask + 1
		}
		if heat < least {
			best, least = i, heat
		}
	}
	if best < 0 { // rules that are asked together fill all the places by themselves
		return first + max(start, 1)
	}
	if least > 0 {
		for i := first; i < first+ways; i++ {
			if i%slots == 0 {
				continue
			}
			h := st.head(i)
			h.state -= min(h.state&heatMask, least)
		}
	}
	return best
}

func (st *store) remove(i int) {
	st.tag(i, tagGone)
	*st.head(i) = head{}
	clear(st.groups(i))
	st.used--
}

// advance moves a counter to the group that a position is in, dropping groups that are too old, and returns the position
// to count at and by how many groups the lanes were shifted.
func (st *store) advance(i int, r *Rule, p position) (at position, moved int) {
	h := st.head(i)
	at, moved = r.move(h.base, p)
	if moved > 0 {
		shift(st.groups(i)[:r.groups()], moved)
		h.base = p.group
		h.turn(moved)
	}
	return at, moved
}

// move says by how many groups the lanes of a counter whose newest group is base must be shifted for a position, and where
// to count then. A clock that stepped back by less than a window stays in the newest group that the counter has seen; one
// that stepped back by more starts the counter anew.
func (r *Rule) move(base uint32, p position) (at position, by int) {
	d := int(int32(p.group - base))
	switch n := r.groups(); {
	case d == 0:
		return p, 0
	case d > 0 && d < n:
		return p, d
	case d < 0 && -d < n:
		return position{group: base}, 0
	default:
		return p, n
	}
}

// shift makes groups older by n places.
func shift[G any](groups []G, n int) {
	copy(groups[n:], groups)
	clear(groups[:n])
}
