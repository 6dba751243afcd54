package counter

import (
	"sync"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/lanes"
	"sluice/counter/internal/unconfirmed"
)

// A request under a rule with Sync waits for its rank: how many hits the window has, its own last, at the instant when the tier counted
// it. The tier counts one hit after the other, so of parallel requests over many edges exactly those are within the limit that come first.
//
// The rank is what the answer to a report says. Requests that come while a report of their counter is under way go together with the
// next, so one waits for two reports at most, and of however many a counter has two rounds. A report writes first and then
// reads: incr, whose answer has all lanes of the newest group, then get of the groups before it and of the one after, which edges whose
// clock is ahead write to. Of two edges that write to different groups at least one reads what the other wrote. While by no edge's clock
// a group begins or ends, one read is enough for all rounds, and may come first.
//
// Who is beyond the limit does not count: what of a round is beyond is taken back from the tier by decr, and from this table at once, where
// what the tier answers replaces what was known and does not only raise it. So is what the answer of the origin says does not count, however late
// that comes. What is taken back stood in others' answers for a round trip;
// so no request is refused for longer than recency on what an answer has said without a question of its own.
//
// A round costs an incr, or an add, or both where this edge has not reported to the group before; a get in the first round of a group, in
// all within three seconds of its beginning and end, once a minute, and in all where answers take back what they do not count and groups before have
// hits; and a decr where requests are refused, unless a block outlives them, or were cancelled under way.

// Rank is what the tier says of a hit.
type Rank uint8

const (
	Unranked Rank = iota // it has not answered; the hit counts
	Within               // it is within the limit, and counts
	Beyond               // it is not, and does not count
)

// ranks are the rounds of a counter: the hits that are being reported, and those that go with the next report.
type ranks struct {
	sent, next *round
	held       uint32 // hits that answers of the origin may still take back
}

// round is hits that are ranked together.
type round struct {
	reply   chan struct{} // closed when they are, or when nobody will
	waiting uint32        // hits whose requests still wait
	keeps   bool          // what is beyond counts as well
	holds   bool          // what is within is held until its answer
	began   int64         // on the table's clock

	group   uint32 // of the newest hits,
	hits    uint64 // which are these lanes, of several reports if one may not say them all
	upTo    uint32 // the newest group that is read
	total   uint64 // of the group, as the tier counted them, less
	back    uint64 // what was taken back meanwhile
	ahead   uint64 // hits in the group after it
	counted bool   // total is known
	read    bool   // the other groups are
	ranked  bool
	settled bool   // nobody writes to groups but the newest
	older   uint64 // hits in the group before
	several bool   // the hits are in several groups, and those in the newest were counted first
	room    uint32 // hits that are within the limit, and whose requests have not heard of it
	late    uint32 // hits that were cancelled before the answer came, which takes them back
}

// Ticket is an ask's place in a round. The zero Ticket is ready, and may be used again.
type Ticket struct {
	Reply <-chan struct{} // closed when Rank can say more; nil: it can say nothing
	Over  bool            // as far as this table knew, the limit was used up
	Keep  bool            // set before Reserve: hits beyond the limit need not be taken back, because a block outlives them

	round   *round
	group   uint32 // where the hits are counted
	lane    uint8
	counted bool // they are, and Commit or Cancel is to come
	noted   bool // they are in a bin of the counter's histogram:
	number  uint32
	bin     uint8
	held    bool // they are among ranks.held
	within  bool
}

// mostRound is how long a report may be under way before its requests are given up and the next goes: longer than any request waits.
const mostRound = int64(time.Second)

// unsettled is how long before and after a group begins edges may write to both: their clocks may be two seconds apart, and what they
// write may be under way.
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

// TakeBacks appends to buf what is to be taken back from the tier, and forgets it. What is lost on its way counts as long as its
// sub-window.
func (t Reports) TakeBacks(buf []Back) []Back {
	t.backs.mu.Lock()
	defer t.backs.mu.Unlock()
	buf = append(buf, t.backs.list...)
	t.backs.list = t.backs.list[:0]
	return buf
}

