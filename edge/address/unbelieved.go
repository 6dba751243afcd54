package address

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/edge/top"
)

// Unbelieved watches for a proxy that source.trust lacks: a peer that is not trusted, whose
// requests name other clients, and which brings a large part of the traffic. Then all its clients
// are counted as one, and limited as one. The zero Unbelieved is ready; it is safe for concurrent
// use.
type Unbelieved struct {
	Total atomic.Uint64 // such requests

	mu       sync.Mutex
	peers    *top.Top  // who brings such requests; nil: none has
	since    time.Time // the beginning of this count
	received uint64    // requests until then
	warned   time.Time
}

const (
	unbelievedWindow = time.Minute // of a count, and between two warnings
	unbelievedLeast  = 100         // requests of a peer
	// One in so many of all requests: a balancer may have several addresses
	unbelievedPart = 5
)

// Hit counts a request of a peer that names another client.
func (u *Unbelieved) Hit(peer netip.Addr) {
	u.Total.Add(1)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.peers == nil {
		u.peers = top.New()
	}
	u.peers.Hit(counter.SourceOf(peer, 32, 128))
}

// Look returns the peer that an operator should be warned of at now, how many such requests it has
// brought, and of how many in all; n is 0 if there is none. received is how many requests there
// have been.
func (u *Unbelieved) Look(received uint64, now time.Time) (peer string, n, of uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since.IsZero() {
		u.since = now
	}
	if of = received - u.received; u.peers != nil && now.Sub(u.warned) >= unbelievedWindow {
		for _, worst := range u.peers.Heaviest(1) {
			if sure := worst.Count - worst.Error; sure >= unbelievedLeast &&
				sure >= of/unbelievedPart {
				peer, n, u.warned = worst.Source, sure, now
			}
		}
	}
	if n > 0 || now.Sub(u.since) >= unbelievedWindow {
		u.since, u.received, u.peers = now, received, nil
	}
	return peer, n, of
}
