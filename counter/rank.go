package counter

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/round"
)

// A request under a rule with Sync waits for its rank: how many hits the window has, its own last, at the instant when
// the tier counted it. The tier counts one hit after the other, so of parallel requests over many edges, those that
// come first are within the limit, and no others.
//
// The rank is in the answer to a report. Requests that come while a report of their counter is under way go together
// with the next, so one waits for two reports at most, and a counter has two rounds, however many wait. A report writes
// first and then reads: incr, whose answer has all lanes of the newest group, then get of the groups before it and of
// the one after, which edges whose clock is ahead write to. Of two edges that write to different groups at least one
// reads what the other wrote. While by no edge's clock a group begins or ends, one read is enough for all rounds, and
// may come first.
//
// Hits beyond the limit do not count: they are taken back from the tier by decr, and from this table at once. So the
// tier's answer replaces what was known here, and does not only raise it. Hits that do not count by the origin's answer
// are taken back as well, however late that comes. Hits that are taken back were in others' answers for a round trip,
// so no request is refused on an answer older than recency: it gets a round of its own.
//
// A round costs an incr, or an add, or both where this edge has not reported to the group before; a get in the first round of a group, in
// all within three seconds of its beginning and end, once a minute, and in all where answers take back what they do not count and groups before have
// hits; and a decr where requests are refused, unless a block outlives them, or were cancelled under way.

// Answer is the tier's answer to a request that waits for it: here, in flight (counter/inflight), or where the tier
// keeps each request (counter/exact).
type Answer = round.Answer

const (
	Silent = round.Silent // it has not answered; by its rank the request counts
	Within = round.Within // it is within the limit, and counts
	Beyond = round.Beyond // it is not, and does not count
	Doubt  = round.Doubt  // unknown; only counter/exact returns it
)

// Ticket is the part that a reservation has in a round. The zero Ticket is ready, and may be used again.
type Ticket struct {
	Reply <-chan struct{} // closed when Order can return more; nil: it never can
	Over  bool            // as far as this table knew, the limit was used up
	Keep  bool            // set before Reserve: hits beyond the limit need not be taken back, because a block outlives them

	round   *ranked
	group   uint32 // where the hits are counted
	lane    uint8
	counted bool // they are, and Commit or Cancel is to come
	noted   bool // they are in a bin of the counter's histogram:
	number  uint32
	bin     uint8
	held    bool // they are among ranks.held
	within  bool
}

// join lets the hits of a reservation, which have just been counted, wait for their rank. Hits that are not reported
// have none.
func (s *shard) join(a *Reservation, l *lookup, now int64) {
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
		q.next = &ranked{Round: round.New(), began: now, keeps: a.Always || k.Keep}
	}
	q.next.Waiting += a.Hits
	k.round, k.Reply = q.next, q.next.Reply
	if a.Hold {
		k.held, q.next.holds = true, true
		q.held += a.Hits
	}
}

// slots is how many hits of a counter are held until the answers to their requests, or were cancelled on their way to
// the tier. They refuse other requests, but are no reason to block a source. Those of other edges are unknown.
func (s *shard) slots(r *algorithm.Spec, source Source) float64 {
	if q := s.ranksOf(r, source); q != nil {
		if q.sent != nil {
			return float64(q.held + q.sent.late)
		}
		return float64(q.held)
	}
	return 0
}

// Order returns the tier's answer about the hits of a reservation with a Reply, and completes its verdict. Hits that
// are Beyond never counted; the rest counts, and Commit or Cancel makes that final.
func (t *Table) Order(a *Reservation, now time.Time) Answer {
	l := t.open(a.Rule, &a.Source)
	defer l.s.unlock(&t.core)
	k := a.Ticket
	b := k.round
	if b == nil {
		return Silent
	}
	answer := b.Take(a.Hits)
	if answer == Silent {
		return Silent
	}
	k.round = nil
	if !l.there { // pushed out since
		t.locate(&l, a.Rule, a.Source, t.ns(now), nil)
	}
	l.at = l.s.advance(l.store, l.i, a.Rule, t.ns(now))
	estimate := l.s.estimate(a.Rule, l.store, l.i, l.at)
	a.Known, a.Estimate, a.Remaining = true, estimate, a.Rule.Remaining(estimate)
	if answer == Within {
		k.within = true
		if k.noted = l.s.note(a.Rule, l.store, l.i, l.at, a.Hits, estimate); k.noted {
			k.number, k.bin = a.Rule.Number(l.at), uint8(histogram.Bin(l.at.Gone))
		}
		return Within
	}
	if g := int(int32(l.store.head(l.i).base - b.group)); b.Waiting == 0 && b.Room > 0 && !b.keeps && g >= 0 && g < a.Rule.Groups() { // of less room than any reservation has hits
		l.s.takeBack(&t.core, Counter{Rule: a.Rule, Source: a.Source}, l.store.groups(l.i), g, b.group, a.Rule.Lanes().Last(b.hits, uint64(b.Room)))
		b.Room = 0
	}
	k.counted = false
	a.Over, a.Remaining = true, 0
	a.Estimate += float64(a.Hits)
	firm := l.s.firm(a.Rule, l.store, l.i, l.store.groups(l.i), l.at, estimate)
	if a.Committed = a.Rule.Over(firm + float64(a.Hits) - l.s.slots(a.Rule, a.Source)); a.Committed {
		l.s.noteOver(a.Rule, l.store, l.i, l.at, float64(a.Hits))
		a.RetryAfter = l.s.retryAfter(a.Rule, l.store, l.i, l.at, float64(a.Hits))
	}
	return Beyond
}

// unrank ends what a reservation within the limit holds, and takes its hits back unless they count: at once, or with
// the tier's answer if that is still to come. If it is unknown whether the tier has counted them, they count: taking
// back what is not there would be worse.
func (t *Table) unrank(a *Reservation, counts bool) {
	l := t.open(a.Rule, &a.Source)
	defer l.s.unlock(&t.core)
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
	if a.Ticket.within || b != nil && b.Ranked {
		l.s.takeBack(&t.core, Counter{Rule: r, Source: a.Source}, groups, g, a.Ticket.group, hits)
		return
	}
	if h.unconfirmed == 0 {
		return
	}
	k := l.s.unconfirmed.At(h.unconfirmed)
	others := uint64(0)
	if q != nil && q.next != nil {
		others = uint64(q.next.Waiting)
	}
	if l.s.unconfirmed.TakeBack(k, g, lane, a.Hits, others) {
		groups[g] = r.Lanes().Minus(groups[g], hits)
		l.s.releaseEmpty(h.unconfirmed)
	}
}
