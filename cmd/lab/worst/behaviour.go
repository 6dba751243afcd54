package worst

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sluice/counter/algorithm"
)

// Behaviour is a PoP's rule and what sources do about it. Every source runs through the phases again and again, from its first request on
// another edge than the next source.
type Behaviour struct {
	Edges      int
	Limit      uint32
	Window     time.Duration
	Timeout    time.Duration // of a mitigation; 0: the rule throttles
	SubWindows int
	Estimate   algorithm.Estimate
	Fresh      bool // in the place of a source that has run through its phases once, or has come to its ceiling, comes one never seen before
	Phases     []Phase
	Sync       bool // the rule asks the tier before each decision
}

// Phase is some requests of one source, and the pause after them.
type Phase struct {
	Requests int
	AtOnce   int           // how many at the same instant
	Gap      time.Duration // until the next so many
	Way      Way
	Ceiling  int // percent of the limit: with so many admitted in a window, the source waits until the first of them has left it; 0: it does not look
	Pause    time.Duration
}

// Way is which edge gets the next request.
type Way uint8

const (
	Next Way = iota // one after the other
	Same            // one edge gets those of a phase
	Any             // whichever
	ways
)

func (w Way) String() string { return [...]string{"next edge", "same edge", "any edge"}[w] }

func (b Behaviour) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d edges, limit %d in %v by %d (%v), ", b.Edges, b.Limit, b.Window, b.SubWindows, b.Estimate)
	if b.Timeout == 0 {
		s.WriteString("throttles")
	} else {
		fmt.Fprintf(&s, "blocks for %v", b.Timeout)
	}
	if b.Fresh {
		s.WriteString("; always new sources")
	}
	for _, p := range b.Phases {
		fmt.Fprintf(&s, "; %d requests", p.Requests)
		if p.AtOnce > 1 {
			fmt.Fprintf(&s, ", %d at once", p.AtOnce)
		}
		if p.AtOnce < p.Requests {
			fmt.Fprintf(&s, ", every %v", p.Gap)
		}
		fmt.Fprintf(&s, ", %v", p.Way)
		if p.Ceiling > 0 {
			fmt.Fprintf(&s, ", up to %d%%", p.Ceiling)
		}
		if p.Pause > 0 {
			fmt.Fprintf(&s, ", pause %v", p.Pause)
		}
	}
	return s.String()
}

// startingPoints are where the search begins: what looks expensive to who knows the code. What is 0 is drawn.
var startingPoints = []Behaviour{
	// Each source comes to its limit by its first request, and is not seen again.
	{Limit: 1, Fresh: true, Phases: []Phase{{Requests: 1, AtOnce: 1, Pause: 100 * time.Millisecond}}},
	// It meets two edges at the same time, and is blocked.
	{Edges: 2, Limit: 1, Timeout: 10 * time.Second, Fresh: true, Phases: []Phase{{Requests: 2, AtOnce: 2, Pause: 100 * time.Millisecond}}},
	// It hovers at its limit, on all edges at the same time.
	{Edges: 64, Limit: 64, Window: time.Second, Phases: []Phase{{Requests: 64, AtOnce: 64, Pause: time.Second}}},
	{Edges: 64, Limit: 4, Window: time.Second, Phases: []Phase{{Requests: 4, AtOnce: 4, Pause: time.Second}}},
	// The same, through one edge after the other.
	{Edges: 64, Limit: 60, Window: 10 * time.Second, Phases: []Phase{{Requests: 60, AtOnce: 1, Gap: 160 * time.Millisecond, Ceiling: 97}}},
}

// startingPoint is one of them, where it is not at odds with what is to be searched.
func (o *Options) startingPoint(i int, rng *rand.Rand) Behaviour {
	b, s := o.draw(rng), startingPoints[i]
	b.SubWindows, b.Estimate, b.Fresh, b.Phases = 12, algorithm.Nearest, s.Fresh, slices.Clone(s.Phases)
	if s.Edges != 0 && o.Edges == 0 {
		b.Edges = s.Edges
	}
	if o.Limit == 0 {
		b.Limit = s.Limit
	}
	if s.Window != 0 && o.Window == 0 {
		b.Window = s.Window
	}
	if o.Timeout < 0 {
		b.Timeout = s.Timeout
	}
	return b
}

