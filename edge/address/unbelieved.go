package address

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Unbelieved watches for a proxy that nobody named: a peer that is not trusted, whose requests name other clients, and which brings a
// large part of the traffic. Then all its clients are counted as one, and limited as one.
//
// Which peers bring most of such requests is kept in a few places (Misra and Gries: "Finding repeated elements", 1982): who brings more
// than one in nine of them is among these, with a count that is never too large. The zero Unbelieved is ready; it is safe for concurrent use.
type Unbelieved struct {
	Total atomic.Uint64 // such requests

	mu       sync.Mutex
	peers    [8]peerCount
	since    time.Time // the beginning of this count
	received uint64    // requests until then
	warned   time.Time
}

type peerCount struct {
	addr netip.Addr
	n    uint64
}

const (
	unbelievedWindow = time.Minute // of a count, and between two warnings
	unbelievedLeast  = 100         // requests of a peer
	unbelievedPart   = 5           // one in so many of all requests: a balancer may have several addresses
)

// Hit counts a request of a peer that names another client.
func (u *Unbelieved) Hit(peer netip.Addr) {
	u.Total.Add(1)
	u.mu.Lock()
	defer u.mu.Unlock()
	var free *peerCount
	for i := range u.peers {
		p := &u.peers[i]
		if p.n > 0 && p.addr == peer {
			p.n++
			return
		}
		if p.n == 0 {
			free = p
		}
	}
	if free != nil {
		*free = peerCount{peer, 1}
		return
	}
	for i := range u.peers {
		u.peers[i].n--
	}
}

// Look returns the peer that an operator should be warned of at now, how many such requests it has brought, and of how many in all; n is 0 if
// there is none. received is how many requests there have been.
func (u *Unbelieved) Look(received uint64, now time.Time) (peer netip.Addr, n, of uint64) {
	var worst peerCount
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since.IsZero() {
		u.since = now
	}
	if of = received - u.received; now.Sub(u.warned) >= unbelievedWindow {
		for _, p := range u.peers {
			if p.n > worst.n && p.n >= unbelievedLeast && p.n >= of/unbelievedPart {
				worst = p
			}
		}
	}
	if worst.n > 0 {
		u.warned = now
	}
	if worst.n > 0 || now.Sub(u.since) >= unbelievedWindow {
		u.since, u.received, u.peers = now, received, [8]peerCount{}
	}
	return worst.addr, worst.n, of
}
