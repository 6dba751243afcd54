package inflight

import "time"

// An epoch is a second of the wall clock. Its number decides while it lasts. Edges keep it from
// overlap before it begins, when they carry what they hold into it, until overlap after it has
// ended, for edges whose clocks are behind. So clocks may differ by overlap, less the time that
// carrying takes: an edge that is further behind or ahead counts apart.
//
// What a dead edge held stands in the number of the epoch in which it died, and in that of the next
// if it died within overlap of that: for 1.4 s at most.
const (
	epoch   = time.Second
	overlap = 400 * time.Millisecond

	// Lifetime is the seconds after which the tier forgets a number. It is kept for 1.8 s, clocks
	// may differ by twice overlap, and memcached forgets up to a second early.
	Lifetime = 4
)

// epochs are those that are kept at an instant, first to last, and the one that decides.
func epochs(wall time.Time) (first, decides, last uint32) {
	of := func(t time.Time) uint32 { return uint32(t.UnixNano() / int64(epoch)) }
	return of(wall.Add(-overlap)), of(wall), of(wall.Add(overlap))
}
