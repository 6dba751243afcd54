// Package shedding decides how many requests an origin may have in hand at once, and which are
// turned away first when there are more.
//
// An origin that suffers answers later. So its latency without a queue (base) is held against what
// it is now (mean), once a round of answers, and the limit follows:
//
//	limit = limit * max(1/2, min(1, 2 * base/mean)) + sqrt(limit)
//
// That is the gradient of Netflix's concurrency-limits (GradientLimit, 2018) over the base
// round-trip time of TCP Vegas (Brakmo, O'Malley and Peterson, SIGCOMM 1994). Vegas itself allows a
// fixed number of requests to queue, which is little where a limit is large; Gradient2 takes a long
// average for the base, which follows the queue up as long as an overload lasts, and the limit with
// it. Here base is the mean of a round at a quarter of the limit or less, so that nothing waits.
// While answers are late the limit is cut to that for a round, but for critical requests, every ten
// seconds of the clock: edges with the same clock drain an origin together. A mean, and not the
// least, because an origin has quick and slow pages; and it falls by an eighth of the way in a
// round, or else a client that requests a hundred quick pages every ten seconds would have half of
// all other requests shed.
//
// Shares of one limit keep priorities apart: requests that may be shed take half of it, those
// without a level four fifths, critical ones all. A request that finds no slot may wait for one;
// the last to come is the first to be let in.
//
// A request holds its slot from when it is passed on until the head of its answer, but while its
// origin waits for its body. There are no sockets and no clock in here. A Limiter has a few hundred
// bytes; a request takes its mutex twice.
package shedding

import (
	"math"
	"sync"
	"time"
)

// A Level is what rules say of a request's priority. The highest of several holds, so a rule that
// is silent changes nothing.
type Level uint8

const (
	Default   Level = iota // no rule sets a level
	Sheddable              // it goes first
	Critical               // it goes last
	Levels
)

func (l Level) String() string { return [...]string{"default", "sheddable", "critical"}[l] }

// share is how much of the limit requests of a level may fill, all requests counted.
var share = [Levels]float64{Default: 0.8, Sheddable: 0.5, Critical: 1}

// byPriority is the order in which levels are let in.
var byPriority = [...]Level{Critical, Default, Sheddable}

// The limits of a zero Config.
const (
	DefaultMin = 10
	DefaultMax = 1000
)

const (
	firstLimit = 100 // before anything is known, within Min and Max
	tolerance  = 2   // how many times the base latency may be the mean before the limit falls
	// The part of the limit at which nothing is taken to wait; above tolerance, or base would grow
	// with the limit
	cut = 4
	// Of the base latency: below it nothing waits, and there is nothing to measure anew
	late = 1.25
	fall = 8 // the part of its way to a lower mean that the base goes in a round
	// Below this part of the limit it neither grows nor falls: requests are not held up by it
	inUse = 3

	probeEvery = 10 * time.Second
	// That a probe may take, or so many means: one until the requests under way are answered,
	// others to measure
	probeLeast = time.Second
	probeMeans = 4
	quietAfter = 10 * time.Second // shedding is over
	minRound   = 20               // answers; in a probe half of them
)

// A Config bounds a Limiter. The zero Config has the defaults.
type Config struct {
	// Of the limit; Min also while its origin hardly answers. 0: DefaultMin, DefaultMax
	Min int `json:"min" want:"1 to 1000000"`
	Max int `json:"max" want:"1 to 1000000"`
}

// WithDefaults is c with its defaults in place.
func (c Config) WithDefaults() Config {
	if c.Min == 0 {
		c.Min = DefaultMin
	}
	if c.Max == 0 {
		c.Max = max(DefaultMax, c.Min)
	}
	return c
}

// A Limiter is the limit of one origin. It is safe for concurrent use.
type Limiter struct {
	mu       sync.Mutex
	config   Config
	limit    float64
	inFlight int

	// The round under way: requests that began in it.
	began   time.Time
	most    int // in flight at once
	samples int
	sum     time.Duration

	base    time.Duration // 0: not known yet
	based   time.Time     // when it was measured, or could not be
	probing bool          // the limit is cut for this round
	until   time.Time     // at most

	waiting [Levels][]*Waiter // the last is the newest

	shed     [Levels]uint64
	lastShed time.Time
	shedding bool // as reported to operators
	reported uint64
}

// New makes a Limiter.
func New(c Config) *Limiter {
	c = c.WithDefaults()
	return &Limiter{config: c, limit: float64(max(c.Min, min(firstLimit, c.Max)))}
}

// Configure changes its bounds.
func (l *Limiter) Configure(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c.WithDefaults()
	l.bound(l.limit)
}

func (l *Limiter) bound(limit float64) {
	l.limit = max(float64(l.config.Min), min(limit, float64(l.config.Max)))
}

// force is the limit in force.
func (l *Limiter) force() float64 {
	if l.probing {
		return max(float64(l.config.Min), l.limit/cut)
	}
	return l.limit
}

// hasRoom reports whether there is a slot for a request of that level. The first always finds one.
func (l *Limiter) hasRoom(level Level) bool {
	limit := l.limit
	if level != Critical {
		limit = l.force()
	}
	return l.inFlight < max(1, int(limit*share[level]))
}

// A Waiter is a request that waits for a slot.
type Waiter struct {
	Ready chan struct{} // closed when it has one
	level Level
}

// Enter takes a slot for a request: it gets one, or waits for one if it may, or is shed. There are
// at most so many waiters of a level as the limit allows requests: what a waiter holds is its
// client's connection, and some hundred bytes.
func (l *Limiter) Enter(level Level, waits bool, now time.Time) (entered bool, w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.probing && now.After(l.until) {
		// No request came to be measured, or critical requests alone are more than the limit that
		// is cut
		l.probing, l.based = false, now
	}
	switch {
	case l.hasRoom(level):
		l.enter()
		return true, nil
	case waits && len(l.waiting[level]) < int(l.limit):
		w = &Waiter{Ready: make(chan struct{}), level: level}
		l.waiting[level] = append(l.waiting[level], w)
		return false, w
	}
	l.refuse(level, now)
	return false, nil
}

