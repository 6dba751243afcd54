package counter

import (
	"math/bits"
	"slices"
)

// A store is a set-associative cache, like a processor's: a counter may stand in either of two buckets of eight, so that
// finding it looks at two tags words and, nearly always, one record; and adding one to a full pair of buckets pushes out the
// one of eight that matters least. No chains, no tombstones, no pointers for the garbage collector, nothing to resize.
//
// A counter of 16-bit lanes is one line of a processor's cache: a decision about a source that has not been seen for a
// while waits for memory twice, for the tags and for the record. One of 32-bit lanes is a line and a half.
type store struct {
	narrow []record     // the one or
	wide   []wideRecord // the other
	tags   []uint64     // of a bucket: one byte of hash for each record, 0 where it is empty
	used   int
}

type record struct {
	head
	lanes [narrowGroups]uint64 // the newest group first
}

type wideRecord struct {
	head
	lanes [maxGroups]uint64
}

func (st *store) head(i int) *head {
	if st.wide == nil {
		return &st.narrow[i].head
	}
	return &st.wide[i].head
}

func (st *store) groups(i int) []uint64 {
	if st.wide == nil {
		return st.narrow[i].lanes[:]
	}
	return st.wide[i].lanes[:]
}

// narrowGroups is how many groups of 16-bit lanes a window touches: 13 lanes, four to a group.
const narrowGroups = 4

const ways = 8 // records in a bucket

// aside is how much fuller than the second bucket the first may be for a counter to go home. More leaves more of them at
// home, and pushes more out before the table is full.
const aside = 2

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
	hasFine  = 0x08 // shard.fineOf knows the counter
	heardNow = 0x10 // the tier has answered about the newest group
	readPast = 0x20 // the tier has been asked about the older groups since the newest began
	toldNear = 0x40 // whoever found the counter in the last third of its limit has said so
	toldFull = 0x80 // whoever found it at its limit has said so
)

// bucketsFor is how many buckets hold n counters, and a tenth more so that few are pushed out before there are n.
func bucketsFor(n int) int { return (max(n, 1)*11/10 + ways) / ways }

func (st *store) capacity() int { return len(st.tags) * ways * 10 / 11 }

// place gives the two buckets and the tag of a counter, and its home: the place in the first bucket where it stands if
// that was free.
func (st *store) place(hash uint64, rule uint32) (a, b, home int, tag uint8) {
	x := hash ^ uint64(rule)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	n := uint64(len(st.tags))
	hi, lo := bits.Mul64(x, n)
	y := lo * 0xa0761d6478bd642f
	other, lo := bits.Mul64(y, n)
	return int(hi), int(other), int(hi)*ways + int(y>>3&(ways-1)), uint8(lo>>56) | 1
}

// find finds a counter. Tags and home are read at once, because memory answers several questions as fast as one; a counter
// at home needs no second look.
func (st *store) find(hash uint64, rule uint32, s *Source) (int, bool) {
	a, b, home, tag := st.place(hash, rule)
	tagsA, tagsB := st.tags[a], st.tags[b]
	if h := st.head(home); h.rule == rule && h.is(s) && s.IsValid() { // nobody is like an empty record
		return home, true
	}
	for m := match(tagsA, tag); m != 0; m &= m - 1 {
		i := a*ways + bits.TrailingZeros64(m)>>3
		if h := st.head(i); h.rule == rule && h.is(s) {
			return i, true
		}
	}
	for m := match(tagsB, tag); m != 0; m &= m - 1 {
		i := b*ways + bits.TrailingZeros64(m)>>3
		if h := st.head(i); h.rule == rule && h.is(s) {
			return i, true
		}
	}
	return 0, false
}

func (h *head) is(s *Source) bool { return h.id == s.id && h.code == s.code }

// match marks the highest bit of each byte of tags that may equal tag: all that do, and rarely one more.
func match(tags uint64, tag uint8) uint64 {
	x := tags ^ uint64(tag)*0x0101010101010101
	return (x - 0x0101010101010101) &^ x & 0x8080808080808080
}

// insert makes room for a counter that find did not find. evicted is the work of the one that had to go, or 0.
// keep are counters that are in use and must stay.
func (st *store) insert(hash uint64, rule uint32, s Source, keep []int) (i int, evicted uint16, full bool) {
	a, b, home, tag := st.place(hash, rule)
	freeA, freeB := match(st.tags[a], 0), match(st.tags[b], 0)
	bucket, free := a, freeA
	at, homeFree := bits.OnesCount64(freeA), byte(st.tags[a]>>(uint(home%ways)*8)) == 0
	if n := bits.OnesCount64(freeB); n > at+aside || n > at && !homeFree {
		bucket, free = b, freeB
	}
	switch {
	case bucket == a && homeFree:
		i = home
		st.used++
	case free != 0:
		i = bucket*ways + bits.TrailingZeros64(free)>>3
		st.used++
	default:
		i = st.victim(bucket, int(hash&(ways-1)), keep)
		evicted, full = st.head(i).work, true
	}
	shift := uint(i%ways) * 8
	st.tags[bucket] = st.tags[bucket]&^(0xff<<shift) | uint64(tag)<<shift
	*st.head(i) = head{id: s.id, code: s.code, rule: rule}
	clear(st.groups(i))
	return i, evicted, full
}

// victim chooses who leaves a full bucket: the coldest counter that has no work. If even that was warm, all the others
// cool by as much, so that a source that was near its limit long ago does not stay for ever. keep are not to leave.
func (st *store) victim(bucket, start int, keep []int) int {
	best, least := -1, uint8(0xff)
	for n := range ways {
		i := bucket*ways + (start+n)%ways
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
	if best < 0 { // rules that are asked together fill a bucket by themselves
		return bucket*ways + start
	}
	if least > 0 {
		for i := range ways {
			h := st.head(bucket*ways + i)
			h.state -= min(h.state&heatMask, least)
		}
	}
	return best
}

func (st *store) remove(i int) {
	st.tags[i/ways] &^= 0xff << (uint(i%ways) * 8)
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
func shift(groups []uint64, n int) {
	copy(groups[n:], groups)
	clear(groups[:n])
}
