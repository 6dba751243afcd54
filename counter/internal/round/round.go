// Package round lets requests wait together for one answer of the tier: those for a rank among the hits of a counter (package counter), and
// those for a place in flight (counter/inflight).
//
// Requests of a key that come while the tier is being asked for others of it are its next round. So a key has two rounds at most, and a
// request waits for two answers at most. The tier counts in one order, so who is within the limit is a number: the room that it leaves
// to the whole round, which requests use up in the order in which they hear of it. What is asked, and how the room follows, is for others to say.
package round

// Answer is what the tier says of a request.
type Answer uint8

const (
	Silent Answer = iota // it has not answered
	Within               // it is within the limit
	Beyond               // it is not, and does not count
	Doubt                // nobody knows whether it is within the limit
)

// Round is hits that are ranked together.
type Round struct {
	Reply   chan struct{} // closed when they are, or when nobody will
	Waiting uint32        // hits whose requests have neither heard of it nor gone on without it
	Room    uint32        // hits that are within the limit, and whose requests have not heard of it
	Ranked  bool
}

// New begins a round.
func New() Round { return Round{Reply: make(chan struct{})} }

// Rank takes in how many hits more the limit allows, without those that wait, and returns how many of them are beyond it.
func (r *Round) Rank(more int64) (beyond uint32) {
	r.Ranked, r.Room = true, uint32(min(max(more, 0), int64(r.Waiting)))
	return r.Waiting - r.Room
}

// Take says what the tier has said of so many hits that waited, all of one request. They wait no more.
func (r *Round) Take(hits uint32) Answer {
	r.Waiting -= hits
	switch {
	case !r.Ranked:
		return Silent
	case r.Room < hits:
		return Beyond
	}
	r.Room -= hits
	return Within
}

// End tells who waits that there is an answer, or that none will come.
func (r *Round) End() { close(r.Reply) }
