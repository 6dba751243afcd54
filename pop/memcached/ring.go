package memcached

import "sluice/pop/wire"

// ring holds command i in slot i of its length, a power of two that is no more than has been
// needed: a larger one would be used all round as well, and leave no room in the processor's cache.
type ring []slot

func (r ring) at(i uint64) *slot { return &r[i&uint64(len(r)-1)] }

// grown is a ring twice as large that holds the same.
func (r ring) grown(head, tail uint64) ring {
	larger := make(ring, 2*len(r))
	for i := head; i < tail; i++ {
		*larger.at(i) = *r.at(i)
	}
	return larger
}

// slot is a command in a pipeline.
type slot struct {
	wire.Command
	end int // where its bytes end in those of its burst
}
