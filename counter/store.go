package counter

import (
	"unsafe"

	"sluice/counter/algorithm"
	"sluice/counter/internal/records"
)

// A store has a shard's counters of one width: a record each, with a number for each group of
// lanes, the newest first.
type store struct{ records.Shard }

// head is what a counter is besides its lanes. Its layout is that of records.Head, where package
// records finds the key.
type head struct {
	id    [16]byte
	rule  uint32
	code  uint8
	state uint8 // flags
	// When the tier last answered about this counter, 0: never, and a flag; see reply.go
	lastReply   uint16
	phase       uint16 // and in its lowest bits the bin of the first hit: see first
	unconfirmed uint16 // index of its entry in the shard, or 0
	base        uint32 // the group of the first lanes
}

// Flags of head.state; reply.go says what they are for.
const (
	active = 1 << iota
	hasHistogram
	repliedNow
	readPast
	announcedUnit // announced is three bits
	announced     = 7 * announcedUnit
)

// headOf is a record's head as a counter's.
func headOf(h *records.Head) *head { return (*head)(unsafe.Pointer(h)) }

// first is the bin of a counter's first hit, if it had no histogram yet; 0: that is not known.
func (h *head) first() int { return int(h.phase &^ algorithm.PhaseBits) }

func (h *head) setFirst(bin int) { h.phase = h.phase&algorithm.PhaseBits | uint16(bin) }

func (h *head) source() Source { return Source{id: h.id, code: h.code} }

func (st *store) head(i int) *head { return headOf(st.Head(i)) }

func (st *store) groups(i int) []uint64 { return st.Numbers(i) }

// record is head and groups at once.
func (st *store) record(i int) (*head, []uint64) {
	h, groups := st.Record(i)
	return headOf(h), groups
}

func (st *store) find(hash uint64, rule uint32, s *Source) (int, bool) {
	return st.Find(hash, &s.id, rule, s.code)
}

// advance moves a counter to the group that a position is in, dropping groups that are too old, and
// returns the position to count at and by how many groups the lanes were shifted.
func (st *store) advance(i int, r *algorithm.Spec,
	p algorithm.Position) (at algorithm.Position, moved int) {
	h, groups := st.record(i)
	if h.base == p.Group {
		return p, 0
	}
	at, moved = r.Move(h.base, p)
	if moved > 0 {
		r.Age(groups, int32(p.Group-h.base), moved)
		h.base = p.Group
		h.turn(moved, r.Groups())
	}
	return at, moved
}

// The compiler checks here that head has the layout of records.Head.
const (
	_ = -(unsafe.Sizeof(head{}) ^ unsafe.Sizeof(records.Head{}))
	_ = -(unsafe.Offsetof(head{}.rule) ^ unsafe.Offsetof(records.Head{}.Class))
	_ = -(unsafe.Offsetof(head{}.code) ^ unsafe.Offsetof(records.Head{}.Kind))
	_ = -(unsafe.Offsetof(head{}.state) ^ unsafe.Offsetof(records.Head{}.Own))
)
