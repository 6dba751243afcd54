package design

import (
	"fmt"
	"time"

	"sluice/loadgen/judge"
)

// late is the limit of what edges can know that keep no request waiting. Each has an exact log of
// every source: of its own hits at once, and of those of other edges one round trip after they
// happened. A block that an edge starts holds on the others one round trip later, too. What it lets
// pass above the limit is what others had admitted within that time, so it is the floor that every
// limiter over these edges is held against. It never refuses a request within the limit.
type late struct {
	rule      rule
	edges     int
	roundTrip int64
	states    judge.PerSource[lateState]
	now       int64
	unsent    []judge.InForce // still to be sent, in the order of time
	spent     Cost
	peak      uint64 // hits, of each source its most at once
}

type lateState struct {
	hits   []lateHit   // of the last window, oldest first
	blocks []lateBlock // that have not ended
	most   int         // hits at once
}

type lateHit struct {
	at   int64
	edge int
}

type lateBlock struct {
	start, until int64
	edge         int
}

// FloorName is how Floor is called in a comparison.
const FloorName = "exact, one round trip late"

// Floor is the limit of what edges can know that keep no request waiting. It is no way of
// coordinating that could be built.
func Floor(o Options) Design {
	return floor(o.complete(), o)
}

// FloorOf is what Floor would have done with the requests of a run that is over, each at the edge
// that decided about it and at that time. What got no verdict gets none here. The decisions are in
// the order of time.
func FloorOf(o Options, known judge.Options, decisions []judge.Decision) judge.Figures {
	l := &late{rule: o.complete(), edges: o.Edges, roundTrip: int64(o.RoundTrip)}
	known.Edges, known.Slack, known.Grace, known.Lost, known.Bound, known.Watch = o.Edges, 0, 0,
		nil, nil, nil
	j := judge.NewDeployedJudge(known)
	advanceTo := func(at time.Duration) {
		l.advance(at)
		for _, f := range l.inForce() {
			j.InForce(f)
		}
	}
	for i := range decisions {
		theirs := &decisions[i]
		d := judge.Decision{Verdict: judge.Failed}
		if theirs.Verdict != judge.Failed {
			advanceTo(theirs.At)
			d = l.decide(int(theirs.Edge), theirs.Source)
		}
		d.At, d.Source, d.Edge, d.Role = theirs.At, theirs.Source, theirs.Edge, theirs.Role
		j.Decide(&d)
	}
	if n := len(decisions); n > 0 {
		advanceTo(decisions[n-1].At + time.Second)
	}
	return j.Figures()
}

func floor(r rule, o Options) Design {
	return Design{
		Name: FloorName, Kind: Coordination,
		About: fmt.Sprintf("the floor: what edges can know that keep no request waiting. An exact log of each source, with the hits and blocks of other edges after %v; "+
			"what counts in one place (above) knows them at once, and over several edges nothing can", o.RoundTrip),
		Start: func() (judge.Limiter, func() Cost) {
			l := &late{rule: r, edges: o.Edges, roundTrip: int64(o.RoundTrip)}
			return judge.Limiter{Advance: l.advance, Decide: l.decide, InForce: l.inForce}, l.cost
		},
	}
}

func (l *late) advance(at time.Duration) { l.now = int64(at) }

func (l *late) decide(edge int, source int32) judge.Decision {
	s := l.states.Of(source)
	if until := s.blocked(edge, l.now, l.roundTrip); until > 0 {
		return mitigated(until)
	}
	n := float64(s.known(edge, l.now, l.rule.window, l.roundTrip) + 1)
	over := n > l.rule.limit
	if over && l.rule.mode == judge.Deployed {
		var until int64
		d := l.rule.refuse(n, l.now, &until)
		if until > 0 {
			s.blocks = append(s.blocks, lateBlock{l.now, until, edge})
			l.announce(source, edge, until)
		}
		return d
	}
	s.hits = append(s.hits, lateHit{l.now, edge})
	l.spent.Commands++
	if len(s.hits) > s.most {
		s.most = len(s.hits)
		l.peak++
	}
	return judge.Decision{Estimate: n, Over: over}
}

// known is how many hits of the last window an edge knows of.
func (s *lateState) known(edge int, now, window, roundTrip int64) int {
	for len(s.hits) > 0 && s.hits[0].at <= now-window {
		s.hits = s.hits[1:]
	}
	n := len(s.hits)
	for i := n - 1; i >= 0 && s.hits[i].at > now-roundTrip; i-- {
		if s.hits[i].edge != edge {
			n--
		}
	}
	return n
}

// blocked is the latest end of the blocks that an edge knows of, or 0.
func (s *lateState) blocked(edge int, now, roundTrip int64) (until int64) {
	live := s.blocks[:0]
	for _, b := range s.blocks {
		if b.until <= now {
			continue
		}
		live = append(live, b)
		if b.edge == edge || b.start <= now-roundTrip {
			until = max(until, b.until)
		}
	}
	s.blocks = live
	return until
}

// announce sends a block to the other edges.
func (l *late) announce(source int32, from int, until int64) {
	l.spent.Commands++
	start := time.Duration(l.now)
	for edge := range l.edges {
		if edge != from {
			l.unsent = append(l.unsent, judge.InForce{
				Source: source, Edge: int16(edge), Start: start, At: start +
					time.Duration(l.roundTrip), Until: time.Duration(until),
			})
		}
	}
}

// inForce is which blocks edges have sent of.
func (l *late) inForce() []judge.InForce {
	n := 0
	for n < len(l.unsent) && int64(l.unsent[n].At) <= l.now {
		n++
	}
	sent := l.unsent[:n:n]
	l.unsent = l.unsent[n:]
	return sent
}

// cost is a command for each hit and block that is sent, and 8 bytes a hit on each edge.
func (l *late) cost() Cost {
	l.spent.Bytes = 8 * l.peak * uint64(l.edges)
	return l.spent
}
