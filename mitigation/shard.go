package mitigation

import (
	"cmp"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// A shard is a hash table that is read without a lock: as long as any source is mitigated, every request of every
// source looks into it. An entry is in the first slot after its hash's that was free, and does not change: a change of
// a bit puts another entry into the slot, with mu locked. A slot that an entry left is not free, or those behind it
// would not be found; such slots end when all are laid out anew.
type shard struct {
	slots atomic.Pointer[[]slot] // a power of two of them, of which a quarter or more is free; nil before the first entry
	_     [56]byte               // what all read is on another cache line than what some write

	mu   sync.Mutex
	n    int  // entries
	live bool // one was in force when it came, or at the last sweep
	used int  // slots that are not free
	hand int  // where makeRoom looks next
	max  int  // entries
	_    [16]byte
}

// A slot is 16 bytes. The hash tells most entries apart without reading them.
type slot struct {
	hash  atomic.Uint64 // 0: free
	entry atomic.Pointer[entry]
}

type entry struct {
	key Key
	bit Bit
}

// gone is what a slot holds that an entry has left.
var gone = new(entry)

// find returns the entry of a key, or nil. hash is not 0.
func (s *shard) find(hash uint64, k Key) *entry {
	p := s.slots.Load()
	if p == nil {
		return nil
	}
	slots := *p
	for i := hash; ; i++ {
		at := &slots[i&uint64(len(slots)-1)]
		switch at.hash.Load() {
		case 0:
			return nil
		case hash:
			if e := at.entry.Load(); e != gone && e.key == k {
				return e
			}
		}
	}
}

// put adds an entry, or replaces that of its key. The shard is locked.
func (s *shard) put(hash uint64, e *entry) {
	if s.slots.Load() == nil || 4*s.used >= 3*len(*s.slots.Load()) {
		s.layOut()
	}
	slots := *s.slots.Load()
	for i := hash; ; i++ {
		at := &slots[i&uint64(len(slots)-1)]
		switch old := at.entry.Load(); {
		case old == nil:
			at.entry.Store(e) // before the hash, by which it is found
			at.hash.Store(hash)
			s.used++
			s.n++
			return
		case old != gone && old.key == e.key:
			at.entry.Store(e)
			return
		}
	}
}

// layOut moves the entries to slots of which at most half are used. A reader of the old slots meanwhile finds the old
// entries.
func (s *shard) layOut() {
	size := 16
	for size < 2*(s.n+1) {
		size *= 2
	}
	old, slots := s.slots.Load(), make([]slot, size)
	if old != nil {
		for i := range *old {
			e := (*old)[i].entry.Load()
			if e == nil || e == gone {
				continue
			}
			hash := (*old)[i].hash.Load()
			j := hash
			for slots[j&uint64(size-1)].entry.Load() != nil {
				j++
			}
			slots[j&uint64(size-1)].entry.Store(e)
			slots[j&uint64(size-1)].hash.Store(hash)
		}
	}
	s.used = s.n
	s.slots.Store(&slots)
}

// drop removes the entry of a key and reports whether there was one. The shard is locked.
func (s *shard) drop(hash uint64, k Key) bool {
	e := s.find(hash, k)
	if e == nil {
		return false
	}
	slots := *s.slots.Load()
	for i := hash; ; i++ {
		if at := &slots[i&uint64(len(slots)-1)]; at.entry.Load() == e {
			s.leave(at)
			return true
		}
	}
}

func (s *shard) leave(at *slot) {
	at.entry.Store(gone)
	s.n--
}

// makeRoom drops what has ended or, if nothing has, of a few the one of the least worth that ends first, unless b is worth less. It
// reports whether there is room, and whether what was dropped was in force. The shard is locked and not empty.
func (s *shard) makeRoom(b *Bit, now time.Time) (ok, inForce bool) {
	slots := *s.slots.Load()
	var first *slot
	var least *Bit
	for seen := 0; seen < 16; { // of fewer some are seen again, which does no harm
		s.hand++
		at := &slots[s.hand&(len(slots)-1)]
		e := at.entry.Load()
		if e == nil || e == gone {
			continue
		}
		seen++
		if !now.Before(e.bit.End) {
			s.leave(at)
			return true, false
		}
		if first == nil || cmp.Or(cmp.Compare(e.bit.worth(), least.worth()), e.bit.End.Compare(least.End)) < 0 {
			first, least = at, &e.bit
		}
	}
	if b.worth() < least.worth() {
		return false, false
	}
	s.leave(first)
	return true, true
}

// sweep drops what has ended and is not remembered. The shard is locked.
func (s *shard) sweep(now time.Time) {
	if s.n == 0 {
		s.live = false
		return
	}
	slots := *s.slots.Load()
	live := false
	for i := range slots {
		switch e := slots[i].entry.Load(); {
		case e == nil || e == gone:
		case now.Before(e.bit.End):
			live = true
		case !now.Before(e.bit.forgotten()):
			s.leave(&slots[i])
		}
	}
	s.live = live
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
