package announcement

import "sluice/counter/algorithm"

// Requests may make the PoP send three commands to the tier each, on average (package worst
// searches for a source that makes it more). Reports come first, and two kinds of record in the
// log: that a source is blocked, and that nothing is left of its limit. These never wait. They
// follow from many hits, which all edges may have reported, while one of them announces it; so each
// report sets its share of them aside. What is left pays for what makes edges agree sooner or
// later: a bit at its own key, announcements of counters on their way to the limit, when hits came,
// and what a report reads of older groups. Where nothing is left, or a node does not take what the
// log has as fast as it gathers, an edge leaves that out.
const (
	// So much below 3 that what edges have saved is paid for as well, in a thousand requests
	perRequest = 2.5
	itemCost   = 2 // a number of the log, and an item
	blockCost  = itemCost
	mostSaved  = 480 // commands, of all edges together
)

// A Budget is how many commands this edge may send that requests have not paid for yet.
type Budget struct {
	left  float64
	edges int // that share the tier
}

// saved is how much this edge saves at most.
func (b *Budget) saved() float64 { return mostSaved / float64(max(b.edges, 1)) }

// Earn takes in that hits are reported under a rule.
func (b *Budget) Earn(r *algorithm.Spec) {
	each := perRequest - blockCost/float64(r.Limit+1)
	if r.HoldsBack() {
		each -= 2 * itemCost / float64(r.Limit) // it is said again once half of the limit was free
	}
	b.left = min(b.left+each, b.saved())
}

// Spend takes in that a command is sent.
func (b *Budget) Spend() { b.left = max(b.left-1, -mostSaved) }

// Affords reports whether so many commands may be sent that are not set aside for. Under a limit of
// a few hits, reports and a block take nearly all that requests may cost, so little of what was
// saved goes there.
func (b *Budget) Affords(r *algorithm.Spec, commands float64) bool {
	if !r.HoldsBack() {
		commands = max(commands, 0.9*b.saved())
	}
	return b.left >= commands
}

// Left reports whether a command may be sent.
func (b *Budget) Left() bool { return b.left >= 1 }
