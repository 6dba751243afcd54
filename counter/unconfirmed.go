package counter

// unconfirmed is an entry of what is on its way of a counter: hits that the tier has not been told of, hits that it is being told of, and
// open reservations. A counter has one only while there is any of these, so a table pays for it only where something
// happens. Its groups are those of the counter, the newest first.
type unconfirmed struct {
	rule   *Rule
	source Source
	slot   int32
	idle   bool // in use, not queued, and not given out by Dirty to be taken
	queued bool // in shard.dirty
	urgent bool // to be reported at once; else it may wait until its group ends
	aged   bool // groups but the first may be in use; an entry is made and ended without them, which are in other lines of a processor's cache
	held   uint32
	hits   uint32 // pending and in flight, all lanes
	phase  uint16 // the counter's,
	base   uint16 // and the end of its base: until that changes nothing of an entry that is not aged has ended
	groups [maxGroups]unconfirmedGroup
}

// unconfirmedGroup is what of a group the tier has not confirmed: lanes of hits that it has not been told of, and of those that it is being told of.
type unconfirmedGroup struct {
	pending, inFlight uint64
}

// used is the groups that may be in use.
func (k *unconfirmed) used() []unconfirmedGroup {
	if !k.aged {
		return k.groups[:1]
	}
	return k.groups[:]
}

// hasInFlight reports whether any hits are on their way.
func (k *unconfirmed) hasInFlight() bool {
	for _, g := range k.used() {
		if g.inFlight != 0 {
			return true
		}
	}
	return false
}

// hasPending reports whether any hits of groups from the given one on are pending.
func (k *unconfirmed) hasPending(from int) bool {
	for g, u := range k.used() {
		if g >= from && u.pending != 0 {
			return true
		}
	}
	return false
}

// clear leaves of an entry only what says that it is queued.
func (k *unconfirmed) clear() {
	clear(k.used())
	k.rule, k.source, k.idle, k.urgent, k.aged, k.held, k.hits = nil, Source{}, false, false, false, 0, 0
}

// A slab keeps entries in blocks, which stay where they are when more are needed.
type slab struct {
	blocks []*[blockSize]unconfirmed
	n      int // how many there are
}

const (
	blockSize      = 32
	maxUnconfirmed = 1<<15 - 1 // of a shard: their number has 16 bits
)

func (sl *slab) at(w uint16) *unconfirmed { return &sl.blocks[w/blockSize][w%blockSize] }

func (sl *slab) add() (w uint16) {
	if sl.n/blockSize == len(sl.blocks) {
		sl.blocks = append(sl.blocks, new([blockSize]unconfirmed))
	}
	sl.n++
	return uint16(sl.n - 1)
}

// unconfirmedOf gives the counter at i its entry. For hits there are so many at most, and then it is 0; a reservation always has one: there are
// no more of those than requests under way.
func (s *shard) unconfirmedOf(r *Rule, st *store, i int, reserve bool) uint16 {
	h := st.head(i)
	if h.unconfirmed != 0 {
		return h.unconfirmed
	}
	var w uint16
	switch {
	case len(s.free) > 0:
		w = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
	case s.unconfirmed.n <= s.maxUnconfirmed || reserve && s.unconfirmed.n < maxUnconfirmed:
		w = s.unconfirmed.add()
	default:
		return 0
	}
	k := s.unconfirmed.at(w) // zero, as it was made or released
	k.rule, k.source, k.slot = r, h.source(), int32(i)
	k.phase, k.base, k.idle = h.phase, uint16(h.base), true
	if s.activeShards.Load()&s.bit == 0 { // else nobody writes to what all shards share
		s.activeShards.Or(s.bit)
	}
	h.unconfirmed = w
	return w
}

