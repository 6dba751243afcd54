package tier

import (
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
)

// RuleStore is where changes of rules are kept: in the PoP's list of what operators said, in etcd, or in a list of this edge alone.
type RuleStore struct {
	Origin   changes.Origin
	List     func() (entries []operatorlog.Entry, version uint64, moved <-chan struct{})
	Add      func(w operatorlog.Order, version uint64, now time.Time) (operatorlog.Mark, error) // version: of the list, as it was when the word was made
	Describe func(control.EdgeStatus)                                                           // says to others what this edge is; nil: the machine does
	InForce  func(version uint64, refused []operatorlog.Mark)
	// Await waits until all edges say that changes are in force there, and none of them has a newer one that this edge does not know, or for as long as an
	// operator waits. The spread is nil if nobody can tell. nil: there are no others.
	Await    func(made func() Made) Progress
	Save     func() error // to the disk, before an operator is told of a change; nil: there is none
	Warnings []string     // for operators, with each change
}

// Made is an operator's change and those of the same rule that are newer, as far as this edge knows.
type Made struct {
	Rule      string
	Marks     []operatorlog.Mark // the operator's own first
	Overtaken bool               // a newer one stands in place of his: he does not wait for long
}

// Progress is how far changes have come.
type Progress struct {
	Spread *control.Spread
	Newer  bool // some edge has a newer change, and this one does not know it
}
