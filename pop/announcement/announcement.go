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
//	Resume          what was left for a while, because another edge is likely to say it
//	AddPeerBlock    what another PoP has blocked
//	AddCount        what another PoP has counted
//
// All of it is paid for from a Budget, so that whatever sources do, a request costs the tier no
// more than three commands on average. Nothing here does I/O or reads a clock: records go to the
// logs, and commands of bits to Config.Send.
package announcement

import (
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/buckets"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/log"
	"sluice/pop/operatorlog"
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

// Announcer announces what this edge finds, and learns what others announce. SetRules,
// AddPeerBlock, AddCount and Peers may be called from anywhere, all else belongs to one goroutine.
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

// ActOn acts on a counter's state after an answer. If it has come near its limit, or to it, the log
// brings its state to all edges: they report what they have held back, and an edge that has never
// seen the source learns when to refuse it. They may also be requested to send when hits came. If
// the PoP's total is over the limit, a mitigation starts: the requests that made it so went through
// several edges at once, and none of them saw it.
//
// The edge whose report brought a counter there announces it at once; an edge that finds it there
// leaves that to others for a while.
func (a *Announcer) ActOn(c counter.Counter, reply counter.Reply, now time.Time) {
	rule := a.rules.Load().byID[c.Rule.ID]
	// A block goes to other PoPs as well
	if reply.Near && !(reply.Over && rule != nil && rule.Timeout > 0) {
		a.countToPeers(c, now)
	}
	requested := false
	switch {
	case reply.Over && rule != nil && rule.Timeout > 0:
		a.block(c, reply.Crossed, now)
	case reply.Filled:
		requested = a.announce(c, algorithm.Full, reply.Leaving, now)
	case reply.Crossed && !reply.Over:
		requested = a.announce(c, reply.Stage, reply.Leaving, now)
	case reply.Stage >= algorithm.Half:
		a.leave(task{what: announceStage, stage: reply.Stage, counter: c}, now)
	}
	switch {
	case requested:
	case reply.CrossedTimes:
		a.requestTimes(c, now)
	case reply.WantTimes:
		a.leave(task{what: requestTimes, counter: c}, now)
	}
}

// block starts a mitigation of a source that the PoP has counted over its limit, and announces it
// if this edge's report made it so.
func (a *Announcer) block(c counter.Counter, crossed bool, now time.Time) {
	rule := a.rules.Load().byID[c.Rule.ID]
	if rule == nil || rule.Timeout == 0 {
		return
	}
	// What was reported may have been counted under another limit than is in force now
	c.Rule = rule.Counter
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !a.config.Blocks.Until(key, now).IsZero() {
		return
	}
	v, _ := a.config.Counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, a.config.Blocks.Timeout(key, rule.Timeout, rule.Repeat, now), now)
	if end.IsZero() {
		return
	}
	if bit := rule.bit(now, end); a.config.Blocks.Start(key, bit, now) {
		a.config.Counters.Blocked(c, now, end, now)
		if crossed {
			a.setBit(key, bit, now)
		} else {
			a.leave(task{what: announceBlock, counter: c, bit: bit}, now)
		}
	}
}

// setAside reports whether the announcement that a counter has come to a stage is paid for
// (perRequest).
func setAside(c counter.Counter, stage algorithm.Stage) bool {
	return stage == algorithm.Full && c.Rule.HoldsBack()
}

// announce sends all edges the state of a counter that has come to a stage, and reports whether it
// requested times as well. It does where nothing is left and hits are about to leave the window, so
// that an edge that has never met the source is sure that the next one is too many. Times are
// exchanged once in a window, so that is for rules whose blocks last as long: under others they
// will be needed later.
func (a *Announcer) announce(c counter.Counter, stage algorithm.Stage, leaving bool,
	now time.Time) (requested bool) {
	paid, affords := setAside(c, stage), a.Budget.Affords(c.Rule, itemCost)
	if !paid && !affords {
		return false
	}
	r := a.state(record.State, c, now)
	rule := a.rules.Load().byID[c.Rule.ID]
	if requested = leaving && paid && affords && rule != nil &&
		rule.Timeout >= c.Rule.Window; requested {
		r.Kind, r.Times = record.RequestTimes, a.config.Counters.ExportTimes(c, now, nil)
	}
	a.append(c.Source, r, paid)
	return requested
}

// append adds a record to the log of a source's node, or of both its nodes while the list changes.
func (a *Announcer) append(s counter.Source, r record.Record, paid bool) {
	for _, node := range a.config.Nodes.NodesOf(s) {
		a.config.Logs.Append(node, &r, paid)
	}
}

// state is a record of how a counter stands.
func (a *Announcer) state(k record.Kind, c counter.Counter, now time.Time) record.Record {
	r := record.Record{Kind: k, Rule: a.config.Secret.RuleDigest(c.Rule), Source: c.Source,
		Epoch: a.config.Operators.Epoch(c.Rule, c.Source), Start: a.wall(now), Edge: a.config.ID}
	if k != record.Times {
		r.Newest, r.Groups = a.config.Counters.Snapshot(c, now)
	}
	return r
}

// Near a source's limit it matters when, within a sub-window, others' hits came (counter.Times). An
// edge that lacks that writes a request to the mitigation log, with its own times; all edges answer
// there, so whichever decides next knows.

// takenFrom is the edges whose times of a counter have been taken in.
type takenFrom struct {
	counter mitigation.Key
	edge    uint64
}

// maxTaken bounds what is remembered; beyond it times are not taken in, and those hits are thought
// to be spread evenly.
const maxTaken = 1 << 15

// requestTimes requests from the others when their hits came.
func (a *Announcer) requestTimes(c counter.Counter, now time.Time) {
	if !a.Budget.Affords(c.Rule, itemCost) {
		return
	}
	r := a.state(record.RequestTimes, c, now)
	r.Times = a.config.Counters.ExportTimes(c, now, nil)
	a.append(c.Source, r, false)
}

// exportTimes answers a question.
func (a *Announcer) exportTimes(c counter.Counter, now time.Time) {
	if !a.Budget.Affords(c.Rule, itemCost) {
		return
	}
	if times := a.config.Counters.ExportTimes(c, now, nil); len(times) > 0 {
		r := a.state(record.Times, c, now)
		r.Times = times
		a.append(c.Source, r, false)
	}
}

// mergeTimes takes in another edge's times.
func (a *Announcer) mergeTimes(c counter.Counter, r record.Record, now time.Time) {
	if r.Edge == a.config.ID {
		return
	}
	if len(r.Times) == 0 {
		return
	}
	from := takenFrom{mitigation.Key{Rule: c.Rule.ID, Source: c.Source}, r.Edge}
	taken, there := a.times[from]
	if !there && len(a.times) >= maxTaken {
		return
	}
	for _, times := range r.Times {
		if taken.Take(times.SubWindow) {
			a.config.Counters.MergeTimes(c, times, now)
		}
	}
	taken.Until = now.Add(c.Rule.Lifetime())
	a.times[from] = taken
}

// Bit is a mitigation on its way to its own key.
type Bit struct {
	counter counter.Counter
	record  *record.Record
}

// setBit writes a mitigation that this edge has started to the tier: its own key first, so that
// readers of the key find it, then the log. Several edges may find a source over its limit at once;
// the first at the key writes to the log.
//
// It names the limit of the verdict, not the one in force by now. A verdict that waited here while
// its rule was loosened is void.
func (a *Announcer) setBit(key mitigation.Key, bit mitigation.Bit, now time.Time) {
	rule := a.rules.Load().byID[key.Rule]
	if rule == nil || rule.Version().Invalidates(bit.Version) {
		return
	}
	c := counter.Counter{Rule: rule.Counter, Source: key.Source}
	wall := a.wall(now)
	r := &record.Record{
		Kind: record.Block, Rule: rule.digest, Source: c.Source,
		Epoch: a.config.Operators.Epoch(c.Rule, c.Source),
		Start: wall.Add(bit.Start.Sub(now)), End: wall.Add(bit.End.Sub(now)),
		Limit: bit.Version.Limit, By: bit.By,
	}
	// Where the budget is used up, an edge that sees the source for the first time finds that the
	// counter is over its limit.
	if !a.Budget.Affords(rule.Counter, 1) {
		a.append(c.Source, *r, true)
		return
	}
	b := &Bit{c, r}
	for _, node := range a.config.Nodes.NodesOf(c.Source) {
		a.config.Send(a.bitCommand(node, wire.Add, *r, c, now), b)
	}
}

func (a *Announcer) bitCommand(node int, op wire.Op, r record.Record, c counter.Counter,
	now time.Time) wire.Command {
	left := r.End.Sub(a.wall(now))
	if rule := a.rules.Load().byID[c.Rule.ID]; rule != nil {
		left += rule.Repeat.Memory()
	}
	// A second after the end, because memcached's seconds are coarse; what counts is the end in the
	// value.
	return wire.Command{Node: node, Op: op, Report: true, Key: a.config.Secret.BitKey(c, r.Epoch),
		Value: r.Seal(a.config.Secret), Expire: wire.Seconds(left) + 1}
}

// Answered takes in the answer to a command of a bit. If it was stored, or that is unknown, the log
// follows: it is worth a try in any case. If there is one already, this edge reads it.
func (a *Announcer) Answered(b *Bit, r *wire.Result, now time.Time) {
	switch {
	case r.Op == wire.Get:
		a.bitRead(b, r, now)
	case r.Status == wire.NotThere && r.Op == wire.Add:
		a.config.Send(wire.Command{Node: r.Node, Op: wire.Get, Report: true, Key: r.Key}, b)
	default:
		a.config.Logs.Append(r.Node, b.record, true)
		a.announceToPeers(b)
	}
}

// bitRead decides between our bit and the one that was there. One in force has been announced by
// its edge; one that has ended stands there because memcached is slow to forget, or because it is
// remembered, and one of a stricter limit is none.
//
// Under a rule that mitigates repeated offenders for longer, ours may be too short, because this
// edge did not know of the one that has ended.
func (a *Announcer) bitRead(b *Bit, r *wire.Result, now time.Time) {
	if r.Status == wire.Done && r.Values[0] != nil {
		there, ok := record.Open(a.config.Secret, r.Values[0])
		if ok && !a.disregards(&there) && there.Kind == record.Block &&
			there.Rule == b.record.Rule && there.Source == b.record.Source &&
			there.Limit >= b.record.Limit {
			rule := a.rules.Load().byID[b.counter.Rule.ID]
			repeats := rule != nil && rule.Repeat.Memory() > 0
			switch inForce := there.End.After(a.wall(now)); {
			case inForce:
				a.Apply(there, now)
				return
			case repeats:
				a.prolong(b.record, rule, there, now)
			}
		}
	}
	a.config.Send(a.bitCommand(r.Node, wire.Set, *b.record, b.counter, now), b)
}

// prolong makes our bit as long as it is for a source that comes back: the one before has ended,
// and is still at its key.
func (a *Announcer) prolong(r *record.Record, rule *knownRule, before record.Record,
	now time.Time) {
	end := r.Start.Add(rule.Repeat.After(before.Start, before.End, rule.Timeout, r.Start))
	if !end.After(r.End) {
		return
	}
	r.End = end
	wall := a.wall(now)
	bit := rule.bit(now.Add(r.Start.Sub(wall)), now.Add(end.Sub(wall)))
	bit.Version.Limit = r.Limit
	a.config.Blocks.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}

// Renew learns a bit that was under the secret that this one replaces, and sets it under this one,
// so that edges that have this one alone find it.
func (a *Announcer) Renew(r record.Record, now time.Time) {
	if !a.Apply(r, now) {
		return
	}
	key := mitigation.Key{Rule: a.rules.Load().byDigest[r.Rule].Counter.ID, Source: r.Source}
	if bit, inForce := a.config.Blocks.Get(key, now); inForce {
		a.setBit(key, bit, now)
	}
}

// skew is how far clocks may be apart, and a bit's end behind what is possible.
const skew = 2 * time.Second

// Apply puts a record from the tier into force here, and reports whether it is a mitigation that
// was not known here.
func (a *Announcer) Apply(r record.Record, now time.Time) (started bool) {
	rule := a.rules.Load().byDigest[r.Rule]
	if rule == nil || a.disregards(&r) {
		return false
	}
	c, wall := counter.Counter{Rule: rule.Counter, Source: r.Source}, a.wall(now)
	switch epoch := a.config.Operators.Epoch(rule.Counter, r.Source); {
	case r.Epoch < epoch:
		return false // from before an operator lifted the source
	case r.Epoch > epoch && wall.Sub(r.Start) >= log.Kept:
		return false // recorded long ago, and the lift is forgotten
	case r.Epoch > epoch: // its edge knows of a lift that is on its way to this one
		name := operatorlog.Name{Rule: rule.Name, Source: r.Source}
		a.config.Operators.Invalidate(name, r.Epoch, now)
	}
	if r.Kind == record.OtherPoPs {
		a.learnElsewhere(rule, &r, now)
		return false
	}
	a.learnState(c, &r, now)
	if r.Kind == record.RequestTimes && r.Edge != a.config.ID {
		a.exportTimes(c, now) // before others' times are added to its own
	}
	a.mergeTimes(c, r, now)
	if r.Kind != record.Block || rule.Timeout == 0 || rule.Counter.Limit > r.Limit {
		// A source that was blocked under a lower limit may be within this one, and a rule that
		// throttles blocks no source
		return false
	}
	longest := max(rule.Repeat.Longest(rule.Timeout),
		rule.Counter.Window+rule.Counter.SubWindow()) + skew
	start := r.Start.Sub(wall)
	// As long as the rule's is by now: it may have been longer
	end := min(r.End.Sub(wall), min(start, 0)+longest)
	// now carries the monotonic clock, and ends are held against that.
	bit := rule.bit(now.Add(start), now.Add(end))
	bit.Version.Limit = r.Limit
	if r.By == mitigation.ByPeer {
		bit.By = r.By
	}
	a.config.Counters.Blocked(c, bit.Start, bit.End, now)
	return a.config.Blocks.Start(mitigation.Key{Rule: rule.Counter.ID, Source: r.Source}, bit, now)
}

// tasks are what is best done a little later, longer than the log takes. What one edge finds about
// a source, all find that the source has just met, and one of them is enough to announce it. So
// each of the others waits, for a time that differs from edge to edge, and drops the task when it
// reads the announcement in the log. Each task is under a key, and each key there once. The zero
// value is empty.
type tasks struct {
	list []taskKey // in the order in which they were left, dropped ones that were not due yet included
	left map[taskKey]delayed
	due  time.Time // of the first
}

type delayed struct {
	task task
	due  time.Time
}

type task struct {
	what    taskKind
	stage   algorithm.Stage // announceStage
	counter counter.Counter
	bit     mitigation.Bit // announceBlock
}

type taskKind uint8

const (
	announceBlock taskKind = iota
	announceStage
	requestTimes
)

type taskKey struct {
	what taskKind
	key  mitigation.Key
}

// By taskAfter an edge has mostly read what another wrote to the log, and by taskAfter and
// taskSpread every edge has had its turn: a block is then on its way.
const (
	taskAfter  = 12 * time.Millisecond
	taskSpread = 16 * time.Millisecond
	// So many times as late: the edge that brought the counter there announces it, but for a fault
	stageLater = 3
)

func (t *task) key() taskKey {
	return taskKey{t.what, mitigation.Key{Rule: t.counter.Rule.ID, Source: t.counter.Source}}
}

// over reports whether there is nothing left to do.
func (a *Announcer) over(t *task, now time.Time) bool {
	// Else it has ended, or was lifted, or its rule was loosened
	blocked := !a.config.Blocks.Until(t.key().key, now).IsZero()
	return t.what == announceBlock && !blocked || t.what == announceStage && blocked
}

