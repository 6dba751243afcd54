// Package announcement is what edges send each other about a source, and how they use it: that it
// is blocked, the state of a counter that has come near its limit, and when hits of it came. The
// answer to a report brings the PoP's total; but an edge that has nothing to report would learn
// nothing, and two edges may let the last requests of a source pass at the same moment. So an edge
// that finds a source near its limit, or over it, writes that to the mitigation log of the source's
// node, which all edges read.
//
//	ActOn           what a counter says after an answer: an announcement, a block, a question when hits came, or nothing
//	AnnounceBlocks  blocks that requests started here: a bit at the source's own key, then a record in the log
//	Answered        the answer to a bit: several edges may find a source over its limit at once, and who is first at the key writes the log
//	Apply           what another edge said
//	Resume          what was left for a while, because another edge is likely to say it (tasks, timers)
//	AddPeerBlock    what another PoP has blocked (peers)
//	AddCount        what another PoP has counted (counts)
//
// All of it is paid for from a Budget, so that whatever sources do, a request costs the tier no
// more than three commands on average. Nothing here does I/O or reads a clock: records go to the
// logs, and commands of bits to Config.Send.
package announcement

import (
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/buckets"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/log"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Config is what an Announcer works with.
type Config struct {
	Secret    secret.Secret
	ID        uint64 // of this edge
	Edges     int    // how many share the tier, if that is known
	Counters  counter.Reports
	Blocks    *mitigation.Table
	Operators *operators.List
	Nodes     *placement.Nodes
	Logs      *log.Logs
	Send      func(wire.Command, *Bit) // for commands whose answer goes to Answered, with the Bit
	// Is called with what this edge blocks as the first of the PoP; nil: nothing is
	Decided func(across.Block)
	// And with what is counted of sources near their limit; nil: nothing is
	Counted func(across.Count)
}

// Announcer announces what this edge finds, and learns what others announce. SetRules, AddPeerBlock,
// AddCount and Peers may be called from anywhere, all else belongs to one goroutine.
type Announcer struct {
	Budget Budget
	// From a verdict on another edge until it was in force on this one
	Propagation *buckets.Histogram

	config   Config
	rules    atomic.Pointer[ruleSet]
	peersOff atomic.Bool // blocks and counts of other PoPs are neither sent nor learned

	fromPeers fromPeers
	tasks     tasks
	times     map[takenFrom]record.Taken
	started   []mitigation.Unsent // of one AnnounceBlocks
}

// New makes an Announcer under no rules.
func New(c Config) *Announcer {
	a := &Announcer{config: c, Budget: Budget{left: mostSaved},
		times: make(map[takenFrom]record.Taken), Propagation: buckets.Trips()}
	a.SetRules(nil)
	return a
}

type knownRule struct {
	mitigation.Rule
	digest uint64
}

// bit is a mitigation under the rule that the PoP starts.
func (r *knownRule) bit(start, end time.Time) mitigation.Bit {
	return mitigation.Bit{Start: start, End: end, By: mitigation.ByPoP, Shadow: r.Shadow,
		Memory: r.Repeat.Memory(), Version: r.Version()}
}

type ruleSet struct {
	byID     map[uint32]*knownRule
	byDigest map[uint64]*knownRule
	byName   map[string][]*knownRule
}

// SetRules replaces the rules in force, those of the operators' list among them. What is said under
// other rules is neither announced nor learned.
func (a *Announcer) SetRules(rules []mitigation.Rule) {
	set := &ruleSet{byID: make(map[uint32]*knownRule, len(rules)),
		byDigest: make(map[uint64]*knownRule, len(rules)),
		byName:   make(map[string][]*knownRule, len(rules))}
	named := make(operators.Rules, len(rules))
	for _, r := range rules {
		if r.Name == "" {
			r.Name = r.Counter.Name
		}
		k := &knownRule{r, a.config.Secret.RuleDigest(r.Counter)}
		set.byID[r.Counter.ID] = k
		set.byDigest[k.digest] = k
		set.byName[r.Name] = append(set.byName[r.Name], k)
		named[r.Name] = append(named[r.Name], &k.Rule)
	}
	// First: a reader that finds a rule here has operators' orders about it as well
	a.config.Operators.SetRules(named)
	a.rules.Store(set)
}

// SetEdges sets how many edges share the tier.
func (a *Announcer) SetEdges(n int) { a.Budget.edges = n }

// AnnounceBlocks writes the mitigations that this edge has started to the tier. One that has been
// lifted since is left out, and so is one of a source that was lifted in this very step: its
// verdict fell before.
func (a *Announcer) AnnounceBlocks(now time.Time) {
	a.started = a.config.Blocks.TakeUnsent(a.started[:0])
	for _, n := range a.started {
		if !a.config.Operators.Settling(n.Key) && !a.config.Blocks.Until(n.Key, now).IsZero() {
			a.setBit(n.Key, n.Bit, now)
		}
	}
}

// LearnAll takes in the records of a log.
func (a *Announcer) LearnAll(records []record.Record, now time.Time) {
	for _, r := range records {
		if a.Apply(r, now) && r.By != mitigation.ByPeer { // a block that another PoP decided
			a.Propagation.Observe(int64(a.wall(now).Sub(r.Start)))
		}
	}
}

// Sweep forgets times that are over.
func (a *Announcer) Sweep(now time.Time) {
	for from, taken := range a.times {
		if now.After(taken.Until) {
			delete(a.times, from)
		}
	}
}

// wall is the wall clock's reading: edges agree by it on sub-windows, and on the times that they
// send each other.
func (a *Announcer) wall(now time.Time) time.Time { return a.config.Counters.Wall(now) }
