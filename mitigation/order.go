package mitigation

import (
	"time"

	"sluice/counter"
)

// Order is what an operator orders for a source under a rule, or for the rule itself, in the form
// that all edges of the PoP share.
type Order struct {
	Rule   string         // as configured, so that it means the same when the rule is edited
	Source counter.Source // of a block or a lift
	Kind   OrderKind
	Start  time.Time
	End    time.Time // of a block, and of a change that ends; a lift has none
	Reason string    // of a block
	Text   string    // of a change: its content
	// Of a block or a lift who ordered it and from where, for other operators. A change holds that
	// itself.
	Who, From string
}

// OrderKind is what an Order does.
type OrderKind uint8

const (
	OrderBlock OrderKind = iota + 1
	OrderLift            // ends the mitigation and forgets the counts
	// of a rule; what it says means nothing to the PoP, but for which of those before it are in
	// force beside it
	OrderChange
)

// Spread is how far orders have come.
type Spread struct {
	Known   int      `json:"known"`   // edges of the PoP, this one included
	Have    int      `json:"have"`    // of them, those where they are in force
	Missing []string `json:"missing"` // the others, by name
}
