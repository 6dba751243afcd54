package edge

import (
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/control"
	"sluice/mitigation"
)

// Tier is what the edge asks of the PoP, as functions; any of them may be nil, and the zero Tier is an edge that counts
// alone. They are called from many goroutines, and but for PoP.Say must not wait. News of verdicts needs no function: the PoP takes it from the
// mitigation table.
type Tier struct {
	// Up reports whether somebody answers for a source: its node, or another that has taken its place. Where it does
	// not, a rule's on_store_failure decides.
	Up func(source counter.Source) bool
	// Alone says how many edges shared the tier, as last known, and since when nobody in it answers; the zero time: somebody does.
	Alone func() (edges int, since time.Time)
	// Fetch asks the tier for what it has of a source, because a request waits for it (counter.Table.Await).
	Fetch func(rule *algorithm.Spec, source counter.Source)
	// Rules tells which rules are in force from now on.
	Rules func(rules []mitigation.Rule)
	// Unready says why the edge should get no requests; "": it may.
	Unready func() string
	// EdgeCount is how many edges share the tier, this one included, as far as this one knows.
	EdgeCount func() int
	// PoP is what operators ask.
	PoP control.PoP
}
