// Package round lets requests wait together for one answer of the tier: those for a rank among the
// hits of a counter (package counter), and those for a slot (counter/inflight).
//
// Requests of a key that come while a round of it is under way are its next round. So a key has two
// rounds at most, and a request waits for two answers at most. The tier counts in one order, so one
// number decides which are within the limit: the room that it leaves to the whole round, which
// requests use up in the order in which they take the answer. The callers define what is sent, and
// how the room follows.
package round

// Answer is the tier's answer to a request.
type Answer uint8

const (
	NoAnswer Answer = iota // it has not answered
	Admit                  // it is within the limit
	Reject                 // it is not, and does not count
	Unknown                // it is unknown whether it is within the limit
)

// Round is hits that are ranked together.
type Round struct {
	Reply chan struct{} // closed when they are, or when none will come
	// Hits whose requests have neither taken the answer nor gone on without it
	Waiting uint32
	// Hits that are within the limit, and whose requests have not taken the answer
	Room   uint32
	Ranked bool
}

// New begins a round.
func New() Round { return Round{Reply: make(chan struct{})} }

// Rank takes in how many hits more the limit allows, without those that wait, and returns how many
// of them are beyond it.
func (r *Round) Rank(more int64) (beyond uint32) {
	r.Ranked, r.Room = true, uint32(min(max(more, 0), int64(r.Waiting)))
	return r.Waiting - r.Room
}

// Take returns the tier's answer about so many hits that waited, all of one request. They wait no
// more.
func (r *Round) Take(hits uint32) Answer {
	r.Waiting -= hits
	switch {
	case !r.Ranked:
		return NoAnswer
	case r.Room < hits:
		return Reject
	}
	r.Room -= hits
	return Admit
}

// End wakes the requests that wait: there is an answer, or none will come.
func (r *Round) End() { close(r.Reply) }
