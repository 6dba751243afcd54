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
	// Ask asks the tier for what it has of a source, because a request waits for it (counter.Table.Await).
	Ask func(rule *algorithm.Rule, source counter.Source)
	// Rules tells which rules are in force from now on.
	Rules func(rules []TierRule)
	// Unready says why the edge should get no requests; "": it may.
	Unready func() string
	// EdgeCount is how many edges share the tier, this one included, as far as this one knows.
	EdgeCount func() int
	// PoP is what operators ask.
	PoP control.PoP
}

// TierRule is what a tier needs to know of a rule.
type TierRule struct {
	Counter *algorithm.Rule
	Name    string
	Timeout time.Duration // bounds every mitigation that comes out of the tier; 0: there are none
	Repeat  mitigation.Repeat
	Shadow  bool
	// Candidate says that these are the mitigations of a rule's candidate: Counter counts nothing, lifts of Name hold, blocks do not. The same
	// holds of what counts by limits that other proxies send, but that Counter counts, and has no mitigations.
	Candidate bool
	// Of, of a variant by another limit, is the ID of the rule's own counters: operators block under those, and lifts of Name hold. 0: this is none.
	Of uint32
	// Further says that this is another limit of the rule of that Name than its first: lifts of Name hold, and blocks are the first's.
	Further bool
	V4, V6  int // lengths of the prefixes that it counts by; -1: it counts no addresses of that family. 0: not said
}
