package mitigation

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/exact"
)

// Rule is what is known of a rule wherever its mitigations start: at the limiter, and in the PoP.
type Rule struct {
	Counter *algorithm.Spec // how hits are counted and how many are allowed; required
	// how long a source that went over is mitigated; 0: the rule only throttles, and has no bits
	Timeout time.Duration
	Shadow  bool // it counts and decides, and refuses no request
	// ExtraLimit says that it is another limit of the rule of that Name than its first: operators lift
	// it along with the first, and block under the first alone.
	ExtraLimit bool
	// Of, of a variant of a rule by another limit, is the ID of the rule's own counters: what
	// operators say of a source under that holds here as well. A lift under Name ends mitigations
	// of all variants, and a block is under the rule's own, where decisions look for it. 0: this is
	// none. A variant costs no command, and memory for its name.
	VariantOf uint32
	// Exact is how each of its requests is kept in the tier; nil: they are counted by Counter. An
	// edge without a tier has Counter count them all the same.
	Exact  *exact.Spec
	Repeat Repeat // how long a source is mitigated that goes over again
	Name   string // as operators know it; "": Counter.Name
	// V4 and V6 are the lengths of the prefixes that it counts by, which another PoP's blocks must
	// have; -1: it counts no addresses of that family. 0: any.
	V4, V6 int
}

// Version is what its verdicts are reached under.
func (r *Rule) Version() RuleVersion { return VersionOf(r.Counter.Limit, r.Timeout, r.Repeat) }
