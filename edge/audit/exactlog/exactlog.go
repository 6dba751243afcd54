// Package exactlog judges what the edges of a PoP decided about watched sources by an exact sliding log. It shares no
// code with the counting that it judges, and has neither edges nor nodes: batches of entries come in, figures for each
// rule come out.
//
// For each source under a rule it keeps when each hit was counted, at whatever edge. At a decision at t of a rule of W
//
//	exact = hits in (t - W, t], this request included
//
// and the decision is wrong if it says over the limit and exact does not ("limited"), or the other way round ("allowed").
//
// What one edge counted before it decided is known for certain, as its entries are in their order. Hits of other edges are compared by clocks,
// which differ: a decision is uncertain if it would be judged otherwise were the clocks Tolerance apart. So the share of wrong decisions is
// known but for the share of uncertain ones, as long as clocks are no farther apart than that.
//
// Not every wrong decision is a fault. A counter knows when its hits came to a sub-window, so its formula may be off by those of the sub-window
// in which the window starts. A wrong decision is unexplained if it stays wrong however many of these hits count, by clocks up to Clocks apart.
//
// A log is complete once no hit of a window can be missing. Until then one thing alone is certain: that more than the limit was admitted.
package exactlog

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"sluice/counter/buckets"
)

// Tolerance is how far apart the clocks of edges may be for what is not uncertain to be right.
const Tolerance = 5 * time.Millisecond

// Clocks is how far apart the clocks of edges may be for what is unexplained to be a fault.
const Clocks = 100 * time.Millisecond

const (
	tolerance = int64(Tolerance / time.Microsecond)
	clocks    = int64(Clocks / time.Microsecond)
	maxLogs   = 1 << 14
	maxHits   = 1 << 20
	maxRules  = 1000 // each has series of metrics
	never     = math.MaxInt64 / 2
	maxStarts = 64
	recent    = 4096 // decisions that the mean gap is about, more or less
)

// Judge judges entries. The zero Judge has judged nothing, and takes every log for complete. It is for one goroutine.
type Judge struct {
	Skipped Skipped

	rules map[string]*Figures
	logs  map[logKey]*log
	gap   float64
	seen  uint64 // decisions in gap
	hits  int
	order uint64
	whole int64 // from then on all hits are known
	upTo  int64 // what was before is judged
}

// Skipped counts decisions that were not judged.
type Skipped struct {
	Incomplete uint64 // hits before them may be missing
	Full       uint64 // there was no room
}

// Figures is what was found about the decisions of a rule.
type Figures struct {
	Decisions   uint64
	Allowed     uint64 // wrong: admitted over the limit
	Limited     uint64 // wrong: refused within the limit
	Uncertain   uint64 // of all decisions: they would be judged otherwise by clocks that are Tolerance apart
	Unexplained uint64 // of the wrong ones: neither the formula nor clocks that are up to Clocks apart explain them
	// Lags is, for each time that a source crossed its limit and each edge that refused it then, how long after the crossing it did. That is 0
	// for an edge that admitted nothing meanwhile.
	Lags *buckets.Histogram
}

// NewFigures is what is found where nothing is judged.
func NewFigures() *Figures { return &Figures{Lags: buckets.Lag()} }

type logKey struct{ rule, source uint64 }

// log is what is known of a source under a rule.
type log struct {
	name    string
	window  int64
	sub     int64 // a sub-window
	since   int64 // it has kept the hits since then
	whole   int64 // from then on it has all hits
	last    int64 // when the last entry was
	hits    []item
	waiting []item // not judged yet
	sorted  bool

	over    stretch  // when it last had more than the limit
	starts  []int64  // when edges began to block the source: the last few
	crossed int64    // since when there were more requests than the limit; 0: there are not
	passed  []uint64 // edges that admitted more since then
	refused []uint64 // edges that have refused since then
}

// stretch is a time from until before until.
type stretch struct{ from, until int64 }

type item struct {
	Entry
	edge  uint64
	order uint64 // of its edge's entries those with a lower one came before
	limit uint32
}

// Begin forgets all logs. Hits before an instant, in µs since 1970, are not known.
func (j *Judge) Begin(at int64) {
	j.logs, j.hits, j.whole, j.upTo = nil, 0, at, 0
}

// Missing says that hits before an instant may be missing.
func (j *Judge) Missing(before int64) { j.whole = max(j.whole, before) }

