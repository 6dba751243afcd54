package edge

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/control"
	"sluice/mitigation"
)

// Tier is what the edge needs of the PoP, as functions; any of them may be nil, and the zero Tier
// is an edge that counts alone. They are called from many goroutines, and but for Say must not
// wait. Verdicts need no function: the PoP takes them from the mitigation table.
type Tier struct {
	// Up reports whether a node answers for a source: its own, or the one that replaces it. Where
	// it does not, a rule's on_store_failure decides.
	Up func(source counter.Source) bool
	// Alone returns how many edges shared the tier, as last known, and since when no node answers;
	// the zero time: one does.
	Alone func() (edges int, since time.Time)
	// Fetch reads what the tier has of a source, because a request waits for it
	// (counter.Table.Await).
	Fetch func(rule *algorithm.Spec, source counter.Source)
	// Rules registers which rules are in force from now on.
	Rules func(rules []mitigation.Rule)
	// Unready returns why the edge should get no requests; "": it may.
	Unready func() string
	// PoP is what operators need of it.
	PoP control.PoP
}