// told is a number of the tier as it is to be read: under a rule with Sync hits may have been taken from it that were not there, or all.
func told(r *algorithm.Rule, total uint64) uint64 {
	if r.Sync {
		return r.Lanes().Repay(total)
	}
	return total
}

// maxBacks bounds what waits to be taken back: there is no more of it than requests under way, unless nobody takes it.
const maxBacks = 1 << 16

// takeBack takes back hits of a group, packed lanes that are known to be there.
func (s *shard) takeBack(t *Table, c Counter, groups []uint64, g int, group uint32, hits uint64) {
	groups[g] = c.Rule.Lanes().Minus(groups[g], hits)
	if q := s.ranks[Key{c.Source, c.Rule.ID}]; q != nil && q.sent != nil && q.sent.group == group {
		q.sent.back = c.Rule.Lanes().Plus(q.sent.back, hits)
	}
	t.backs.mu.Lock()
	if len(t.backs.list) < maxBacks {
		t.backs.list = append(t.backs.list, Back{c, group, hits})
	}
	t.backs.mu.Unlock()
	s.wakes = true
}

// join lets the hits of an ask, which have just been counted, wait for their rank. Those of which the tier will not be told have none.
func (s *shard) join(a *Ask, l *lookup, now int64) {
	h, k := l.store.head(l.i), a.Ticket
	k.group, k.lane, k.counted = h.base, uint8(l.at.Lane), true
	if h.unconfirmed == 0 {
		return
	}
	key := Key{a.Source, a.Rule.ID}
	q := s.ranks[key]
	if q == nil {
		if s.ranks == nil {
			s.ranks = make(map[Key]*ranks)
		}
		q = new(ranks)
		s.ranks[key] = q
	}
	if q.next == nil {
		q.next = &round{reply: make(chan struct{}), began: now, keeps: a.Always || k.Keep}
	}
	q.next.waiting += a.Hits
	k.round, k.Reply = q.next, q.next.reply
	if a.Hold {
		k.held, q.next.holds = true, true
		q.held += a.Hits
	}
}

// places is how many hits of a counter are held until the answers to their requests, or were cancelled and are under way to the tier: they
// refuse others, and are nothing to block a source for. Of other edges' nobody knows.
func (s *shard) places(r *algorithm.Rule, source Source) float64 {
	if !r.Sync || len(s.ranks) == 0 {
		return 0
	}
	if q := s.ranks[Key{source, r.ID}]; q != nil {
		if q.sent != nil {
			return float64(q.held + q.sent.late)
		}
		return float64(q.held)
	}
	return 0
}

// drop forgets rounds of which nothing is left.
func (s *shard) drop(key Key, q *ranks) {
	if q.sent == nil && q.next == nil && q.held == 0 {
		delete(s.ranks, key)
	}
}

// ranking reports whether a report is under way for which requests wait. One that has been for too long is given up.
func (s *shard) ranking(r *algorithm.Rule, source Source, now int64) bool {
	q := s.ranks[Key{source, r.ID}]
	if q == nil || q.sent == nil {
		return false
	}
	if now-q.sent.began < mostRound {
		return true
	}
	close(q.sent.reply)
	q.sent = nil
	return false
}

// send lets who waits for the next report wait for this one, if it has all that is pending.
func (s *shard) send(t *Table, k *unconfirmed.Entry, c Counter, rep *Report, h *head, groups []uint64, at algorithm.Position, now int64) {
	q := s.ranks[Key{c.Source, c.Rule.ID}]
	if q == nil || q.next == nil {
		return
	}
	b := q.next
	if b.group != rep.Parts[0].Group {
		b.group, b.hits = rep.Parts[0].Group, 0
	}
	b.hits = c.Rule.Lanes().Plus(b.hits, rep.Parts[0].Hits)
	if s.unconfirmed.HasPending(k) {
		return
	}
	q.sent, q.next = b, nil
	b.began, b.upTo = now, h.base+1
	since := int64((float64(at.Lane) + at.Gone) * float64(c.Rule.SubWindow()))
	if b.several = rep.N > 1; b.several && rep.Parts[1].Group == b.group-1 {
		b.older = rep.Parts[1].Hits
	}
	b.settled = !b.several && since > unsettled && int64(c.Rule.Group())-since > unsettled
	fixed := b.settled && (!b.holds || onlyNewest(c.Rule, groups)) // else an answer may have taken back what is there
	if fixed && h.state&readPast != 0 && !h.refreshes(now) && !t.stale(h, now) {
		b.read = true
		return
	}
	rep.Past, rep.Newest, rep.WriteFirst = true, h.base+2, !b.settled
}