// release gives up the entry of which the counter has gone or goes away. It returns how many hits were still in it, which are lost.
func (s *shard) release(w uint16) (lost uint64) {
	k := s.unconfirmed.at(w)
	lost = uint64(k.hits)
	s.stats.Unreported -= lost
	s.holds -= k.held
	k.clear()
	if !k.queued { // a queued one is freed when it leaves the queue
		s.free = append(s.free, w)
	}
	return lost
}

// releaseEmpty releases an entry in which nothing is left.
func (s *shard) releaseEmpty(w uint16) {
	if k := s.unconfirmed.at(w); k.hits == 0 && k.held == 0 {
		s.store(k.rule).head(int(k.slot)).unconfirmed = 0
		s.release(w)
	}
}

// age makes the groups of an entry older by n; hits that fall off its end are lost.
func (s *shard) age(k *unconfirmed, r *Rule, n int) {
	groups := r.groups()
	for i := max(groups-n, 0); i < groups; i++ {
		lost := r.sum(k.groups[i].pending) + r.sum(k.groups[i].inFlight)
		k.hits -= uint32(lost)
		s.stats.Unreported -= lost
		s.stats.LostExpired += r.sum(k.groups[i].pending)
		s.stats.LostUnknown += r.sum(k.groups[i].inFlight) // whatever their answer is, it comes too late
	}
	shift(k.groups[:groups], min(n, groups))
	k.aged = true
}

// count adds hits to the counter at i and, with a tier, to what it must be told.
func (s *shard) count(t *Table, r *Rule, st *store, i int, at position, hits uint32, estimate float64, now int64) {
	groups := st.groups(i)
	groups[0] = r.add(groups[0], at.lane, uint64(hits))
	s.note(r, st, i, at, hits, estimate)
	if !t.options.Tier {
		return
	}
	if r.lane(groups[0], at.lane) > r.reportMax() {
		s.stats.LostSaturated += uint64(hits)
		return
	}
	w := s.unconfirmedOf(r, st, i, false)
	if w == 0 {
		s.stats.LostBacklog += uint64(hits)
		return
	}
	k := s.unconfirmed.at(w)
	k.rule = r
	k.groups[0].pending = r.add(k.groups[0].pending, at.lane, uint64(hits))
	k.hits += hits
	s.stats.Unreported += uint64(hits)
	k.urgent = k.urgent || s.fewLeft() || t.urgent(r, st.head(i), k.hits, estimate, now)
	if k.urgent && !k.hasInFlight() {
		s.queue(w) // else it is the next report, when the one under way is answered
	}
}

// fewLeft reports whether so few entries are left that hits should not wait in one: strangers of whom nobody will hear again would
// keep them from others until their groups end.
func (s *shard) fewLeft() bool { return 4*(s.unconfirmed.n-len(s.free)) > 3*s.maxUnconfirmed }

func (s *shard) queue(w uint16) {
	if k := s.unconfirmed.at(w); k.idle {
		k.idle, k.queued = false, true
		s.dirty = append(s.dirty, w)
		if len(s.dirty) == 1 {
			s.dirtyShards.Or(s.bit)
			s.wakes = true
		}
	}
}

func (s *shard) hold(a *Ask, l *lookup) bool {
	w := s.unconfirmedOf(a.Rule, l.store, l.i, true)
	if w == 0 {
		return false
	}
	s.unconfirmed.at(w).held += a.Hits
	s.holds += a.Hits
	return true
}

// held is how many hits of a counter are in open reservations. Mostly there are none in the shard, and an entry would have to be
// waited for.
func (s *shard) held(h *head) uint32 {
	if s.holds == 0 || h.unconfirmed == 0 {
		return 0
	}
	return s.unconfirmed.at(h.unconfirmed).held
}

func (s *shard) unhold(st *store, i int, hits uint32) {
	w := st.head(i).unconfirmed
	if w == 0 {
		return
	}
	k := s.unconfirmed.at(w)
	hits = min(hits, k.held)
	k.held -= hits
	s.holds -= hits
	s.releaseEmpty(w)
}
