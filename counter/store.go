package counter

import (
	"math/bits"
	"slices"
	"unsafe"
)

// A store is a set-associative cache, like a processor's: the counters of a source stand in one page of memory, which its hash
// chooses, each of them often at home, where the hash and the rule put it if that is free. A page has a line of tags, a byte of hash for
// each of its records. So a decision about a source that has not been seen for a while waits for memory about once, by however many
// rules: the tags and the records that are at home are read at the same time. A source that finds its page full goes to one of a few
// others; when the store as a whole is full, a new counter pushes out the one of eight that matters least. No chains, no pointers for
// the garbage collector, nothing to resize: a store that is not full uses the first of its pages only, and spreads to more as it
// fills (grow.go).
type store struct {
	*memory
	*spread       // how many of its pages it uses
	first   int32 // these are its pages: first, first+stride, and so on, so that all shards together use the first pages
	used    int32 // records
}

// memory is one piece for the stores of all shards, of which nothing is touched before it is used.
type memory struct {
	narrow  []page     // the one or
	wide    []widePage // the other
	lines   []tagLine  // and their tags. Within the pages all of them would compete for a few sets of the processor's caches
	fines   []int32    // for each page the first fine of its counters: one more than the index in shard.fines, or 0
	spreads []spread   // of the shards, close together: every decision begins there
	words   int        // of tags of a page
	stride  int        // shards
	pages   int        // how many a shard may use
}

// A page of 63 counters and its tags are as much as one of the processor's pages. Each record has a line of its cache to itself.
type page struct{ records [63]record }

type tagLine [8]uint64

type record struct {
	head
	lanes [narrowGroups]uint64 // the newest group first
}

type widePage struct{ records [39]wideRecord }

type wideRecord struct {
	head
	lanes [maxGroups]uint64
}

// Tags that are no hash; those are odd. A page's first tag is no record's.
const (
	tagEmpty = 0
	tagSelf  = 2
	tagGone  = 4 // empty, but its word of tags was full: counters that did not fit may stand in the next
	tagReach = 8 // tagSelf and so many of these: see reach
)

const (
	slotBits = 6 // a counter's index is its page's, and in the lowest bits its tag's place in that
	slots    = 1 << slotBits
	ways     = 8 // tags in a word, and so who competes to stay
)

func (m *memory) head(i int) *head {
	if m.wide == nil {
		return &m.narrow[i>>slotBits].records[i&(slots-1)-1].head
	}
	return &m.wide[i>>slotBits].records[i&(slots-1)-1].head
}

func (m *memory) groups(i int) []uint64 {
	if m.wide == nil {
		return m.narrow[i>>slotBits].records[i&(slots-1)-1].lanes[:]
	}
	return m.wide[i>>slotBits].records[i&(slots-1)-1].lanes[:]
}

// record is head and groups at once.
func (m *memory) record(i int) (*head, []uint64) {
	if m.wide == nil {
		r := &m.narrow[i>>slotBits].records[i&(slots-1)-1]
		return &r.head, r.lanes[:]
	}
	r := &m.wide[i>>slotBits].records[i&(slots-1)-1]
	return &r.head, r.lanes[:]
}

func (m *memory) tags(page int) []uint64 { return m.lines[page][:m.words] }

// narrowGroups is how many groups of 16-bit lanes a window touches: 13 lanes, four to a group.
const narrowGroups = 4

// head is what a counter is besides its lanes: 32 bytes.
type head struct {
	id        [16]byte
	rule      uint32
	base      uint32 // the group of the first lanes
	phase     uint16
	lastReply uint16 // when the tier last answered about this counter, 0: never, and two flags; see standing.go
	work      uint16 // index of its work in the shard, or 0
	code      uint8
	state     uint8 // flags
}

// Flags of head.state; standing.go says what they are for.
const (
	warm = 1 << iota
	hasFine
	repliedNow
	readPast
	announcedNear
	announcedFull
)

// pagesFor is how many pages hold n counters with a twelfth to spare, so that few are pushed out before there are n: 72 bytes for
// each narrow counter.
func pagesFor(n, perPage int) int { return max((13*n+12*perPage-1)/(12*perPage), 1) }

// newMemory is room for so many counters in each of so many shards, the pages themselves excepted.
func newMemory(counters, shards, perPage int) *memory {
	m := &memory{words: (perPage + ways) / ways, stride: shards, pages: pagesFor(counters, perPage)}
	m.lines, m.fines = make([]tagLine, shards*m.pages), make([]int32, shards*m.pages)
	m.spreads = make([]spread, shards)
	for i := range m.spreads {
		m.spreads[i].begin(m.pages)
	}
	return m
}

// store is that of a shard.
func (m *memory) store(shard int) store {
	return store{memory: m, spread: &m.spreads[shard], first: int32(shard)}
}

func (m *memory) perPage() int { return m.words*ways - 1 }

func (st *store) capacity() int { return st.pages * st.perPage() * 12 / 13 }

// full reports whether a page's mates, too, are likely to have no room.
func (st *store) full() bool { return int(st.used) >= st.pages*st.perPage()*31/32 }

// mates is how many pages take in a page's counters: itself and, when it is full, its neighbours.
// Sources come with all their rules, so pages fill unevenly; so many of them even that out.
const mates = 8

// mate is a page's neighbour, the k-th by distance, unless it is not used yet.
func (st *store) mate(number, k int) (page int, ok bool) {
	if number += k / 2; k%2 != 0 { // below and above in turn
		number -= k
	}
	switch {
	case number < 0:
		number += st.pages
	case number >= st.pages:
		number -= st.pages
	}
	return st.at(number), number < st.inUse()
}

