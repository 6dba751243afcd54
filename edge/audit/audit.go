// Package audit keeps an exact log of a few sources beside their counters, and says how far the edge's decisions are from it, all the time.
//
// One source in N is watched, chosen by a keyed hash, so that nobody knows which. For each rule that it is under, the instants of the
// hits that the rule counted are kept for a window. At a decision
//
//	exact = hits in (now - window, now], this request included
//	gap   = |estimate - exact| / exact
//
// and it is wrong if it says over the limit and exact does not ("limited"), or the other way round ("allowed").
//
// The log has this edge's hits alone. So gap and "limited" are judged only while nobody else counts, and has not for a window; while
// others do, a source may have asked them, and all that is certain is that exact is no less than what is here: "allowed" is judged
// always, and is then a lower bound. A log has all hits from its source's first one on, or a window after it began.
//
// Not judged are rules that count otherwise than in a sliding window, rules that count by the answer's status or count refused requests, rules with a limit above 4,096, and decisions that
// wait for the tier: what they count, and when, is not known at the decision.
package audit

import (
	"math"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
)

const (
	// Share is how many sources there are to one that is watched, unless an Audit is told otherwise.
	Share = 1024
	// maxLogs bounds the logs, maxLimit the limits of rules that are judged, and maxHits all hits that are kept: 8 MiB of them.
	maxLogs  = 1024
	maxLimit = 4096
	maxHits  = 1 << 20
	// recent is how many decisions the mean gap is about, more or less.
	recent = 4096
)

// An Audit watches some sources. It is safe for concurrent use. A nil Audit watches nobody.
type Audit struct {
	// Alone reports whether nobody else counts the sources that this edge counts. nil: nobody ever does. Set it before use.
	Alone func() bool
	// Detected, if not nil, is called with the time from a source's crossing its limit to the refusal, both as they are known here. It
	// must not call the Audit. Set it before use.
	Detected func(time.Duration)

	hasher counter.Hasher
	share  uint64

	mu       sync.Mutex // held over a watched source's decision: its log must have its hits in the order in which they were counted
	logs     map[counter.Key]*log
	hits     int
	shared   time.Time // when others were last seen to count
	judged   uint64
	mean     float64
	allowed  uint64
	limited  uint64
	unlogged uint64
}

// A log is the hits of a source that a rule counted.
type log struct {
	window  time.Duration
	began   time.Time
	whole   time.Time       // from then on it has all hits of a window
	last    time.Time       // when it was last asked for
	hits    []time.Duration // since it began, the oldest first
	crossed time.Time       // since when more than the limit are in the window; zero: they are not
}

// New makes an Audit of one source in share; 0 is Share.
func New(share int) *Audit {
	if share <= 0 {
		share = Share
	}
	return &Audit{hasher: counter.NewHasher(0), share: uint64(share), logs: make(map[counter.Key]*log)}
}

// Inherits says that counters have, or get until then, hits of another process that had this edge's place.
func (a *Audit) Inherits(until time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shared = until
}

// Watches reports whether a source that is counted in a decision is watched. Then Lock must be called before Limiter.Decide, Note after it,
// and Unlock.
func (a *Audit) Watches(d *limiter.Decision) bool {
	if a == nil {
		return false
	}
	for i := range d.Results {
		if s := &d.Results[i].Source; (i == 0 || *s != d.Results[i-1].Source) && a.hasher.Of(s)%a.share == 0 {
			return true
		}
	}
	return false
}

// Lock keeps other decisions about watched sources out.
func (a *Audit) Lock() { a.mu.Lock() }

// Unlock lets them in again.
func (a *Audit) Unlock() { a.mu.Unlock() }

