package tier

import (
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/pop/words"
)

// RuleStore is where changes of rules are kept: in the PoP's list of what operators said, in etcd, or in a list of this edge alone.
type RuleStore struct {
	Origin   changes.Origin
	List     func() (entries []words.Entry, version uint64, moved <-chan struct{})
	Add      func(w words.Word, version uint64, now time.Time) (words.Mark, error) // version: of the list, as it was when the word was made
	Describe func(control.EdgeStatus)                                              // says to others what this edge is; nil: the machine does
	InForce  func(version uint64, refused []words.Mark)
	Await    func(words.Mark) *control.Spread // until all edges have it, or for as long as an operator waits, and nil if nobody can tell; nil: there are no others
	Save     func() error                     // to the disk, before an operator is told of a change; nil: there is none
	Warnings []string                         // for operators, with each change
}
