package counter

import (
	"sync"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/round"
	"sluice/counter/internal/unconfirmed"
)

// ranks are the rounds of a counter: the hits that are being reported, and those that go with the next report.
type ranks struct {
	sent, next *ranked
	held       uint32 // hits that the origin's answers may still take back
}

// ranked is a round of hits, and what is known of the counter that they are ranked in.
type ranked struct {
	round.Round
	keeps bool  // hits beyond the limit count as well
	holds bool  // hits within the limit are held until their answers
	began int64 // on the table's clock

	group   uint32 // of the newest hits,
	hits    uint64 // which are these lanes, of several reports if one may not say them all
	upTo    uint32 // the newest group that is read
	total   uint64 // of the group, as the tier counted them, less
	back    uint64 // what was taken back meanwhile
	ahead   uint64 // hits in the group after it
	counted bool   // total is known
	read    bool   // the other groups are
	settled bool   // no edge writes to groups but the newest
	older   uint64 // hits in the group before
	several bool   // the hits are in several groups, and those in the newest were counted first
	late    uint32 // hits that were cancelled before the answer came, which takes them back
}

// mostRound is how long a report may be under way before its requests are given up and the next one is sent: longer
// than any request waits.
const mostRound = int64(time.Second)

// unsettled is how long before and after a group begins edges may write to both: their clocks may be two seconds apart,
// and their writes may be under way.
const unsettled = int64(2*time.Second) + mostRound

// Back is hits to be taken back from the tier. Hits are packed lanes of a group.
type Back struct {
	Counter
	Group uint32
	Hits  uint64
}

type backs struct {
	mu   sync.Mutex
	list []Back
}

// TakeBacks appends to buf the hits to take back from the tier, and forgets them. If they are lost on their way, they
// count as long as their sub-window does.
func (t Reports) TakeBacks(buf []Back) []Back {
	t.backs.mu.Lock()
	defer t.backs.mu.Unlock()
	buf = append(buf, t.backs.list...)
	t.backs.list = t.backs.list[:0]
	return buf
}

// readTotal corrects a number of the tier: under a rule with Sync more hits may have been taken from it than were
// there, or all. What no edge can have written counts as nothing.
func readTotal(r *algorithm.Spec, total uint64) uint64 {
	if r.Sync {
		return r.Lanes().Repay(total)
	}
	if Forged(r, total) {
		return 0
	}
	return total
}

// renew replaces the known hits of a group by the tier's answer, under a rule with Sync: hits may have been taken back.
func renew(r *algorithm.Spec, groups []uint64, g int) {
	if r.Sync {
		groups[g] = 0
	}
}

// ranksOf is the rounds of a counter, or nil.
func (s *shard) ranksOf(r *algorithm.Spec, source Source) *ranks {
	if !r.Sync || len(s.ranks) == 0 {
		return nil
	}
	return s.ranks[Key{source, r.ID}]
}

// maxBacks bounds the hits that wait to be taken back: they are no more than the requests under way, unless nothing
// takes them.
const maxBacks = 1 << 16

// takeBack takes back hits of a group, packed lanes that are known to be there.
func (s *shard) takeBack(t *core, c Counter, groups []uint64, g int, group uint32, hits uint64) {
	groups[g] = c.Rule.Lanes().Minus(groups[g], hits)
	if q := s.ranksOf(c.Rule, c.Source); q != nil && q.sent != nil && q.sent.group == group {
		q.sent.back = c.Rule.Lanes().Plus(q.sent.back, hits)
	}
	t.backs.mu.Lock()
	if len(t.backs.list) < maxBacks {
		t.backs.list = append(t.backs.list, Back{c, group, hits})
	}
	t.backs.mu.Unlock()
	s.wakes = true
}

// drop forgets rounds that are over.
func (s *shard) drop(key Key, q *ranks) {
	if q.sent == nil && q.next == nil && q.held == 0 {
		delete(s.ranks, key)
	}
}

// ranking reports whether a report is under way for which requests wait. A report that has been under way for too long
// is given up.
func (s *shard) ranking(r *algorithm.Spec, source Source, now int64) bool {
	q := s.ranksOf(r, source)
	if q == nil || q.sent == nil {
		return false
	}
	if now-q.sent.began < mostRound {
		return true
	}
	q.sent.End()
	q.sent = nil
	return false
}

// send lets requests that wait for the next report wait for this one, if it has all that is pending, and sets what is
// read with it. It reports whether the rule has rounds.
func (s *shard) send(t *core, k *unconfirmed.Entry, c Counter, rep *Report, h *head, groups []uint64, at algorithm.Position, now int64) bool {
	q := s.ranksOf(c.Rule, c.Source)
	if q == nil || q.next == nil {
		return c.Rule.Sync
	}
	b := q.next
	if b.group != rep.Parts[0].Group {
		b.group, b.hits = rep.Parts[0].Group, 0
	}
	b.hits = c.Rule.Lanes().Plus(b.hits, rep.Parts[0].Hits)
	if s.unconfirmed.HasPending(k) {
		return true
	}
	q.sent, q.next = b, nil
	b.began, b.upTo = now, h.base+1
	since := int64((float64(at.Lane) + at.Gone) * float64(c.Rule.SubWindow()))
	if b.several = rep.N > 1; b.several && rep.Parts[1].Group == b.group-1 {
		b.older = rep.Parts[1].Hits
	}
	b.settled = !b.several && since > unsettled && int64(c.Rule.Group())-since > unsettled
	fixed := b.settled && (!b.holds || onlyNewest(c.Rule, groups)) // otherwise an answer may have taken hits back
	if fixed && h.state&readPast != 0 && !h.refreshes(now) && !t.stale(h, now) {
		b.read = true
		return true
	}
	rep.Past, rep.Newest, rep.WriteFirst = true, h.base+2, !b.settled
	return true
}