// Note judges a decision about watched sources, and logs what it counted. It is called with a locked.
func (a *Audit) Note(d *limiter.Decision, now time.Time) {
	alone := a.alone(now)
	for i := range d.Results {
		r := &d.Results[i]
		c := r.Rule.Counter
		if r.Ask == nil || r.Ask.Hold || r.Rule.Refused || r.Rule.Costs || !c.Sliding() || c.Limit > maxLimit || a.hasher.Of(&r.Source)%a.share != 0 {
			continue // who is blocked is not counted, nor judged
		}
		l := a.log(c, r, now)
		if l == nil {
			a.unlogged++
			continue
		}
		a.forget(l, now.Add(-c.Window))
		exact := len(l.hits) + 1
		over := exact > int(c.Limit)
		if over && !r.Ask.Over { // certain, however much of the log is missing
			a.allowed++
		}
		if alone && !now.Before(l.whole) && now.Sub(a.shared) > c.Window+c.SubWindow() {
			a.judge(math.Abs(r.Ask.Estimate-float64(exact)) / float64(exact))
			if r.Ask.Over && !over {
				a.limited++
			}
		}
		a.detect(l, over, r.Ask.Over, now)
		switch {
		case r.Ask.Over, d.Verdict == limiter.Limited: // what one rule refuses, no rule counts
		case a.hits >= maxHits:
			a.drop(counter.Key{Source: r.Source, Rule: c.ID})
		default:
			l.hits = append(l.hits, now.Sub(l.began))
			a.hits++
		}
	}
}

// alone reports whether this edge alone counts, and remembers when others did.
func (a *Audit) alone(now time.Time) bool {
	if a.Alone == nil || a.Alone() {
		return true
	}
	if now.After(a.shared) {
		a.shared = now
	}
	return false
}

// judge takes in how far an estimate is from the truth.
func (a *Audit) judge(gap float64) {
	a.judged++
	a.mean += (gap - a.mean) / float64(min(a.judged, recent))
}

// detect follows a source over its limit.
func (a *Audit) detect(l *log, over, refused bool, now time.Time) {
	switch {
	case !over:
		l.crossed = time.Time{}
		return
	case l.crossed.IsZero():
		l.crossed = now
	}
	if refused {
		if a.Detected != nil {
			a.Detected(now.Sub(l.crossed))
		}
		l.crossed = time.Time{}
	}
}

// log finds or begins the log of a source under a rule; nil: there is no room.
func (a *Audit) log(c *algorithm.Rule, r *limiter.RuleResult, now time.Time) *log {
	key := counter.Key{Source: r.Source, Rule: c.ID}
	l := a.logs[key]
	if l == nil {
		if len(a.logs) >= maxLogs || a.hits >= maxHits {
			return nil
		}
		l = &log{window: c.Window, began: now, whole: now}
		if r.Ask.Estimate > 1 { // somebody has been here before
			l.whole = now.Add(c.Window + c.SubWindow())
		}
		a.logs[key] = l
	}
	l.last = now
	return l
}

// forget drops the hits up to an instant.
func (a *Audit) forget(l *log, until time.Time) {
	n := 0
	for n < len(l.hits) && l.hits[n] <= until.Sub(l.began) {
		n++
	}
	if n > 0 {
		l.hits = l.hits[:copy(l.hits, l.hits[n:])]
		a.hits -= n
	}
}

// Forget drops the log of a source under a rule, whose counter was forgotten.
func (a *Audit) Forget(key counter.Key) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(key)
}

func (a *Audit) drop(key counter.Key) {
	if l := a.logs[key]; l != nil {
		a.hits -= len(l.hits)
		delete(a.logs, key)
	}
}

// Sweep drops logs of sources that have not come for a window. Call it about once a second.
func (a *Audit) Sweep(now time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, l := range a.logs {
		if now.Sub(l.last) > l.window {
			a.drop(key)
		}
	}
	a.alone(now)
}

// Stats is what an Audit has found.
type Stats struct {
	Logs     int     // sources and rules that are watched now
	Judged   uint64  // decisions whose gap is known
	Gap      float64 // mean of the last few thousand of them
	Allowed  uint64  // decisions that admitted what was over the limit
	Limited  uint64  // decisions that refused what was not
	Unlogged uint64  // decisions about watched sources for which there was no room
}

// Stats may be called from anywhere; a nil Audit has found nothing.
func (a *Audit) Stats() Stats {
	if a == nil {
		return Stats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stats{Logs: len(a.logs), Judged: a.judged, Gap: a.mean, Allowed: a.allowed, Limited: a.limited, Unlogged: a.unlogged}
}