// countedRound notes the tier's total of the group of a round, and returns it without what this table has taken back since it was asked: the node
// is told of that later.
func (s *shard) countedRound(c Counter, group uint32, total uint64) uint64 {
	q := s.ranks[Key{c.Source, c.Rule.ID}]
	if q == nil || q.sent == nil || q.sent.group != group {
		return total
	}
	b := q.sent
	b.counted, b.total, b.back = true, c.Rule.Lanes().Minus(c.Rule.Lanes().Clamp(total), b.back), 0
	return b.total
}

// readRound notes what was read for a round. The group after the newest has no place in the table yet.
func (s *shard) readRound(c Counter, h *head, newest uint32, groups []uint64) {
	q := s.ranks[Key{c.Source, c.Rule.ID}]
	if q == nil || q.sent == nil || q.sent.upTo != newest {
		return
	}
	b := q.sent
	if i := newest - b.group; b.several && int(i) < len(groups) {
		b.total = max(b.total, told(c.Rule, groups[i])) // others may have counted between its groups: they come first
	}
	if b.read = true; h.base != newest {
		b.ahead = c.Rule.Lanes().Sum(told(c.Rule, groups[0]))
		if b.settled {
			h.state |= readPast
		}
	}
}

// cancelled is which hits of a part, which did not reach the tier, were cancelled while that was not known.
func (s *shard) cancelled(c Counter, p Part) uint64 {
	q := s.ranks[Key{c.Source, c.Rule.ID}]
	if q == nil || q.sent == nil || q.sent.late == 0 {
		return 0
	}
	hits := c.Rule.Lanes().Last(p.Hits, uint64(q.sent.late))
	q.sent.late -= uint32(c.Rule.Lanes().Sum(hits))
	return hits
}

// giveUp ends the wait for a report that did not come through: each request goes by its rule's posture.
func (s *shard) giveUp(key Key) {
	switch q := s.ranks[key]; {
	case q == nil:
	case q.sent != nil:
		close(q.sent.reply)
		q.sent = nil
		s.drop(key, q)
	case q.next != nil:
		q.next.hits = 0 // some of them are not there
	}
}

// rank tells the requests of a round which of them are within the limit, once all is known.
func (s *shard) rank(t *Table, c Counter, st *store, i int, at algorithm.Position) {
	key := Key{c.Source, c.Rule.ID}
	q := s.ranks[key]
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
	asked := room[:copy(room[:], groups[:r.Groups()])]
	for g := range asked {
		if k != nil {
			asked[g] = r.Lanes().Minus(asked[g], s.unconfirmed.In(k, g).Pending)
		}
	}
	g := int(int32(h.base - b.group))
	there := g >= 0 && g < len(asked)
	if there {
		asked[g] = r.Lanes().Minus(b.total, b.back)
	}
	before := r.Used(r.Read(asked, s.own(st, i), at) + float64(b.ahead) - float64(b.waiting) - float64(b.late))
	b.room = uint32(min(max(int64(r.Limit)-before, 0), int64(b.waiting)))
	beyond := b.waiting - b.room
	b.ranked = true
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
		if rest := uint64(back) - r.Lanes().Sum(hits); rest > 0 && b.older != 0 && g+1 < len(asked) {
			s.takeBack(t, c, groups, g+1, b.group-1, r.Lanes().Last(b.older, rest))
		}
	}
	close(b.reply)
	q.sent = nil
	s.drop(key, q)
	if k != nil && k.Urgent && s.unconfirmed.HasPending(k) {
		s.queue(h.unconfirmed)
	}
}

// sweepRounds gives up rounds that nobody can still wait for.
func (s *shard) sweepRounds(now int64) {
	for key, q := range s.ranks {
		for _, b := range []**round{&q.sent, &q.next} {
			if *b != nil && now-(*b).began >= mostRound {
				close((*b).reply)
				*b = nil
			}
		}
		s.drop(key, q)
	}
}