func (l *Limiter) enter() {
	l.inFlight++
	l.most = max(l.most, l.inFlight)
}

func (l *Limiter) refuse(level Level, now time.Time) {
	l.shed[level]++
	l.lastShed = now
}

// Abandon ends the wait of a request: its time is up, and it is shed, or its client has gone. It
// reports whether it had a slot by then, which is to be used or left.
func (l *Limiter) Abandon(w *Waiter, gone bool, now time.Time) (entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.waiting[w.level]
	for i := range list {
		if list[i] == w {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			l.waiting[w.level] = list[:len(list)-1]
			if !gone {
				l.refuse(w.level, now)
			}
			return false
		}
	}
	return true
}

// An Outcome is what a request shows about its origin.
type Outcome uint8

const (
	Answered   Outcome = iota // so long it took
	Unended                   // no answer: it would have taken longer
	Unmeasured                // nothing
)

// Leave gives a slot back. The request was passed on at the time given.
func (l *Limiter) Leave(o Outcome, began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	if l.probing && l.inFlight >= int(l.force()) {
		l.began = now // requests passed on until now have waited at the origin
	}
	took := now.Sub(began)
	if o == Answered || o == Unended && l.base > 0 && took > tolerance*l.base {
		l.sample(began, max(took, 1), now)
	}
	l.admit()
}

// admit lets waiters in, as far as there is room.
func (l *Limiter) admit() {
	for _, level := range byPriority {
		for list := l.waiting[level]; len(list) > 0 && l.hasRoom(level); list = l.waiting[level] {
			// The newest first: in an overload that lasts, the first to come would each wait their
			// whole time and be served when they are about to give up (Maurer, Fail at Scale, ACM
			// Queue 2015).
			last := len(list) - 1
			w := list[last]
			list[last] = nil
			l.waiting[level] = list[:last]
			l.enter()
			close(w.Ready)
		}
	}
}

// A Slot is that of one request whose body is still arriving. While the origin waits for the client
// the slot is lent to others: otherwise a few slow clients would hold them all. It is taken back
// without waiting, or a long body would have come in vain. So more requests than the limit may be
// under way for as long as those take, and none is let in meanwhile.
type Slot struct {
	of         *Limiter
	lent, over bool // under its mutex
}

// Entered returns the slot of a request that has entered.
func (l *Limiter) Entered() *Slot { return &Slot{of: l} }

// Lend is called when the origin begins to wait for the client, and Return when it does no more.
func (p *Slot) Lend() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.over {
		p.lent = true
		p.of.inFlight--
		p.of.admit()
	}
}

func (p *Slot) Return() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.back()
}

func (p *Slot) back() {
	if p.lent {
		p.lent = false
		p.of.enter()
	}
}

// End comes before the request leaves. Nothing is lent from then on, though the body may still be
// coming.
func (p *Slot) End() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.back()
	p.over = true
}

// sample takes an answer into the round, and ends that if it has enough. Requests that were passed
// on before a round began belong to another limit.
func (l *Limiter) sample(began time.Time, took time.Duration, now time.Time) {
	if l.began.IsZero() {
		l.began = began
	}
	if began.Before(l.began) {
		return
	}
	l.samples++
	l.sum += took
	want := max(minRound, int(l.force()/2))
	if l.probing {
		want = minRound / 2
	}
	if l.samples >= want {
		l.round(l.sum/time.Duration(l.samples), now)
		l.began, l.most, l.samples, l.sum = now, l.inFlight, 0, 0
	}
}

// round is the end of a round.
func (l *Limiter) round(mean time.Duration, now time.Time) {
	due := now.Unix()/int64(probeEvery/time.Second) != l.based.Unix()/int64(probeEvery/time.Second)
	idle := l.most <= max(l.config.Min, int(l.limit/cut))
	switch {
	case l.base == 0 || l.probing || idle && due:
		l.base, l.based = mean, now
	case mean < l.base:
		l.base -= (l.base - mean) / fall
	}
	if l.probing {
		l.probing = false
		return
	}
	if float64(inUse*l.most) < l.limit {
		return
	}
	gradient := max(0.5, min(1, tolerance*float64(l.base)/float64(mean)))
	l.bound(l.limit*gradient + math.Sqrt(l.limit))
	l.probing = due && !idle && float64(mean) > late*float64(l.base)
	l.until = now.Add(max(probeLeast, probeMeans*mean))
}

// Status is a Limiter at a moment.
type Status struct {
	Limit    int
	InFlight int
	Waiting  int
	Shed     [Levels]uint64 // by level
	Base     time.Duration  // its origin's latency without a queue; 0: not known yet
	// It sheds, or did in the last ten seconds, as of the last call of Moved
	Shedding bool
}

func (l *Limiter) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Limit: int(l.force()), InFlight: l.inFlight, Shed: l.shed, Base: l.base,
		Shedding: l.shedding}
	for _, list := range l.waiting {
		s.Waiting += len(list)
	}
	return s
}

// Moved reports whether shedding has begun or ended since its last call. It is called about once a
// second, so that no event is recorded while requests wait for the mutex.
func (l *Limiter) Moved(now time.Time) (shedding, moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := uint64(0)
	for _, n := range l.shed {
		total += n
	}
	was := l.shedding
	l.shedding = total != l.reported || was && now.Sub(l.lastShed) < quietAfter
	l.reported = total
	return l.shedding, l.shedding != was
}
