package worst

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
	"sluice/pop/sim"
)

const (
	perSecond = 100 // requests in the PoP at least: the budget is for a thousand in ten seconds
	settle    = 200 * time.Millisecond
	roundTrip = time.Millisecond
	maxCrowd  = 400 // sources at a time
)

// Run is what a behaviour cost.
type Run struct {
	Behaviour
	sim.Cost
	Nodes    int
	Crowd    int // how many sources at a time it took to make enough requests
	Requests int
	Lasted   time.Duration
	Lives    int // blocks of a source, or windows in which it made requests where that is more
}

// run lets so many requests happen. Where one source does not make enough of them, several do the same, one after the other.
func (b Behaviour) run(nodes, requests int, seed uint64) (Run, error) {
	c, err := algorithm.NewSliding("worst", b.Limit, b.Window, b.SubWindows, b.Estimate)
	if err != nil {
		return Run{}, err
	}
	c.Sync = b.Sync
	rule := limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: b.Timeout}}
	began := time.Unix(1_700_000_000, 0)
	shared := secret.Of(binary.BigEndian.AppendUint64(nil, seed))
	w, err := sim.New(sim.Config{Edges: b.Edges, Nodes: nodes, RTT: roundTrip, Wait: 5 * roundTrip, Counters: 4096, Secret: shared}, []limiter.Rule{rule}, began)
	if err != nil {
		return Run{}, err
	}
	r := Run{Behaviour: b, Nodes: nodes, Crowd: b.crowd()}
	rng := rand.New(rand.NewPCG(seed, 0))
	sources := make(map[counter.Source]*source)
	for _, e := range w.Edges {
		e.Bits.Observe = func(k mitigation.Key, bit mitigation.Bit) {
			if s := sources[k.Source]; s != nil && bit.Start.After(s.blocked) {
				s.lives, s.blocked = s.lives+1, bit.End
			}
		}
	}
	w.Run(began.Add(settle)) // edges have found each other's log
	before := w.Cost
	start := w.Now()
	number := uint32(0)
	crowd := make([]*source, r.Crowd)
	appear := func(i int, at time.Time) {
		number++
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], number)
		s := &source{id: counter.SourceOf(netip.AddrFrom4(ip), 32, 64), behaviour: &r.Behaviour, first: at, next: at, edge: rng.IntN(b.Edges)}
		sources[s.id], crowd[i] = s, s
	}
	length := b.length()
	for i := range crowd {
		appear(i, start.Add(length*time.Duration(i)/time.Duration(len(crowd))))
	}
	for r.Requests < requests {
		first := 0
		for i, s := range crowd {
			if s.next.Before(crowd[first].next) {
				first = i
			}
		}
		s := crowd[first]
		w.Run(s.next)
		if w.Now().Sub(start) > 10*time.Second*time.Duration(requests)/1000 {
			break // too few in too long
		}
		switch s.step(w, &rule, rng) {
		case asked:
			r.Requests++
		case ended:
			if b.Fresh {
				appear(first, s.next)
			} else {
				s.phase, s.done = 0, 0
			}
		}
	}
	r.Lasted = w.Now().Sub(start)
	w.Run(w.Now().Add(settle))
	for _, s := range sources {
		if s.asked {
			r.Lives += max(s.lives, 1+int(s.last.Sub(s.first)/b.Window))
		}
	}
	r.Cost = w.Cost.Minus(before)
	return r, nil
}

// crowd is how many sources make perSecond requests together.
func (b *Behaviour) crowd() int {
	requests := 0
	for _, p := range b.Phases {
		requests += p.Requests
	}
	return min(1+int(1.1*perSecond*b.length().Seconds()/float64(requests)), maxCrowd)
}

// length is how long a source takes for its phases, about.
func (b *Behaviour) length() (d time.Duration) {
	for _, p := range b.Phases {
		d += time.Duration((p.Requests-1)/p.AtOnce)*p.Gap + p.Pause
		if share := time.Duration(p.Requests) * b.even() * 100; !b.Fresh && p.Ceiling > 0 {
			d = max(d, share/time.Duration(p.Ceiling))
		}
	}
	return max(d, time.Millisecond)
}

// source is one that behaves.
type source struct {
	behaviour   *Behaviour
	id          counter.Source
	phase, done int
	edge        int
	next        time.Time
	first, last time.Time // requests
	asked       bool
	admitted    []time.Time // in the last window
	blocked     time.Time
	lives       int
}

type happened uint8

const (
	waited happened = iota
	asked
	ended
)

// step lets the source do its next thing now, and says when the one after is due.
func (s *source) step(w *sim.World, rule *limiter.Rule, rng *rand.Rand) happened {
	b, now := s.behaviour, w.Now()
	if s.phase == len(b.Phases) {
		return ended
	}
	p := &b.Phases[s.phase]
	for len(s.admitted) > 0 && now.Sub(s.admitted[0]) > b.Window {
		s.admitted = s.admitted[1:]
	}
	if most := max(int(b.Limit)*p.Ceiling/100, 1); p.Ceiling > 0 && len(s.admitted) >= most {
		if b.Fresh {
			s.phase = len(b.Phases)
			return waited
		}
		s.next = s.admitted[len(s.admitted)-most].Add(b.Window + time.Millisecond)
		return waited
	}
	if !w.Edges[s.edge].Request(rule, s.id).Refused() {
		s.admitted = append(s.admitted, now)
	}
	s.asked, s.last = true, now
	switch p.Way {
	case Next:
		s.edge = (s.edge + 1) % b.Edges
	case Any:
		s.edge = rng.IntN(b.Edges)
	}
	s.done++
	if s.done%p.AtOnce == 0 && s.done < p.Requests {
		s.next = now.Add(p.Gap)
	}
	if s.done == p.Requests {
		s.next = now.Add(p.Pause)
		s.phase, s.done = s.phase+1, 0
		s.edge = (s.edge + 1) % b.Edges
		if s.phase == len(b.Phases) && p.Pause == 0 {
			s.next = now.Add(time.Millisecond)
		}
	}
	return asked
}

// String is the run's behaviour and how large it was.
func (r Run) String() string { return fmt.Sprintf("%d at a time: %v", r.Crowd, r.Behaviour) }