// Rank says what the tier has said of the hits of an ask with a Reply, and completes its verdict. What is Beyond never counted; the rest
// counts, until Commit or Cancel says so for good.
func (t *Table) Rank(a *Ask, now time.Time) Rank {
	l := t.open(a.Rule, &a.Source)
	defer l.s.unlock(t)
	k := a.Ticket
	b := k.round
	if b == nil {
		return Unranked
	}
	b.waiting -= a.Hits
	if !b.ranked {
		return Unranked
	}
	k.round = nil
	if !l.there { // pushed out since
		t.locate(&l, a.Rule, a.Source, t.ns(now), nil)
	}
	l.at = l.s.advance(l.store, l.i, a.Rule, t.ns(now))
	estimate := l.s.estimate(a.Rule, l.store, l.i, l.at)
	a.Known, a.Estimate, a.Remaining = true, estimate, a.Rule.Remaining(estimate)
	if b.room >= a.Hits {
		b.room -= a.Hits
		k.within = true
		if k.noted = l.s.note(a.Rule, l.store, l.i, l.at, a.Hits, estimate); k.noted {
			k.number, k.bin = a.Rule.Number(l.at), uint8(histogram.Bin(l.at.Gone))
		}
		return Within
	}
	if g := int(int32(l.store.head(l.i).base - b.group)); b.waiting == 0 && b.room > 0 && !b.keeps && g >= 0 && g < a.Rule.Groups() { // of less room than any ask has hits
		l.s.takeBack(t, Counter{Rule: a.Rule, Source: a.Source}, l.store.groups(l.i), g, b.group, a.Rule.Lanes().Last(b.hits, uint64(b.room)))
		b.room = 0
	}
	k.counted = false
	a.Over, a.Remaining = true, 0
	a.Estimate += float64(a.Hits)
	if a.Committed = a.Rule.Over(a.Estimate - l.s.places(a.Rule, a.Source)); a.Committed {
		a.RetryAfter = a.Rule.RetryAfter(l.store.groups(l.i), l.s.own(l.store, l.i), l.at, float64(a.Hits))
	}
	return Beyond
}

// unrank ends what an ask holds that is not beyond the limit, and takes its hits back unless they count: at once, or with the tier's answer
// while that is still to come. If nobody knows whether the tier has counted them, they count: to take back what is not there would be worse.
func (t *Table) unrank(a *Ask, counts bool) {
	l := t.open(a.Rule, &a.Source)
	defer l.s.unlock(t)
	q, b := l.s.ranks[Key{a.Source, a.Rule.ID}], a.Ticket.round
	if q != nil && a.Ticket.held {
		q.held -= min(q.held, a.Hits)
		l.s.drop(Key{a.Source, a.Rule.ID}, q)
	}
	if counts || !l.there {
		return
	}
	if k := a.Ticket; k.noted {
		l.s.unnote(l.store, l.i, k.number, int(k.bin), a.Hits)
	}
	h, groups := l.store.record(l.i)
	r, g := a.Rule, int(int32(h.base-a.Ticket.group))
	lane := int(a.Ticket.lane)
	if g < 0 || g >= r.Groups() || r.Lanes().Lane(groups[g], lane) < uint64(a.Hits) {
		return
	}
	hits := r.Lanes().Add(0, lane, uint64(a.Hits))
	if b != nil && q != nil && q.sent == b {
		b.late += a.Hits
		return
	}
	if a.Ticket.within || b != nil && b.ranked {
		l.s.takeBack(t, Counter{Rule: r, Source: a.Source}, groups, g, a.Ticket.group, hits)
		return
	}
	if h.unconfirmed == 0 {
		return
	}
	k := l.s.unconfirmed.At(h.unconfirmed)
	others := uint64(0)
	if q != nil && q.next != nil {
		others = uint64(q.next.waiting)
	}
	if l.s.unconfirmed.TakeBack(k, g, lane, a.Hits, others) {
		groups[g] = r.Lanes().Minus(groups[g], hits)
		l.s.releaseEmpty(h.unconfirmed)
	}
}
