package marks

import "time"

// Trial decides whether an edge should get no requests, because it is the odd one out: it has met
// no other edge under its own secret, and at least two living ones share another. With one stranger
// it is unknown which of the two is wrong, so both warn and serve; so do all where each has a
// secret of its own.
//
// A process is on trial for its first minute, until it has met another edge under its secret
// (presence, which is authentic; of another name, because its own process before it is no company).
// An edge that is held back stays so until it meets one, or the strangers are gone. After that
// marks hold back nothing, for as long as the process lives, because anyone that reaches a node can
// forge them. A secret is read at the start alone, so an edge that was right stays right.
//
// So an attacker that can write to the nodes cannot take an edge out of service. At worst he keeps
// out one that starts meanwhile, for as long as he goes on, if it is the only one, or if he also
// deletes what the others say of themselves as fast as they say it.
type Trial struct {
	Began time.Time // the process

	over bool
}

// trialFor is so long that an edge with a wrong secret has read the others' marks several times.
const trialFor = time.Minute

// Held takes in how many other edges have been met under this edge's secret, and which count apart.
func (t *Trial) Held(met int, apart []Edge, now time.Time) bool {
	if t.over = t.over || met > 0; t.over {
		return false
	}
	held, same := false, make(map[string]int)
	for _, e := range apart {
		if e.Rotating {
			continue
		}
		same[e.Digests[0]]++
		held = held || same[e.Digests[0]] >= 2
	}
	t.over = !held && now.Sub(t.Began) >= trialFor
	return held
}