// Add takes in a batch of an edge. Batches of one edge come in their order.
func (j *Judge) Add(b *Batch) {
	if j.logs == nil {
		j.logs = make(map[logKey]*log)
	}
	if b.Gap {
		j.Missing(b.Ends())
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		l := j.log(g)
		if l == nil {
			j.Skipped.Full += uint64(len(g.Entries))
			continue
		}
		if g.Gap {
			l.whole = max(l.whole, b.Ends())
		}
		for _, e := range g.Entries {
			j.order++
			it := item{e, b.Edge, j.order, g.Rule.Limit}
			l.waiting, l.last, l.sorted = append(l.waiting, it), max(l.last, e.At), false
			if e.Kind == Counted {
				l.hits = append(l.hits, it)
				j.hits++
			}
			if e.At <= j.upTo { // what was judged since did not know of it
				l.whole = max(l.whole, j.upTo)
			}
		}
	}
}

func (j *Judge) log(g *Group) *log {
	key := logKey{g.Rule.Counter, g.Source}
	l := j.logs[key]
	if l == nil && len(j.logs) < maxLogs && j.hits < maxHits && j.figures(g.Rule.Name) != nil {
		l = &log{name: g.Rule.Name, window: g.Rule.Window.Microseconds(), sub: g.Rule.Sub.Microseconds()}
		l.since = j.upTo - l.reach()
		j.logs[key] = l
	}
	if l != nil && j.hits >= maxHits {
		l.whole = never // it is forgotten with its last hit
		return nil
	}
	return l
}

// figures of a rule; nil: there are too many.
func (j *Judge) figures(rule string) *Figures {
	f := j.rules[rule]
	if f == nil && len(j.rules) < maxRules {
		if j.rules == nil {
			j.rules = make(map[string]*Figures)
		}
		f = NewFigures()
		j.rules[rule] = f
	}
	return f
}

// Advance judges what was decided before an instant, up to which all batches have come.
func (j *Judge) Advance(to int64) {
	j.upTo = max(j.upTo, to)
	for key, l := range j.logs {
		if !l.sorted {
			byTime := func(a, b item) int { return cmp.Compare(a.At, b.At) }
			slices.SortStableFunc(l.hits, byTime)
			slices.SortStableFunc(l.waiting, byTime)
			l.sorted = true
		}
		n := 0
		for ; n < len(l.waiting) && l.waiting[n].At <= to-clocks; n++ {
			j.judge(l, &l.waiting[n])
		}
		l.waiting = slices.Delete(l.waiting, 0, n)
		l.since = to - l.reach()
		gone := after(l.hits, l.since)
		l.hits = slices.Delete(l.hits, 0, gone)
		j.hits -= gone
		if len(l.waiting) == 0 && len(l.hits) == 0 && to-l.last > l.reach() {
			delete(j.logs, key)
		}
	}
}

// after is the index of the first hit after an instant.
func after(hits []item, at int64) int {
	return sort.Search(len(hits), func(i int) bool { return hits[i].At > at })
}

// reach is how long a hit may matter.
func (l *log) reach() int64 { return l.window + l.sub + 2*clocks }

// exact is how many hits there were in the window that ends with a decision, and the least and the most by clocks that are so far apart, and a
// formula that may be off by the hits within sub of the window's start.
func (l *log) exact(d *item, clocks, sub int64) (exact, least, most int) {
	from := d.At - l.window
	first, sure := after(l.hits, from-clocks-sub), after(l.hits, from+clocks+sub)
	end, last := after(l.hits, d.At-clocks), after(l.hits, d.At+clocks)
	exact = max(end-sure, 0)
	least, most = exact, exact
	for _, h := range [...][2]int{{first, sure}, {max(end, sure), last}} {
		for i := h[0]; i < h[1]; i++ {
			h := &l.hits[i]
			in := h.At > from && h.At <= d.At
			switch own := h.edge == d.edge; {
			case own && (h.order >= d.order || h.At <= from-sub):
			case own && h.At > from+sub:
				exact, least, most = exact+1, least+1, most+1
			default:
				if most++; in {
					exact++
				}
			}
		}
	}
	return exact + 1, least + 1, most + 1
}

