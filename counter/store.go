package counter

import (
	"math/bits"
)

// A store is a set-associative cache, like a processor's: a counter may stand in either of two buckets of eight, so that
// finding it looks at two tags words and, nearly always, one head; and adding one to a full pair of buckets pushes out the
// one of eight that matters least. No chains, no tombstones, no pointers for the garbage collector, nothing to resize.
type store struct {
	heads  []head
	tags   []uint64 // of a bucket: one byte of hash for each head, 0 where it is empty
	lanes  []uint64 // stride groups for each head, the newest first
	stride int
	used   int
}

// narrowGroups is how many groups of 16-bit lanes a window touches: 13 lanes, four to a group.
const narrowGroups = 4

const ways = 8 // heads in a bucket

// head is what a counter is besides its lanes: 32 bytes.
type head struct {
	id    [16]byte
	rule  uint32
	base  uint32 // the group of the first lanes
	phase uint16
	heard uint16 // when the tier last answered about this counter: see recency
	work  uint16 // index of its work in the shard, or 0
	code  uint8
	state uint8 // heat and flags
}

const (
	heatMask  = 0x07 // how near its limit the counter was when last looked at, in sevenths
	heardOnce = 0x08 // the tier has answered about this counter
	heardNow  = 0x10 // the tier has answered about the newest group
	readPast  = 0x20 // the tier has been asked about the older groups since the newest began
	toldNear  = 0x40 // whoever found the counter in the last quarter of its limit has said so
	toldFull  = 0x80 // whoever found it at its limit has said so
)

// newStore has room for n counters, and a tenth more so that few are pushed out before there are n.
func newStore(n, stride int) store {
	buckets := (max(n, 1)*11/10 + ways) / ways
	return store{
		heads:  make([]head, buckets*ways),
		tags:   make([]uint64, buckets),
		lanes:  make([]uint64, buckets*ways*stride),
		stride: stride,
	}
}

func (st *store) capacity() int { return len(st.heads) * 10 / 11 }

func (st *store) groups(i int) []uint64 { return st.lanes[i*st.stride : (i+1)*st.stride] }

// place gives the two buckets and the tag of a counter.
func (st *store) place(hash uint64, rule uint32) (a, b int, tag uint8) {
	x := hash ^ uint64(rule)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	hi, lo := bits.Mul64(x, uint64(len(st.tags)))
	a = int(hi)
	hi, lo = bits.Mul64(lo*0xa0761d6478bd642f, uint64(len(st.tags)))
	return a, int(hi), uint8(lo>>56) | 1
}

func (st *store) find(hash uint64, rule uint32, s Source) (int, bool) {
	a, b, tag := st.place(hash, rule)
	for _, bucket := range [2]int{a, b} {
		for m := match(st.tags[bucket], tag); m != 0; m &= m - 1 {
			i := bucket*ways + bits.TrailingZeros64(m)>>3
			if h := &st.heads[i]; h.id == s.id && h.rule == rule && h.code == s.code {
				return i, true
			}
		}
	}
	return 0, false
}

// match marks the highest bit of each byte of tags that may equal tag: all that do, and rarely one more.
func match(tags uint64, tag uint8) uint64 {
	x := tags ^ uint64(tag)*0x0101010101010101
	return (x - 0x0101010101010101) &^ x & 0x8080808080808080
}

// insert makes room for a counter that find did not find. evicted is the work of the one that had to go, or 0.
func (st *store) insert(hash uint64, rule uint32, s Source) (i int, evicted uint16, full bool) {
	a, b, tag := st.place(hash, rule)
	freeA, freeB := match(st.tags[a], 0), match(st.tags[b], 0)
	bucket, free := a, freeA
	if bits.OnesCount64(freeB) > bits.OnesCount64(freeA) {
		bucket, free = b, freeB
	}
	if free != 0 {
		i = bucket*ways + bits.TrailingZeros64(free)>>3
		st.used++
	} else {
		i = st.victim(bucket, int(hash&(ways-1)))
		evicted, full = st.heads[i].work, true
	}
	shift := uint(i%ways) * 8
	st.tags[bucket] = st.tags[bucket]&^(0xff<<shift) | uint64(tag)<<shift
	st.heads[i] = head{id: s.id, code: s.code, rule: rule}
	clear(st.groups(i))
	return i, evicted, full
}

// victim chooses who leaves a full bucket: the coldest counter that has no work. If even that was warm, all the others
// cool by as much, so that a source that was near its limit long ago does not stay for ever.
func (st *store) victim(bucket, start int) int {
	heads := st.heads[bucket*ways : (bucket+1)*ways]
	best, least := start, uint8(0xff)
	for n := range ways {
		i := (start + n) % ways
		heat := heads[i].state & heatMask
		if heads[i].work != 0 {
			heat = heatMask + 1
		}
		if heat < least {
			best, least = i, heat
		}
	}
	if least > 0 {
		for i := range heads {
			heads[i].state -= min(heads[i].state&heatMask, least)
		}
	}
	return bucket*ways + best
}

func (st *store) remove(i int) {
	st.tags[i/ways] &^= 0xff << (uint(i%ways) * 8)
	st.heads[i] = head{}
	clear(st.groups(i))
	st.used--
}

// advance moves a counter to the group that a position is in, dropping groups that are too old, and returns the position
// to count at and by how many groups the lanes were shifted.
func (st *store) advance(i int, r *Rule, p position) (at position, moved int) {
	h := &st.heads[i]
	at, moved = r.move(h.base, p)
	if moved > 0 {
		shift(st.groups(i)[:r.groups()], moved)
		h.base = p.group
		h.state &^= heardNow | readPast
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
