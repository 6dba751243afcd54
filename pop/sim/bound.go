package sim

import (
	"time"

	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/log"
)

// Propagation is how long it takes at most, with the given round trip to the nodes, until every one
// of so many edges knows of a hit of a source that is near its limit. The hit may have to wait for
// the report that is under way, that one's counter may be new and its add lose a race: three round
// trips until its answer is there, and one to read older groups of which nothing is known. The edge
// whose report has brought the counter there requests a number of the log, which may have to be
// begun: three. The record goes to the node and the other edges, which read the log every 15 ms:
// one and a half. Edges take turns to write. Where requests have used up the budget of commands
// (announcement.Budget), nothing is announced but blocks.
func Propagation(roundTrip time.Duration, edges int) time.Duration {
	return 17*roundTrip/2 + pop.Soonest + time.Duration(edges)*log.PerItem
}

// Bound is the most requests of one source that a PoP of so many edges admits in any window, all
// its edges and nodes running. Heard is the most requests that the source sends within Propagation,
// cut the most within a sub-window and what clocks are apart.
//
// Let e be the edge that admits the last request of a window. Its estimate was at most the limit N
// then, so what was admitted is at most N, what e did not know, and what its formula left out.
//
// What it did not know: once an edge has seen two thirds of the limit, an announcement is on its
// way to all edges, which then hold back nothing and know of a hit within Propagation; until then,
// they hold back a third of the limit at most, all together (counter.Table). So everything that is
// admitted above N is admitted within Propagation by edges that count at least their own hits: each
// of the other E-1 edges at most N, and at most what the source sends.
//
// Bound leaves out what edges do not see because it stands in older groups: an answer has the
// newest, and an edge reads the others once it knows of a few hits, or of none
// (counter.Reports.Take, counter.Reply.Past). A source whose requests are laid out for that may be
// admitted more, at most a limit (docs/design/bound.md).
//
// What the formula leaves out is hits in the sub-window that the window's beginning cuts. They are
// at most what the source sends in that time. They are no more than N if blocks last a window,
// because a source of which more was counted is blocked until they are out of the window.
func Bound(r mitigation.Rule, edges int, sent, cut uint32) uint64 {
	n := uint64(r.Counter.Limit)
	base := n + uint64(edges-1)*min(n, uint64(sent))
	most := base
	if r.Timeout >= r.Counter.Window {
		most = n
	}
	return base + min(most, uint64(cut))
}
