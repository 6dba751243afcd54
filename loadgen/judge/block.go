package judge

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a DeployedJudge knows of the block under way of a source: when it began, where it is in
// force, when it ends.

// clock takes times to block from when sources cross their limit, as one way of counting sees it.
type clock struct {
	first, every *hdrhistogram.Histogram
	wall         *hdrhistogram.Histogram // until the kernel refuses; nil: it has refused nobody
	most         [3]int64
	partly       int
}

// crossing is how far the block under way of a source is by a clock.
type crossing struct {
	at    int64 // never: the source has not crossed its limit
	first bool  // time to block was taken on the first edge
	every bool  // and on every one
	wall  bool  // and by the kernel
}

func newTimes() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(24*time.Hour), 3) }

func newClock() clock {
	return clock{first: newTimes(), every: newTimes()}
}

func (c *clock) times() *TimeToBlock {
	return &TimeToBlock{
		FirstEdge:      quantilesOf(c.first, c.most[0], 1e9),
		EveryEdge:      quantilesOf(c.every, c.most[1], 1e9),
		FirstEdgeTimes: c.first, EveryEdgeTimes: c.every,
		Kernel: quantilesOf(c.wall, c.most[2], 1e9),
		Partly: c.partly,
	}
}

// opened notes that a block is under way.
func (j *DeployedJudge) opened(s *deployedState, until int64) {
	if !s.open {
		s.open, s.blockUntil = true, until
		j.tally.blocks++
	}
	s.blockUntil = max(s.blockUntil, until)
}

// expire ends the block under way if its time is over.
func (j *DeployedJudge) expire(s *deployedState, now int64) {
	if s.open && now >= s.blockUntil {
		j.closed(s)
	}
}

// closed ends the block under way and takes its figures.
func (j *DeployedJudge) closed(s *deployedState) {
	keep(j.overshoot, &j.most, int64(s.excess))
	for i := range s.crossings {
		if c := &s.crossings[i]; c.first && !c.every {
			j.clocks[i].partly++
		}
		s.crossings[i] = crossing{at: never}
	}
	s.open, s.excess, s.known = false, 0, 0
}

// cross notes which clocks find the source over its limit with the request of this moment.
func (j *DeployedJudge) cross(source int32, s *deployedState, now int64, over [2]bool) {
	for i, over := range over {
		switch c := &s.crossings[i]; {
		case over && c.at == never:
			c.at = now
			j.time(source, s, i, now) // it may be blocked already
		case !over && !s.open:
			c.at = never
		}
	}
}

// InForce takes the news that an edge has a source's mitigation in its table. News and decisions
// come in one order of time, a decision before news of the same instant.
func (j *DeployedJudge) InForce(f InForce) {
	j.fed = true
	now := int64(f.At)
	s := j.state(f.Source)
	until := int64(f.Until)
	if until == 0 {
		until = int64(f.Start) + j.timeout
	}
	if until <= now {
		return // it had ended before it was noticed
	}
	j.lose(now)
	j.expire(s, now)
	if !s.open {
		s.log.Drop(&j.o.Truth, now, j.window)
	}
	right := func(start int64) bool { return s.over.has(start) || !f.Total && s.full.has(start) }
	switch start := int64(f.Start); {
	case f.Operator:
		j.ordered(s, now, until)
	case now >= s.rightUntil && now >= s.wrongUntil:
		if right(start) {
			j.rightly(s, start, until)
		} else {
			s.wrongUntil, s.uncounted = until, true
		}
	// One more edge decided so before it had learned of the first
	case now < s.rightUntil && until > s.rightUntil && right(now):
		s.rightUntil = min(until, now+j.longest)
	}
	if j.timeout > 0 || f.Operator {
		j.reported(s, &f, until)
	}
	j.opened(s, until)
	j.inForce(f.Source, s, f.Edge, now)
}

func (j *DeployedJudge) inForce(source int32, s *deployedState, edge int16, now int64) {
	if edge < 0 || edge > 63 {
		return
	}
	s.known |= 1 << edge
	for i := range s.crossings {
		j.time(source, s, i, now)
	}
}

// time takes the time to block by a clock, if that happened just now.
func (j *DeployedJudge) time(source int32, s *deployedState, by int, now int64) {
	clock, c := &j.clocks[by], &s.crossings[by]
	if c.at == never || s.known == 0 {
		return
	}
	if !c.first {
		c.first = true
		keep(clock.first, &clock.most[0], now-c.at)
	}
	needed := j.running
	if j.o.Reach != nil {
		needed &= j.o.Reach(source, time.Duration(now))
	}
	if !c.every && s.known&needed == needed {
		c.every = true
		keep(clock.every, &clock.most[1], now-c.at)
	}
}

// walled notes that the kernel has refused a connection.
func (j *DeployedJudge) walled(s *deployedState, now int64) {
	for i := range s.crossings {
		if c := &s.crossings[i]; c.at != never && !c.wall {
			c.wall = true
			if j.clocks[i].wall == nil {
				j.clocks[i].wall = newTimes()
			}
			keep(j.clocks[i].wall, &j.clocks[i].most[2], now-c.at)
		}
	}
}

func keep(h *hdrhistogram.Histogram, most *int64, v int64) {
	*most = max(*most, v)
	Record(h, v)
}