func (j *Judge) judge(l *log, d *item) {
	switch d.Kind {
	case Lifted:
		l.lifted(d, j)
		return
	case Blocked:
		j.block(l, d)
		return
	}
	f, refused := j.rules[l.name], d.Kind == Refused
	exact, least, most := l.exact(d, tolerance, 0)
	limit := int(d.limit)
	over := exact > limit
	complete := d.At >= max(j.whole, l.whole)+l.window
	if !complete && (refused || least <= limit) {
		j.Skipped.Incomplete++
		l.crossed = 0
		return
	}
	f.Decisions++
	switch {
	case over && !refused:
		f.Allowed++
	case !over && refused:
		f.Limited++
	}
	if (least > limit) != (most > limit) {
		f.Uncertain++
	}
	if over != refused {
		_, least, most = l.exact(d, clocks, l.sub)
		if over && least > limit || !over && most <= limit && d.At >= max(j.whole, l.whole)+l.reach() {
			f.Unexplained++
		}
	}
	if complete {
		j.seen++
		j.gap += (math.Abs(d.Estimate-float64(exact))/float64(exact) - j.gap) / float64(min(j.seen, recent))
	}
	switch {
	case !over:
		l.crossed = 0
	case l.crossed == 0:
		l.crossed, l.passed, l.refused = d.At, l.passed[:0], l.refused[:0]
	}
	switch {
	case refused:
		l.began(d.At)
		l.refusal(d, f)
	case over:
		l.isOver(d)
		if !slices.Contains(l.passed, d.edge) {
			l.passed = append(l.passed, d.edge)
		}
	}
}

// isOver notes that more than the limit was admitted.
func (l *log) isOver(d *item) {
	if d.Kind != Counted {
		return
	}
	n := after(l.hits, d.At)
	until := l.hits[max(n-1-int(d.limit), 0)].At + l.window // when the hit goes without which there is no more than the limit
	if d.At >= l.over.until {
		l.over.from = d.At
	}
	l.over.until = max(l.over.until, until)
}

// began notes that an edge begins to block the source. Of blocks that began within Tolerance of each other it notes one.
func (l *log) began(at int64) (news bool) {
	for _, s := range l.starts {
		if at >= s-tolerance && at <= s+tolerance {
			return false
		}
	}
	if l.starts = append(l.starts, at); len(l.starts) > maxStarts {
		l.starts = slices.Delete(l.starts, 0, 1)
	}
	return true
}

// block judges a block that no refused request has begun: the total of all edges was over the limit, or the block is wrong.
func (j *Judge) block(l *log, d *item) {
	f := j.rules[l.name]
	if l.began(d.Start) {
		if d.Start < max(j.whole, l.whole)+l.window {
			j.Skipped.Incomplete++
			return
		}
		f.Decisions++
		switch at := d.Start; {
		case at < l.over.from-tolerance || at >= l.over.until+tolerance:
			f.Limited++
			if since := at - l.reach(); since >= max(j.whole, l.whole, l.since) && after(l.hits, at+clocks)-after(l.hits, since) <= int(d.limit) {
				f.Unexplained++
			}
		case at < l.over.from+tolerance || at >= l.over.until-tolerance:
			f.Uncertain++
		}
	}
	l.refusal(d, f)
}

// refusal takes in that an edge refuses a source.
func (l *log) refusal(d *item, f *Figures) {
	if l.crossed == 0 || slices.Contains(l.refused, d.edge) {
		return
	}
	l.refused = append(l.refused, d.edge)
	lag := time.Duration(0)
	if slices.Contains(l.passed, d.edge) {
		lag = time.Duration(d.At-l.crossed) * time.Microsecond
	}
	f.Lags.Observe(int64(lag))
}

// liftTakes is how long it takes until all edges have learned of a lift.
const liftTakes = int64(2 * time.Second / time.Microsecond)

// lifted forgets what was counted before a lift. Other edges learn of it later, and are not judged before.
func (l *log) lifted(d *item, j *Judge) {
	n := after(l.hits, d.At)
	l.hits = slices.Delete(l.hits, 0, n)
	j.hits -= n
	l.crossed, l.whole = 0, max(l.whole, d.At+liftTakes-l.window)
}

// Rules gives what was found of each rule.
func (j *Judge) Rules() map[string]*Figures { return j.rules }

// Logs is how many logs there are.
func (j *Judge) Logs() int { return len(j.logs) }

// Gap is the mean of |estimate - exact| / exact over the latest decisions.
func (j *Judge) Gap() float64 { return j.gap }
