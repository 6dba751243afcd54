package algorithm_test

import (
	"encoding/binary"
	"net/netip"
	"time"

	"sluice/counter"
)

// What lanes mean is tested through a table that has them: address and epoch are its sources and
// its time.

func address(n uint32) counter.Source {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return counter.SourceOf(netip.AddrFrom4(b), 32, 64)
}

var epoch = time.Unix(1_700_000_040, 0) // a whole minute
