package judge

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a DeployedJudge knows of the block under way of a source: when it began, where it is in force, when it ends.

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
	keep(j.overshoot, &j.most[0], int64(s.excess))
	if s.first && !s.every {
		j.partly++
	}
	s.open, s.excess, s.crossed, s.known, s.first, s.every = false, 0, never, 0, false, false
}

// InForce takes the news that an edge has a source's mitigation in its table. News and decisions come in one order of time,
// a decision before news of the same instant.
func (j *DeployedJudge) InForce(f InForce) {
	j.fed = true
	now := int64(f.At)
	s := j.state(f.Source)
	until := int64(f.Until)
	if until == 0 {
		until = int64(f.Start) + j.timeout
	}
	if until <= now {
		return // it had ended before it was heard of
	}
	j.expire(s, now)
	if !s.open {
		s.log.Drop(now, j.window)
	}
	if start := int64(f.Start); now >= s.rightUntil && now >= s.wrongUntil {
		if s.over.has(start) || !f.Total && s.full.has(start) {
			j.rightly(s, start)
		} else {
			s.wrongUntil, s.uncounted = until, true
		}
	}
	j.opened(s, until)
	j.inForce(f.Source, s, f.Edge, now)
}

func (j *DeployedJudge) inForce(source int32, s *deployedState, edge int16, now int64) {
	if edge < 0 || edge > 63 || j.timeout == 0 {
		return
	}
	s.known |= 1 << edge
	j.time(source, s, now)
}

// time takes the time to block, if that happened just now.
func (j *DeployedJudge) time(source int32, s *deployedState, now int64) {
	if s.crossed == never || s.known == 0 {
		return
	}
	if !s.first {
		s.first = true
		keep(j.first, &j.most[1], now-s.crossed)
	}
	needed := j.running
	if j.o.Reach != nil {
		needed &= j.o.Reach(source, time.Duration(now))
	}
	if !s.every && s.known&needed == needed {
		s.every = true
		keep(j.every, &j.most[2], now-s.crossed)
	}
}

func keep(h *hdrhistogram.Histogram, most *int64, v int64) {
	*most = max(*most, v)
	Record(h, v)
}