// draw makes a behaviour at random.
func (o *Options) draw(rng *rand.Rand) Behaviour {
	b := Behaviour{Fresh: rng.IntN(2) == 0}
	for field := range fields {
		o.redraw(&b, field, rng)
	}
	for range 1 + rng.IntN(3) {
		b.Phases = append(b.Phases, b.drawPhase(rng))
	}
	return b
}

const fields = 5

// redraw chooses one thing of the rule or the PoP anew, where it is free.
func (o *Options) redraw(b *Behaviour, field int, rng *rand.Rand) {
	switch field {
	case 0:
		if b.Edges = o.Edges; b.Edges == 0 {
			b.Edges = pick(rng, 1, 2, 3, 4, 8, 16, 32, 64)
		}
	case 1:
		if b.Limit = o.Limit; b.Limit == 0 {
			b.Limit = pick[uint32](rng, 1, 2, 3, 5, 8, 12, 16, 30, 60, 64, 100, 200, 300)
		}
	case 2:
		if b.Window = o.Window; b.Window == 0 {
			b.Window = pick[time.Duration](rng, 1, 1, 2, 5, 10, 60) * time.Second
		}
	case 3:
		if b.Timeout = o.Timeout; b.Timeout < 0 {
			b.Timeout = pick[time.Duration](rng, 0, 0, 1, 10) * time.Second
		}
	case 4:
		b.SubWindows, b.Estimate = pick(rng, 12, 12, 8, 4, 1), pick(rng, algorithm.Nearest, algorithm.Nearest, algorithm.Lower)
	}
}

func (b *Behaviour) drawPhase(rng *rand.Rand) Phase {
	n := pick(rng, 1, 2, 3, b.Edges, 2*b.Edges, int(b.Limit), int(b.Limit)+1, int(b.Limit)*2/3+1, 1+int(b.Limit)/b.Edges, 1+rng.IntN(100))
	p := Phase{
		Requests: n, AtOnce: min(n, pick(rng, 1, 1, 2, b.Edges, n)), Way: Way(rng.IntN(int(ways))),
		Ceiling: pick(rng, 0, 0, 60, 67, 90, 94, 97, 100, 1+rng.IntN(100)),
		Gap:     pick(rng, 100*time.Microsecond, time.Millisecond, 5*time.Millisecond, 30*time.Millisecond, b.even(), b.Window/time.Duration(12)),
		Pause:   pick(rng, 0, 0, 30*time.Millisecond, 100*time.Millisecond, time.Second, b.Window/12, b.Window/3, b.Window),
	}
	return p
}

// even is the gap between requests that come just at the limit.
func (b *Behaviour) even() time.Duration { return b.Window / time.Duration(b.Limit) }

// mutate changes one thing or a few.
func (o *Options) mutate(b Behaviour, rng *rand.Rand) Behaviour {
	b.Phases = slices.Clone(b.Phases)
	for range 1 + rng.IntN(3) {
		p := &b.Phases[rng.IntN(len(b.Phases))]
		other := b.drawPhase(rng)
		switch rng.IntN(12) {
		case 0:
			b.Fresh = !b.Fresh
		case 1, 2:
			o.redraw(&b, rng.IntN(fields), rng)
		case 3:
			if len(b.Phases) < 4 {
				b.Phases = append(b.Phases, other)
			}
		case 4:
			if n := len(b.Phases); n > 1 {
				b.Phases = b.Phases[:n-1]
			}
		case 5:
			p.Requests = max(p.Requests*pick(rng, 1, 2, 3)/2, 1)
			p.AtOnce = min(p.AtOnce, p.Requests)
		case 6:
			p.Requests, p.AtOnce = other.Requests, other.AtOnce
		case 7:
			p.AtOnce = min(p.Requests, other.AtOnce)
		case 8:
			p.Gap = other.Gap
		case 9:
			p.Way = other.Way
		case 10:
			p.Ceiling = other.Ceiling
		case 11:
			p.Pause = other.Pause
		}
	}
	return b
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }
