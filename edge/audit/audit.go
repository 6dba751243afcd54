// Package audit notes what an edge decides about a few sources, all the time, for an exact log (exactlog) to judge.
//
// One source in N is watched, chosen by a keyed hash, so that no client knows which; the hash is the PoP's, so that all
// its edges watch the same. For each rule that it is under, the instant of each decision is noted, and whether it was
// counted. Every Interval what was noted is a batch; where a PoP's batches meet they are judged.
//
// Not noted are rules that count otherwise than in a sliding window, rules that count by the answer's status or count
// refused requests, rules with a limit above 4,096, and decisions that wait for the tier: what they count, and when, is
// not known at the decision. A batch marks an interval that had one (Gap). Of refusals under a block, which are not
// counted, the first is noted.
package audit

import (
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/audit/exactlog"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

const (
	// maxLimit bounds the limits of rules that are noted.
	maxLimit = 4096
	// roomForHits is how many entries of a batch refusals leave to what is counted, without which a log is of no use.
	roomForHits = exactlog.MaxEntries / 4
	maxBlocks   = exactlog.MaxGroups
)

// An Audit watches some sources. It is safe for concurrent use. A nil Audit watches no source.
type Audit struct {
	// Blocks notes the mitigation that is in force. Set it before use; nil: blocks are not noted.
	Blocks func(mitigation.Key, time.Time) (mitigation.Bit, bool)

	hash  func(counter.Source) uint64
	share uint64

	mu      sync.Mutex // held over a watched source's decision: its entries must be in the order in which they were counted
	began   time.Time
	groups  map[groupKey]*exactlog.Group
	entries int
	gap     bool
	rules   map[*algorithm.Spec]exactlog.RuleRef
	blocks  map[mitigation.Key]time.Time // the ends of those under which sources were refused here
	dropped uint64
}

type groupKey struct {
	counter.Key
	limit uint32
}

// New makes an Audit of one source in share, which notes everything from now on. hash is keyed, and the same on all edges of a PoP; nil is
// this process's own.
func New(share int, hash func(counter.Source) uint64, now time.Time) *Audit {
	if hash == nil {
		own := counter.NewHasher(0)
		hash = func(s counter.Source) uint64 { return own.Of(&s) }
	}
	return &Audit{hash: hash, share: uint64(max(share, 1)), began: now, groups: make(map[groupKey]*exactlog.Group),
		rules: make(map[*algorithm.Spec]exactlog.RuleRef), blocks: make(map[mitigation.Key]time.Time)}
}

// watches returns what stands for a source, if it is watched.
func (a *Audit) watches(s counter.Source) (id uint64, ok bool) {
	id = a.hash(s)
	return id, id%a.share == 0
}

// Watches reports whether a source that is counted in a decision is watched. Then Lock must be called before Limiter.Decide, Note after it,
// and Unlock.
func (a *Audit) Watches(d *limiter.Decision) bool {
	if a == nil {
		return false
	}
	for i := range d.Results {
		if i == 0 || d.Results[i].Source != d.Results[i-1].Source {
			if _, ok := a.watches(d.Results[i].Source); ok {
				return true
			}
		}
	}
	return false
}

// Lock keeps other decisions about watched sources out.
func (a *Audit) Lock() { a.mu.Lock() }

// Unlock lets them in again.
func (a *Audit) Unlock() { a.mu.Unlock() }

// Miss notes that a decision about watched sources is missing. It is called before the decision and after it, as an
// interval may end meanwhile.
func (a *Audit) Miss() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gap = true
}

// OneIn is of how many sources one is watched.
func (a *Audit) OneIn() uint64 { return a.share }

// Note notes a decision about watched sources. It is called with a locked.
func (a *Audit) Note(d *limiter.Decision, now time.Time) {
	for i := range d.Results {
		r := &d.Results[i]
		c := r.Rule.Counter
		if r.Rule.Refused || r.Rule.Costs || r.Rule.Uncounted || len(r.Rule.Statuses) > 0 || !c.Sliding() || c.Limit > maxLimit {
			continue
		}
		id, ok := a.watches(r.Source)
		if !ok {
			continue
		}
		e := exactlog.Entry{At: now.UnixMicro()}
		switch ask := r.Reservation; {
		case ask == nil:
			if e.Kind, e.Start = exactlog.Blocked, a.block(r, now); e.Start == 0 {
				continue
			}
		case ask.Hold || ask.Over && ask.Rule != c: // over a part of the limit, while there is no tier
			continue
		case ask.Over:
			e.Kind, e.Estimate = exactlog.Refused, ask.Estimate
		case d.Verdict == limiter.Limited: // what one rule refuses, no rule counts
			e.Kind, e.Estimate = exactlog.Passed, ask.Estimate
		default:
			e.Kind, e.Estimate = exactlog.Counted, ask.Estimate
		}
		a.note(c, r.Source, id, e)
	}
}

// block is when the verdict fell under which a source is refused here for the first time; 0: it is not, or there was no verdict.
func (a *Audit) block(r *limiter.RuleResult, now time.Time) int64 {
	key := mitigation.Key{Source: r.Source, Rule: r.Rule.Counter.ID}
	if a.Blocks == nil || r.Until.IsZero() || a.blocks[key].Equal(r.Until) || len(a.blocks) >= maxBlocks {
		return 0
	}
	a.blocks[key] = r.Until
	bit, is := a.Blocks(key, now)
	if !is || !bit.End.Equal(r.Until) || bit.By != mitigation.ByEdge && bit.By != mitigation.ByPoP {
		return 0
	}
	return bit.Start.UnixMicro()
}

func (a *Audit) note(c *algorithm.Spec, source counter.Source, id uint64, e exactlog.Entry) {
	if e.Kind != exactlog.Counted && a.entries >= exactlog.MaxEntries-roomForHits {
		a.dropped++
		return
	}
	key := groupKey{counter.Key{Source: source, Rule: c.ID}, c.Limit}
	g := a.groups[key]
	if g == nil {
		if len(a.groups) >= exactlog.MaxGroups {
			a.gap = a.gap || e.Kind == exactlog.Counted
			a.dropped++
			return
		}
		g = &exactlog.Group{Rule: a.rule(c), Source: id}
		a.groups[key] = g
	}
	if a.entries >= exactlog.MaxEntries {
		g.Gap = true
		a.dropped++
		return
	}
	if n := len(g.Entries); n > 0 {
		e.At = max(e.At, g.Entries[n-1].At) // they are in the order in which they were counted
	}
	g.Entries = append(g.Entries, e)
	a.entries++
}

// rule is a rule's part of a batch.
func (a *Audit) rule(c *algorithm.Spec) exactlog.RuleRef {
	r, known := a.rules[c]
	if !known {
		h := fnv.New64a()
		h.Write([]byte(c.Identity()))
		name, _, _ := strings.Cut(c.Name, " ") // the rest is its key and its variant
		r = exactlog.RuleRef{Counter: h.Sum64(), Name: name, Limit: c.Limit, Window: c.Window, Sub: c.SubWindow()}
		if len(a.rules) >= exactlog.MaxGroups {
			clear(a.rules) // most are of rules that are not in force any more
		}
		a.rules[c] = r
	}
	return r
}

// Forget notes that the counter of a source under a rule is forgotten.
func (a *Audit) Forget(c *algorithm.Spec, source counter.Source, now time.Time) {
	if a == nil {
		return
	}
	if id, ok := a.watches(source); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.note(c, source, id, exactlog.Entry{At: now.UnixMicro(), Kind: exactlog.Lifted})
	}
}

// Take is what was noted since the last Take, as the batch of an interval. The caller adds the edge.
func (a *Audit) Take(number int64, now time.Time) *exactlog.Batch {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := &exactlog.Batch{OneIn: a.share, Number: number, Began: a.began.UnixMicro(), Gap: a.gap}
	for _, g := range a.groups {
		b.Groups = append(b.Groups, *g)
	}
	clear(a.groups)
	a.entries, a.gap = 0, false
	for key, end := range a.blocks {
		if end.Before(now) {
			delete(a.blocks, key)
		}
	}
	return b
}

// Dropped is how many notes there was no room for.
func (a *Audit) Dropped() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dropped
}
