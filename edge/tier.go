package edge

import (
	"time"

	"sluice/counter"
)

// Tier is what the edge asks of the PoP, as functions; any of them may be nil, and the zero Tier is an edge that counts
// alone. They are called from many goroutines. Up, Ask and Rules must not wait. News of mitigations, begun or
// lifted, needs no function: the PoP takes it from the mitigation table.
type Tier struct {
	// Up reports whether somebody answers for a source: its node, or another that has taken its place. Where it does
	// not, a rule's on_store_failure decides.
	Up func(source counter.Source) bool
	// Ask asks the tier for what it has of a source, because a request waits for it (counter.Table.Await).
	Ask func(rule *counter.Rule, source counter.Source)
	// Rules tells which rules are in force from now on.
	Rules func(rules []TierRule)
	// Nodes describes the tier for the API.
	Nodes func() []NodeStatus
}

// TierRule is what a tier needs to know of a rule.
type TierRule struct {
	Counter *counter.Rule
	Name    string
	Timeout time.Duration // bounds every mitigation that comes out of the tier; 0: there are none
	Shadow  bool
}

// NodeStatus describes a node of the tier.
type NodeStatus struct {
	Address string `json:"address"`
	Up      bool   `json:"up"`
	Joining bool   `json:"joining,omitempty"` // of the new list only, while a change of the list is under way
	Leaving bool   `json:"leaving,omitempty"` // of the old list only
}
