package edge

import (
	"net/http"
	"time"

	"sluice/edge/message"
)

// While a request waits for its turn it holds its connection and nothing else: no link to an
// origin, no lock, no slot in a table. What rules have counted of it stays counted when its client
// goes: its turn passes unused. A source has as many waiting as its rules' queues are long, for
// limiter.MaxDelay at most; all sources together have as many as limits.connections.

// lookEvery is how often a request that waits looks whether its client is still there.
const lookEvery = 250 * time.Millisecond

var clientGone = message.Refuse(http.StatusRequestTimeout, "client_gone",
	"The connection was closed before it was the request's turn.")

// waitTurn waits until it is the turn of an admitted request, and reports false if its client went
// away meanwhile.
func (x *Exchange) waitTurn() bool {
	s, left := x.server, x.decision.Delay
	s.stats.delayed.Add(1)
	s.stats.waiting.Add(1)
	defer s.stats.waiting.Add(-1)
	timer := time.NewTimer(min(left, lookEvery))
	defer timer.Stop()
	for {
		<-timer.C
		if x.front.Gone() {
			return false
		}
		if left -= lookEvery; left <= 0 {
			return true
		}
		timer.Reset(min(left, lookEvery))
	}
}
