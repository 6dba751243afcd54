package slowclients

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A phase is a part of an attack, and the p99 of an ordinary second of it at an edge that is attacked and at one that is not.
type phase struct {
	name          string
	with, without time.Duration
}

// ratio is how many times as long the one takes as the other.
func (p phase) ratio() float64 { return float64(p.with) / float64(p.without) }

// slowSeconds are the seconds of a phase. Of six the third in order is an ordinary one, though a stall of two seconds may spoil three.
const slowSeconds = 6

// phasesOf are the phases of an attack in which slow connections open for so long, stand for as long, and end for as long again or
// a little longer. In each the p99 of every second is taken, and of these the median, the lower one of two. So what holds up an edge for
// a moment is not seen, whatever it is, and what harms it for more than half of a phase is.
func phasesOf(with, without []probed, length time.Duration) []phase {
	phases := []phase{{name: "opening"}, {name: "standing"}, {name: "ending"}}
	for i := range phases {
		p, from, to := &phases[i], length*time.Duration(i), length*time.Duration(i+1)
		if i == len(phases)-1 {
			to = math.MaxInt64
		}
		p.with, p.without = ordinary(with, from, to, length/slowSeconds), ordinary(without, from, to, length/slowSeconds)
	}
	return phases
}

// worstPhase is the one in which an attack does the most harm.
func worstPhase(phases []phase) phase {
	return slices.MaxFunc(phases, func(a, b phase) int { return cmp.Compare(a.ratio(), b.ratio()) })
}

// ordinary is the median of the seconds' p99, of requests that were due from one time to another.
func ordinary(answers []probed, from, to, second time.Duration) time.Duration {
	seconds := make(map[time.Duration][]probed)
	for _, a := range answers {
		if a.due >= from && a.due < to {
			seconds[(a.due-from)/second] = append(seconds[(a.due-from)/second], a)
		}
	}
	if len(seconds) == 0 {
		return 0
	}
	var p99 []time.Duration
	for _, s := range seconds {
		p99 = append(p99, quantile(0.99, s))
	}
	slices.Sort(p99)
	return p99[(len(p99)-1)/2]
}