// leave leaves a task to be done when no other edge has.
func (a *Announcer) leave(t task, now time.Time) {
	edges := uint64(max(a.config.Edges, a.Budget.edges, 1))
	turn := placement.Mix(a.config.ID^a.config.Secret.PlacementHash(t.counter.Source)) % edges
	wait := taskAfter + taskSpread*time.Duration(turn)/time.Duration(edges)
	if t.what == announceStage {
		wait *= stageLater
	}
	if _, there := a.tasks.left[t.key()]; !there && !a.tasks.leave(t.key(), t, now.Add(wait)) {
		a.do(t, now)
	}
}

// Resume does the tasks that are due.
func (a *Announcer) Resume(now time.Time) {
	a.tasks.resume(now, func(t task) { a.do(t, now) })
}

func (a *Announcer) do(t task, now time.Time) {
	switch {
	case a.over(&t, now):
	case t.what == announceBlock:
		a.setBit(t.key().key, t.bit, now)
	case t.what == announceStage:
		a.announce(t.counter, t.stage, false, now)
	case t.what == requestTimes:
		a.requestTimes(t.counter, now)
	}
}

// done drops a task that another edge has done.
func (a *Announcer) done(t task) { a.tasks.drop(t.key()) }

// Waiting reports whether something was left for later.
func (a *Announcer) Waiting() bool { return len(a.tasks.list) > 0 }

// In is how soon what was left is due, and at least as soon as given.
func (a *Announcer) In(least time.Duration, now time.Time) time.Duration {
	if len(a.tasks.list) > 0 {
		least = min(least, max(a.tasks.due.Sub(now), 0))
	}
	return least
}

// learnState takes in a counter's state from a record of the log, and drops the tasks that it makes
// superfluous.
func (a *Announcer) learnState(c counter.Counter, r *record.Record, now time.Time) {
	switch r.Kind {
	case record.Block:
		if !r.End.After(a.wall(now)) {
			return // memcached is slow to forget
		}
		a.done(task{what: announceBlock, counter: c})
		a.done(task{what: requestTimes, counter: c})
	case record.State, record.RequestTimes:
		if a.config.Counters.Announced(c, r.Newest, r.Groups, now) {
			a.block(c, false, now)
		}
		if r.Kind == record.RequestTimes {
			a.done(task{what: requestTimes, counter: c})
		}
		a.done(task{what: announceStage, counter: c})
	}
}

// maxTasks is how many tasks wait.
const maxTasks = 1 << 14

// every is how often what is due is looked at.
const every = 5 * time.Millisecond

// leave reports whether there is room. What was left before is due when it is now.
func (l *tasks) leave(key taskKey, t task, due time.Time) bool {
	if len(l.list) >= maxTasks {
		return false
	}
	if l.left == nil {
		l.left = make(map[taskKey]delayed)
	}
	e, there := l.left[key]
	if !there {
		l.list = append(l.list, key)
		e.task = t
	}
	e.due = due
	l.left[key] = e
	if len(l.list) == 1 || due.Before(l.due) {
		l.due = due
	}
	return true
}

// drop drops what was left under a key.
func (l *tasks) drop(key taskKey) {
	if len(l.list) > 0 {
		delete(l.left, key)
	}
}

// resume does what is due, and reports whether it was time to look.
func (l *tasks) resume(now time.Time, do func(task)) bool {
	if len(l.list) == 0 || now.Before(l.due) {
		return false
	}
	l.due = now.Add(time.Hour)
	list := l.list
	l.list = l.list[:0]
	for _, key := range list {
		e, open := l.left[key]
		switch {
		case !open:
		case now.Before(e.due):
			l.list = append(l.list, key)
			if e.due.Before(l.due) {
				l.due = e.due
			}
		default:
			delete(l.left, key)
			do(e.task)
		}
	}
	clear(list[len(l.list):])
	if soon := now.Add(every); l.due.Before(soon) {
		l.due = soon
	}
	return true
}

// Requests may make the PoP send three commands to the tier each, on average (a test
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
