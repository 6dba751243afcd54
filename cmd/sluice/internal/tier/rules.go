package tier

import (
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
)

// RuleStore is where changes of rules are kept: in the PoP's list of what operators said, at a place
// of several PoPs, or in a list of this edge alone.
type RuleStore struct {
	Origin changes.Origin
	List   func() (entries []operatorlog.Entry, version uint64, moved <-chan struct{})
	// Version: of the list, as it was when the word was made
	Add func(w operatorlog.Order, version uint64, now time.Time) (operatorlog.Mark, error)
	// Publishes this edge's state; nil: the machine does
	Describe func(control.EdgeStatus)
	InForce  func(version uint64, refused []operatorlog.Mark)
	// Await waits until all edges say that changes are in force there, and none of them has a newer
	// one that this edge does not know, or for as long as an operator waits. The spread is nil if
	// it is unknown; nil: there are no others.
	Await func(made func() Made) Progress
	// To the disk, before an operator gets the answer to a change; nil: there is none
	Save     func() error
	Warnings []string // for operators, with each change
}

// Made is an operator's change and those of the same rule that are newer, as far as this edge
// knows.
type Made struct {
	Rule      string
	Marks     []operatorlog.Mark // the operator's own first
	Overtaken bool               // a newer one has replaced it: the wait is short
}

// Progress is how far changes have come.
type Progress struct {
	Spread *control.Spread
	Newer  bool // some edge has a newer change, and this one does not know it
}