// at is where in memory the page with a number is.
func (st *store) at(number int) int { return int(st.first) + st.stride*number }

// home is a counter's first choice in its page, and its tag.
func (m *memory) home(hash uint64, rule uint32) (slot int, tag uint8) {
	x := hash ^ uint64(rule)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return 1 + int(x>>48)*m.perPage()>>16, uint8(x>>40) | 1
}

// bring fetches what find will look at first. The shard need not be locked: while its lock is on the way from another
// processor, memory is as well.
func (m *memory) bring(shard int, hash uint64, rule uint32) {
	page := shard + m.stride*m.spreads[shard].page(hash)
	home, _ := m.home(hash, rule)
	prefetch(unsafe.Pointer(&m.lines[page]), unsafe.Pointer(m.head(page<<slotBits|home)))
}

// find finds a counter. Nothing depends on a record before its tag is known to match: a processor that guesses that the counter
// is at home reads the tags and the record at once, and would wait for a wrong record in vain.
func (st *store) find(hash uint64, rule uint32, s *Source) (int, bool) {
	number := st.page(hash)
	home, tag := st.home(hash, rule)
	page, w := st.at(number), home/ways
	tags := st.tags(page)
	if i := page<<slotBits | home; uint8(tags[w]>>(uint(home%ways)*8)) == tag && st.head(i).is(rule, s) {
		return i, true
	}
	for m := match(tags[w], tag); m != 0; m &= m - 1 {
		if i := page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3; st.head(i).is(rule, s) {
			return i, true
		}
	}
	if match(tags[w], tagEmpty) != 0 { // it never was full, so nobody stands elsewhere
		return 0, false
	}
	for k := 0; k <= reach(tags); k++ {
		if page, ok := st.mate(number, k); ok {
			if i, ok := st.search(page, w, tag, rule, s); ok {
				return i, true
			}
		}
	}
	return 0, false
}

// search finds a counter in a page, from a word of tags on.
func (st *store) search(page, w int, tag uint8, rule uint32, s *Source) (int, bool) {
	tags := st.tags(page)
	for range tags {
		for m := match(tags[w], tag); m != 0; m &= m - 1 {
			if i := page<<slotBits | w*ways | bits.TrailingZeros64(m)>>3; st.head(i).is(rule, s) {
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

// reach is how far from their page its counters stand: no further than this mate.
func reach(tags []uint64) int { return int(tags[0] & 0xff / tagReach) }

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
func (st *store) insert(hash uint64, rule uint32, s Source, keep []int, of stake) (i int, evicted head, full bool) {
	number := st.page(hash)
	home, tag := st.home(hash, rule)
	i, ok := st.free(number, home)
	if ok {
		st.used++
	} else {
		i = st.victim(st.at(number)<<slotBits|home, int(hash%ways), keep, of)
		evicted, full = *st.head(i), true
	}
	st.tag(i, tag)
	*st.head(i) = head{id: s.id, code: s.code, rule: rule}
	clear(st.groups(i))
	return i, evicted, full
}

// free finds a free place for a counter: in its page or, while the store has room, in one of the page's mates.
func (st *store) free(number, home int) (i int, ok bool) {
	own := st.tags(st.at(number))
	for k := range min(mates, st.pages) {
		if k > 0 && st.full() {
			break
		}
		page, ok := st.mate(number, k)
		if !ok {
			continue
		}
		if slot, ok := freeSlot(st.tags(page), home); ok {
			if k > reach(own) {
				own[0] += uint64(k-reach(own)) * tagReach
			}
			return page<<slotBits | slot, true
		}
	}
	return 0, false
}

// freeSlot finds a free place in a page: home, its neighbour, which memory brings along, or the next.
func freeSlot(tags []uint64, home int) (slot int, ok bool) {
	tags[0] |= tagSelf
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

// A stake is how much would be lost with a counter: the share of its limit that is used, more than all if requests have reserved of it.
type stake func(i int) float64

// spared is the share of its limit from which on a counter is not pushed out while there is another in its page.
const spared = 0.5

// victim chooses who leaves the full page of slot: the counter with the least stake of those in its word of tags, which have begun to be
// fetched, or of the page if those all are near their limits. keep are not to leave.
func (st *store) victim(slot, start int, keep []int, of stake) int {
	first := slot &^ (ways - 1)
	best, least := st.least(first, ways, start, keep, of)
	if best < 0 || least >= spared {
		if b, l := st.least(slot&^(slots-1), st.words*ways, start, keep, of); b >= 0 && (best < 0 || l < least) {
			best = b
		}
	}
	if best < 0 { // rules that are asked together fill all the places by themselves
		return max(first, slot&^(slots-1)+1)
	}
	return best
}

// least finds the counter with the least stake among n from first on.
func (st *store) least(first, n, start int, keep []int, of stake) (best int, least float64) {
	best = -1
	for k := range n {
		i := first + (start+k)%n
		if i%slots == 0 || slices.Contains(keep, i) { // the tags
			continue
		}
		if st.head(i).state&warm == 0 && st.head(i).work == 0 {
			return i, 0
		}
		if s := of(i); best < 0 || s < least {
			best, least = i, s
		}
	}
	return best, least
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
	h, groups := st.record(i)
	if h.base == p.group {
		return p, 0
	}
	at, moved = r.move(h.base, p)
	if moved > 0 {
		shift(groups[:r.groups()], moved)
		h.base = p.group
		h.turn(moved, r.groups())
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