// countedRound notes the tier's total of the group of a round, and returns it without what this table has taken back
// since the report was sent: that reaches the node later.
func (s *shard) countedRound(c Counter, group uint32, total uint64) uint64 {
	q := s.ranksOf(c.Rule, c.Source)
	if q == nil || q.sent == nil || q.sent.group != group {
		return total
	}
	b := q.sent
	b.counted, b.total, b.back = true, c.Rule.Lanes().Minus(c.Rule.Lanes().Clamp(total), b.back), 0
	return b.total
}

// readRound notes what was read for a round. The group after the newest is not in the table yet.
func (s *shard) readRound(c Counter, h *head, newest uint32, groups []uint64) {
	q := s.ranksOf(c.Rule, c.Source)
	if q == nil || q.sent == nil || q.sent.upTo != newest {
		return
	}
	b := q.sent
	if i := newest - b.group; b.several && int(i) < len(groups) {
		b.total = max(b.total, readTotal(c.Rule, groups[i])) // others may have counted between its groups: they come first
	}
	if b.read = true; h.base != newest {
		b.ahead = c.Rule.Lanes().Sum(readTotal(c.Rule, groups[0]))
		if b.settled {
			h.state |= readPast
		}
	}
}

// cancelled is which hits of a part that did not reach the tier were cancelled before that was known.
func (s *shard) cancelled(c Counter, p Part) uint64 {
	q := s.ranksOf(c.Rule, c.Source)
	if q == nil || q.sent == nil || q.sent.late == 0 {
		return 0
	}
	hits := c.Rule.Lanes().Last(p.Hits, uint64(q.sent.late))
	q.sent.late -= uint32(c.Rule.Lanes().Sum(hits))
	return hits
}

// giveUp ends the wait for a report that failed: each request goes by its rule's posture.
func (s *shard) giveUp(c Counter) {
	switch q := s.ranksOf(c.Rule, c.Source); {
	case q == nil:
	case q.sent != nil:
		q.sent.End()
		q.sent = nil
		s.drop(Key{c.Source, c.Rule.ID}, q)
	case q.next != nil:
		q.next.hits = 0 // some of them are not there
	}
}

// rank decides which requests of a round are within the limit, once all is known.
func (s *shard) rank(t *core, c Counter, st *store, i int, at algorithm.Position) {
	q := s.ranksOf(c.Rule, c.Source)
	if q == nil || q.sent == nil {
		return
	}
	b, r := q.sent, c.Rule
	h, groups := st.record(i)
	var k *unconfirmed.Entry
	if h.unconfirmed != 0 {
		k = s.unconfirmed.At(h.unconfirmed)
	}
	if !b.counted || !b.read || k != nil && s.unconfirmed.HasInFlight(k) {
		return
	}
	var room [lanes.MaxGroups]uint64 // the groups without what has come since
	counted := room[:copy(room[:], groups[:r.Groups()])]
	for g := range counted {
		if k != nil {
			counted[g] = r.Lanes().Minus(counted[g], s.unconfirmed.In(k, g).Pending)
		}
	}
	g := int(int32(h.base - b.group))
	there := g >= 0 && g < len(counted)
	if there {
		counted[g] = r.Lanes().Minus(b.total, b.back)
	}
	before := r.Used(s.firm(r, st, i, counted, at, r.Read(counted, s.own(st, i), at)) + float64(b.ahead) - float64(b.Waiting) - float64(b.late))
	beyond := b.Rank(int64(r.Limit) - before)
	if b.holds {
		q.held -= min(q.held, beyond)
	}
	back := b.late
	if !b.keeps {
		back += beyond
	}
	if back > 0 && there {
		hits := r.Lanes().Last(b.hits, uint64(back))
		s.takeBack(t, c, groups, g, b.group, hits)
		if rest := uint64(back) - r.Lanes().Sum(hits); rest > 0 && b.older != 0 && g+1 < len(counted) {
			s.takeBack(t, c, groups, g+1, b.group-1, r.Lanes().Last(b.older, rest))
		}
	}
	b.End()
	q.sent = nil
	s.drop(Key{c.Source, r.ID}, q)
	if k != nil && k.Urgent && s.unconfirmed.HasPending(k) {
		s.queue(h.unconfirmed)
	}
}

// sweepRounds gives up rounds for which no request can still wait.
func (s *shard) sweepRounds(now int64) {
	for key, q := range s.ranks {
		for _, b := range []**ranked{&q.sent, &q.next} {
			if *b != nil && now-(*b).began >= mostRound {
				(*b).End()
				*b = nil
			}
		}
		s.drop(key, q)
	}
}
