package mitigation

import (
	"cmp"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A shard is a hash table that is read without a lock: as long as any source is mitigated, every
// request of every source looks into it. An entry is in the first slot after its hash's that was
// free, and does not change: a change of a bit puts another entry into the slot, with mu locked. A
// slot that an entry left is not free, or those behind it would not be found; such slots end when
// all are laid out anew.
//
// An entry takes 64 bytes, and its slots 34 at most: 21 in a shard that is to be laid out anew
// next.
type shard struct {
	slots atomic.Pointer[[]slot] // of which a quarter or more is free; nil before the first entry
	_     [56]byte               // what all read is on another cache line than what some write

	mu   sync.Mutex
	n    int  // entries
	live bool // one was in force when it came, or at the last sweep
	came bool // one has come that is in force, since the sweep under way has begun with the shard
	used int  // slots that are not free
	hand int  // where makeRoom looks next
	max  int  // entries
	_    [16]byte
}

// A slot is 16 bytes. The hash tells most entries apart without reading them, and the second those
// that have not ended.
type slot struct {
	hash atomic.Uint32 // 0: free
	// by when the bit has ended, in seconds of the table's clock; of a slot that an entry left
	// nothing
	ends  atomic.Uint32
	entry atomic.Pointer[entry]
}

// entry is a key and its bit. Times are those of the table's clock.
type entry struct {
	key                 Key
	start, end, learned int64
	common              *common
}

// common is what bits have in common: those of a rule, by one cause. Entries share it, but for what
// operators say.
type common struct {
	By      By
	Shadow  bool
	Reason  string
	Who     string
	Memory  time.Duration
	Version RuleVersion
}

func (e *entry) forgotten() int64 { return e.end + int64(e.common.Memory) }

// second is the second of the table's clock in which an instant has passed.
func second(at int64) uint32 { return uint32(min(max(at/int64(time.Second)+1, 0), math.MaxUint32)) }

// at is where the slot of a hash is, or those after it.
func at(hash uint32, slots []slot) int { return int(uint64(hash) * uint64(len(slots)) >> 32) }

// next is the slot after i.
func next(i int, slots []slot) int {
	if i++; i == len(slots) {
		return 0
	}
	return i
}

// gone is what a slot holds that an entry has left.
var gone = new(entry)

// find returns the entry of a key, or nil. hash is not 0.
func (s *shard) find(hash uint32, k Key) *entry {
	p := s.slots.Load()
	if p == nil {
		return nil
	}
	slots := *p
	for i := at(hash, slots); ; i = next(i, slots) {
		switch slots[i].hash.Load() {
		case 0:
			return nil
		case hash:
			if e := slots[i].entry.Load(); e != gone && e.key == k {
				return e
			}
		}
	}
}

// put adds an entry, or replaces that of its key. The shard is locked.
func (s *shard) put(hash uint32, e *entry) {
	if s.slots.Load() == nil || 4*s.used >= 3*len(*s.slots.Load()) {
		s.layOut()
	}
	slots := *s.slots.Load()
	for i := at(hash, slots); ; i = next(i, slots) {
		switch old := slots[i].entry.Load(); {
		case old == nil:
			slots[i].ends.Store(second(e.end))
			slots[i].entry.Store(e) // before the hash, by which it is found
			slots[i].hash.Store(hash)
			s.used++
			s.n++
			return
		case old != gone && old.key == e.key:
			slots[i].ends.Store(second(e.end))
			slots[i].entry.Store(e)
			return
		}
	}
}

// leastSlots is how many slots a shard with an entry has at least.
const leastSlots = 64

// layOut moves the entries to slots of which a little less than half are used. A reader of the old
// slots meanwhile finds the old entries.
func (s *shard) layOut() {
	old, slots := s.slots.Load(), make([]slot, max(leastSlots, 21*(s.n+1)/10))
	if old != nil {
		for i := range *old {
			e := (*old)[i].entry.Load()
			if e == nil || e == gone {
				continue
			}
			hash := (*old)[i].hash.Load()
			j := at(hash, slots)
			for slots[j].entry.Load() != nil {
				j = next(j, slots)
			}
			slots[j].ends.Store(second(e.end))
			slots[j].entry.Store(e)
			slots[j].hash.Store(hash)
		}
	}
	s.used = s.n
	s.slots.Store(&slots)
}

// drop removes the entry of a key and reports whether there was one. The shard is locked.
func (s *shard) drop(hash uint32, k Key) bool {
	e := s.find(hash, k)
	if e == nil {
		return false
	}
	slots := *s.slots.Load()
	for i := at(hash, slots); ; i = next(i, slots) {
		if slots[i].entry.Load() == e {
			s.leave(&slots[i])
			return true
		}
	}
}

func (s *shard) leave(at *slot) {
	at.entry.Store(gone)
	s.n--
}

// makeRoom drops what has ended or, if nothing has, of a few the one of the least worth that ends
// first, unless b is worth less. It reports whether there is room, and whether what was dropped was
// in force. The shard is locked and not empty.
func (s *shard) makeRoom(b *common, now int64) (ok, inForce bool) {
	slots := *s.slots.Load()
	var first *slot
	var least *entry
	for seen := 0; seen < 16; { // of fewer some are seen again, which does no harm
		if s.hand++; s.hand >= len(slots) {
			s.hand = 0
		}
		at := &slots[s.hand]
		e := at.entry.Load()
		if e == nil || e == gone {
			continue
		}
		seen++
		if now >= e.end {
			s.leave(at)
			return true, false
		}
		if first == nil || cmp.Or(cmp.Compare(e.common.worth(), least.common.worth()),
			cmp.Compare(e.end, least.end)) < 0 {
			first, least = at, e
		}
	}
	if b.worth() < least.common.worth() {
		return false, false
	}
	s.leave(first)
	return true, true
}

// sweepSlice is how much a slice of a sweep is: so many slots, or a sixteenth as many entries,
// which are read only if they have ended. It is a tenth of a millisecond or so.
const sweepSlice = 1 << 14

// sweep is where the next slice of a sweep begins.
type sweep struct {
	mu    sync.Mutex
	shard int
	slot  int
	slots *[]slot // in which it has begun with the shard
	live  bool    // of those before slot one is in force
}

// sweep goes on with a shard, which is locked, drops what has ended and is not remembered, and
// returns how much is left to do of the slice; 0: not all of the shard was swept.
func (s *shard) sweep(w *sweep, left int, now int64) int {
	if s.n == 0 {
		s.live, w.slot = false, 0
		return left
	}
	p := s.slots.Load()
	if w.slot == 0 || w.slots != p {
		w.slots, w.slot, w.live, s.came = p, 0, false, false
	}
	for slots := *p; w.slot < len(slots); w.slot++ {
		if left <= 0 {
			return 0
		}
		left--
		switch e := slots[w.slot].entry.Load(); {
		case e == nil || e == gone:
		case slots[w.slot].ends.Load() > second(now):
			w.live = true
		default:
			left -= 16
			switch {
			case now < e.end:
				w.live = true
			case now >= e.forgotten():
				s.leave(&slots[w.slot])
			}
		}
	}
	s.live = w.live || s.came
	w.slot = 0
	return max(left, 1)
}

// all ranges over the entries.
func (s *shard) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		p := s.slots.Load()
		if p == nil {
			return
		}
		for i := range *p {
			if e := (*p)[i].entry.Load(); e != nil && e != gone && !yield(e) {
				return
			}
		}
	}
}
