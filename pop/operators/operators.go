// Package operators is what operators have said, on one edge of a PoP. It keeps a copy of their
// list (operatorlog.List), and knows which other edges have the orders that were given here
// (Spread). It puts words in force on the tables that the request path shares (Apply): a block
// starts a mitigation; a lift ends it, and begins an epoch of its source, under which its keys in
// the tier are others, and what was counted before is void. And the list travels by the nodes, each
// of which has a copy (Node). Changes of rules are entries as well, but their content is not known
// here: the owner of the edge puts them in force, and calls InForce. Nothing here does I/O or reads
// a clock.
package operators

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/member"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Config is what a List works with.
type Config struct {
	Secret   secret.Secret
	ID       uint64 // of this edge
	Name     string // of this edge; "": made of its ID
	Changes  bool   // of rules travel: the secret cannot be guessed
	Counters *counter.Table
	Blocks   *mitigation.Table
	// Received is called with operators' orders about sources at other edges, as they come into
	// force here; nil: nothing is. It must not block, or call the List.
	Received func(operatorlog.Order)
	// A time a little below the given one, that differs between edges and from time to time
	Jitter func(time.Duration) time.Duration
}

// Rules are the rules in force, by the name that operators know them by.
type Rules map[string][]*mitigation.Rule

// ruleSet is Rules, and which rule a variant is of, by their numbers.
type ruleSet struct {
	Rules
	of map[uint32]uint32
}

// List is this edge's copy of what operators have said, and what of it is in force. Apply,
// Invalidate, Sweep, Epoch, Settling, Look and Answered belong to one goroutine; all else may be
// called from anywhere.
type List struct {
	config Config
	rules  atomic.Pointer[ruleSet]
	forged atomic.Uint64

	mu      sync.Mutex // guards what follows
	list    operatorlog.List
	fresh   []operatorlog.Name // changed, and not yet in force
	version uint64             // of the list: grows with every change
	changed chan struct{}
	sealed  []sealed           // under the secret, and under the one before
	latest  time.Time          // when this edge last had something to say
	began   time.Time          // when this edge did
	applied []operatorlog.Mark // of what is in force
	// Of each other edge, the generation of its latest entry about a source that was passed to
	// Config.Received
	reported map[uint64]uint64
	others   []presence.Edge
	silent   map[string]time.Time // by name, edges that went without saying that they end, and when
	changes  ruleChanges
	under    *ruleSet // that lifts and blocks were last applied to; nil: none were yet

	// One goroutine's, but for Restore before anything was applied.
	lifts    map[operatorlog.Name]lift
	epochs   map[mitigation.Key]uint64    // lifts, for the rules in force
	settling map[mitigation.Key]time.Time // when their counts were forgotten
}

// sealed is the list as it travels under one secret.
type sealed struct {
	secret           secret.Secret
	listKey, headKey string
	text             []byte // as of version encoded
	id               operatorlog.Digest
	encoded          uint64
}

// New makes an empty List under no rules.
func New(c Config, now time.Time) *List {
	l := &List{config: c, began: now, reported: make(map[uint64]uint64),
		silent: make(map[string]time.Time)}
	for _, line := range c.Secret.Lines() {
		s := sealed{secret: line}
		s.listKey, s.headKey = line.OperatorListKeys()
		l.sealed = append(l.sealed, s)
	}
	l.SetRules(nil)
	return l
}

// SetRules replaces the rules in force; the next Apply puts all words in force for them.
func (l *List) SetRules(rules Rules) {
	set := &ruleSet{rules, make(map[uint32]uint32)}
	for _, list := range rules {
		for _, r := range list {
			if r.VariantOf != 0 {
				set.of[r.Counter.ID] = r.VariantOf
			}
		}
	}
	l.rules.Store(set)
}

// Add puts an operator's word into the list; the next Apply puts it in force here, and it goes on
// its way to all edges. Spread returns which of them have it. The error is operatorlog.ErrFull,
// ErrWord or ErrLong.
func (l *List) Add(w operatorlog.Order, now time.Time) (operatorlog.Mark, error) {
	if w.Kind == operatorlog.Change && !l.config.Changes {
		return operatorlog.Mark{},
			fmt.Errorf("%w: changes of rules do not travel under a secret that can be guessed",
				operatorlog.ErrOrder)
	}
	voids := mitigation.MaxTimeout
	for _, rule := range l.rules.Load().Rules[w.Rule] {
		voids = max(voids, rule.Counter.Lifetime(),
			rule.Repeat.Longest(rule.Timeout)+rule.Repeat.Memory())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mark, err := l.list.Add(w, l.config.ID, voids+2*operatorlog.ClockSkew, now)
	if err != nil {
		return operatorlog.Mark{}, err
	}
	l.latest = now
	name := operatorlog.Name{Rule: w.Rule, Source: w.Source}
	if w.Kind == operatorlog.Change {
		name.Change = mark
	}
	l.change(name)
	return mark, nil
}

// change notes that entries have changed. mu is locked.
func (l *List) change(names ...operatorlog.Name) {
	l.fresh = append(l.fresh, names...)
	l.version++
	l.changes.note(names)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Spread is how far words have come.
type Spread struct {
	mitigation.Spread
	// Not among those known: they went lately without saying that they end, and may go on by what
	// they had
	Silent []string
	// An edge has something newer than the first of the words, which is not in force here: what
	// stands is not known
	Newer bool
}

// Spread returns which edges have entries, as they have published. An edge that has an entry takes
// it into account with its next; so once all edges have one, and nothing is newer, none will give a
// concurrent order.
func (l *List) Spread(marks ...operatorlog.Mark) (s Spread) {
	l.mu.Lock()
	defer l.mu.Unlock()
	self := l.self()
	for _, e := range append([]presence.Edge{self}, l.others...) {
		s.Known++
		lacks := func(m operatorlog.Mark) bool {
			return !has(e.Marks, m) || slices.Contains(e.Refused, m)
		}
		if slices.ContainsFunc(marks, lacks) {
			s.Missing = append(s.Missing, e.Name)
		} else {
			s.Have++
		}
		if slices.ContainsFunc(marks,
			func(m operatorlog.Mark) bool { return slices.Contains(e.Refused, m) }) {
			s.Refused = append(s.Refused, e.Name)
		}
		for _, m := range e.Marks {
			s.Newer = s.Newer || m.Compare(marks[0]) > 0 && !has(self.Marks, m)
		}
	}
	s.Silent = slices.Sorted(maps.Keys(l.silent))
	return s
}

// Silent are the names of edges that went lately without saying that they end.
func (l *List) Silent() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.silent))
}

// has reports whether a word is among those that marks stand for.
func has(marks []operatorlog.Mark, m operatorlog.Mark) bool {
	return slices.ContainsFunc(marks, func(k operatorlog.Mark) bool {
		return k.Edge == m.Edge && k.Generation >= m.Generation
	})
}

// Encoded returns the list in the form in which it is kept, and a channel that is closed when it
// changes.
func (l *List) Encoded(now time.Time) (list []byte, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	text, _ := l.encode(0, now)
	return text, l.changed
}

// Restore takes in a list that Encoded returned. Before the first Apply, lifts in it are taken to
// be in force: a caller at that time has nothing from before them. The error is
// operatorlog.ErrList.
func (l *List) Restore(list []byte, now time.Time) error {
	entries, _, err := operatorlog.Decode(l.config.Secret.OnDisk(), list)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if names, _ := l.list.Merge(l.travelling(entries), now); len(names) > 0 {
		l.change(names...)
	}
	if l.under != nil {
		return nil
	}
	if l.lifts == nil {
		l.lifts = make(map[operatorlog.Name]lift)
	}
	for name, e := range l.list.All() {
		if e.Epoch != 0 {
			l.lifts[name] = lift{e.Epoch, now, true}
		}
	}
	return nil
}

// encode returns the list as it travels under one of the secrets. What has merely ended since it
// was last encoded stays in it, so that edges whose clocks differ do not keep sending it to each
// other. mu is locked.
func (l *List) encode(line int, now time.Time) ([]byte, operatorlog.Digest) {
	s := &l.sealed[line]
	if s.text == nil || s.encoded != l.version {
		s.text, s.encoded = l.list.Encode(s.secret, now), l.version
		copy(s.id[:], s.text[len(s.text)-secret.MACSize:])
	}
	return s.text, s.id
}

// name is what operators call this edge.
func (l *List) name() string {
	if l.config.Name == "" {
		return hexID(l.config.ID)
	}
	return l.config.Name
}

func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }

// ruleChanges is what became of changes of rules here; List.mu guards it. Until they are in force
// this edge does not count among those that have what was said.
type ruleChanges struct {
	version     uint64             // grows with each
	moved       chan struct{}      // closed when it does
	done        uint64             // the version that is in force
	refused     []operatorlog.Mark // that cannot be in force here
	about       member.About
	unannounced bool // the others do not know yet what is in force here
}

// Changes returns the changes of rules that operators have said: by rule, the newest first. Their
// version grows with each of them, and the channel is closed then.
func (l *List) Changes() (list []operatorlog.Entry, version uint64, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes.moved == nil {
		l.changes.moved = make(chan struct{})
	}
	return l.list.Changes(), l.changes.version, l.changes.moved
}

// InForce notes that what Changes returned is in force, except for what cannot be, the newest of
// that first.
func (l *List) InForce(version uint64, refused []operatorlog.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.done, l.changes.refused, l.changes.unannounced = version,
		slices.Clone(refused[:min(len(refused), presence.MaxRefused)]), true
}

// Describe sets what this edge publishes about itself.
func (l *List) Describe(a member.About) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.about, l.changes.unannounced = a, true
}

// Edges are those of the PoP, this one first, as far as it knows.
func (l *List) Edges() []presence.Edge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]presence.Edge{l.self()}, l.others...)
}

// silentFor is how long an edge is remembered that went without saying that it ends: it has ended
// at once, hangs, or is cut off from the tier.
const silentFor = 10 * time.Minute

// SetOthers takes in which other edges share the tier.
func (l *List) SetOthers(slots *presence.Slots, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.others {
		if !slots.Ended(e.ID) {
			l.silent[e.Name] = now // unless it is still there
		}
	}
	l.others = l.others[:0]
	slots.Others(func(e presence.Edge) {
		if e.Name == "" {
			e.Name = hexID(e.ID)
		}
		l.others = append(l.others, e)
		delete(l.silent, e.Name)
	})
	maps.DeleteFunc(l.silent, func(name string, since time.Time) bool {
		return now.Sub(since) >= silentFor || name == l.name()
	})
}

// wait is how long operators wait for the others to have a word.
const wait = 3 * time.Second

// Awaited reports whether operators may be waiting for others to have a word that was said here.
func (l *List) Awaited(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.latest.IsZero() && now.Sub(l.latest) < wait
}

// Len is how many words the list holds: blocks, lifts that must be kept, changes of rules.
func (l *List) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Len()
}

// Self is what this edge publishes about itself.
func (l *List) Self() presence.Edge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.self()
}

// self is Self where mu is locked.
func (l *List) self() presence.Edge {
	return presence.Edge{ID: l.config.ID, Name: l.name(), Marks: l.applied,
		Refused: l.changes.refused, About: l.changes.about}
}

// note takes notice of changes of rules among the names. mu is locked.
func (c *ruleChanges) note(names []operatorlog.Name) {
	if !slices.ContainsFunc(names,
		func(n operatorlog.Name) bool { return n.Change != operatorlog.Mark{} }) {
		return
	}
	c.version++
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// travelling is what of a list is taken in: no changes of rules where the secret can be guessed,
// and anyone could have made them.
func (l *List) travelling(list []operatorlog.Entry) []operatorlog.Entry {
	if l.config.Changes {
		return list
	}
	return slices.DeleteFunc(list,
		func(e operatorlog.Entry) bool { return e.Kind == operatorlog.Change })
}

// How the operators' list travels. Every node has a copy, and a head with its version. An edge
// reads the head of each node twice a second; if it is of a list that it has not merged, it reads
// that; if the node lacks something, it writes what it has: the list, then the head. Merging is a
// join, so the order of writes does not matter:
//
//	two edges write at once        the later list stands, and the head is of one of the two. The other edge finds a head that is not
//	                               its own; and whoever finds that head and list do not belong together writes both
//	a node came back empty         it has no head, and gets the list from whoever asks first
//	a list is lost, or was forged  its head is deleted by whoever finds out; then the node is as good as empty
// While the secret replaces another, a node has a copy under each, and an edge that has both keeps
// both. So an order given at an edge that has only the old one, or only the new one, reaches all.
//
// Commands of the list go to their node one at a time, by a connection of their own.

const (
	headEvery = 500 * time.Millisecond
	// While the node lacks something, or an operator waits for the outcome
	headHasty  = 50 * time.Millisecond
	listExpire = 30 * 24 * 3600 // seconds, as long as memcached takes for a span of time
)

// Node is what an edge knows of a node's copy of the list, under one secret. The zero Node is
// empty, and is for the secret in use.
type Node struct {
	line   int // of the secret
	doing  doing
	looked time.Time          // when its head was last read
	next   time.Time          // when to look again
	head   operatorlog.Digest // what was read last
	merged operatorlog.Digest // the list that was
	has    uint64             // the version of ours of which it lacked nothing
	writes operatorlog.Digest // what is being written, which was
	wrote  uint64             // this version of ours
}

// doing is the command to a node's copy that is under way.
type doing uint8

const (
	nothing doing = iota
	readingHead
	readingList
	writingList
	writingHead
)

// Looking reports whether the command under way to a node's copy reads its head.
func (w *Node) Looking() bool { return w.doing == readingHead }

// Nodes are for the copies of a node: one under each secret.
func (l *List) Nodes() []Node {
	list := make([]Node, len(l.sealed))
	for i := range list {
		list[i].line = i
	}
	return list
}

// Look is the command that reads the head of a node's ith copy, if it is time to.
func (l *List) Look(w *Node, i int, now time.Time) (c wire.Command, due bool) {
	if w.doing != nothing {
		return c, false
	}
	l.mu.Lock()
	hasty := l.latest.After(w.looked) && w.has != l.version // something was said here since
	l.mu.Unlock()
	if now.Before(w.next) && !hasty {
		return c, false
	}
	every := headEvery
	if l.Awaited(now) {
		every = headHasty
	}
	w.next, w.looked = now.Add(l.config.Jitter(every)), now
	w.doing = readingHead
	return wire.Command{Node: i, Op: wire.Get, Way: wire.List, Key: l.sealed[w.line].headKey}, true
}

// Answered takes in the answer to a command of a node's copy, and returns the command that follows,
// if one does. The answer to a Delete is not used; that to any other command comes here. One that
// failed is followed by another look soon.
func (l *List) Answered(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	was := w.doing
	w.doing = nothing
	if r.Status != wire.Done || was >= writingList {
		w.next = now.Add(l.config.Jitter(headHasty))
	}
	switch {
	case r.Status != wire.Done:
		return c, false
	case was == readingHead:
		return l.headRead(w, r, now)
	case was == readingList:
		return l.listRead(w, r, now)
	case was == writingList:
		w.doing = writingHead
		return wire.Command{Node: r.Node, Op: wire.Set, Way: wire.List,
			Key: l.sealed[w.line].headKey, Value: operatorlog.SealHead(l.sealed[w.line].secret,
				w.writes), Expire: listExpire}, true
	}
	w.merged, w.has = w.writes, w.wrote
	return c, false
}

// headRead compares a node's list with ours.
func (l *List) headRead(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	l.mu.Lock()
	version, entries := l.version, l.list.Len()
	_, ours := l.encode(w.line, now)
	l.mu.Unlock()
	var id operatorlog.Digest
	ok := false
	if v := r.Values[0]; v != nil {
		if id, ok = operatorlog.OpenHead(l.sealed[w.line].secret, v); !ok {
			l.forged.Add(1)
		}
	}
	switch {
	case !ok && entries == 0:
	case !ok:
		return l.writeList(w, r.Node, now), true
	case id != ours && id != w.merged:
		w.head, w.doing = id, readingList
		return wire.Command{Node: r.Node, Op: wire.Get, Way: wire.List,
			Key: l.sealed[w.line].listKey}, true
	case id == ours:
		w.has, w.merged = version, id
	case w.has != version:
		return l.writeList(w, r.Node, now), true
	}
	return c, false
}

// listRead merges a node's list into ours.
func (l *List) listRead(w *Node, r *wire.Result, now time.Time) (c wire.Command, follows bool) {
	var entries []operatorlog.Entry
	var id operatorlog.Digest
	ok := r.Values[0] != nil
	if ok {
		var err error
		if entries, id, err = operatorlog.Decode(l.sealed[w.line].secret, r.Values[0]); err != nil {
			l.forged.Add(1)
			ok = false
		}
	}
	if !ok {
		w.next = now.Add(l.config.Jitter(headHasty))
		return wire.Command{Node: r.Node, Op: wire.Delete, Way: wire.List,
			Key: l.sealed[w.line].headKey}, true
	}
	l.mu.Lock()
	names, lacks := l.list.Merge(l.travelling(entries), now)
	if len(names) > 0 {
		l.change(names...)
	}
	version := l.version
	l.mu.Unlock()
	w.merged = id
	if id != w.head || lacks {
		return l.writeList(w, r.Node, now), true
	}
	w.has = version
	return c, false
}

// writeList gives a node our list; the head follows.
func (l *List) writeList(w *Node, node int, now time.Time) wire.Command {
	l.mu.Lock()
	text, id := l.encode(w.line, now)
	w.writes, w.wrote = id, l.version
	l.mu.Unlock()
	w.doing = writingList
	return wire.Command{Node: node, Op: wire.Set, Way: wire.List, Key: l.sealed[w.line].listKey,
		Value: text, Expire: listExpire}
}

// Forged is how many values were read that were no list or head under the PoP's secret.
func (l *List) Forged() uint64 { return l.forged.Load() }

// lift is an epoch that is in force.
type lift struct {
	epoch  uint64
	since  time.Time
	listed bool // by an entry of the list, which says how long it is kept
}

// Epoch is the generation of the last lift of a source under a rule that this edge knows of, and 0
// if there is none. What was counted or started before it is void. All variants of a rule have the
// epoch of their rule.
func (l *List) Epoch(rule *algorithm.Spec, source counter.Source) uint64 {
	if len(l.epochs) == 0 {
		return 0
	}
	id := rule.ID
	if of, variant := l.rules.Load().of[id]; variant {
		id = of
	}
	return l.epochs[mitigation.Key{Rule: id, Source: source}]
}

// Settling reports whether a source was lifted since the last Apply, or in it: a mitigation of a
// verdict that fell before is none.
func (l *List) Settling(key mitigation.Key) bool {
	_, lifted := l.settling[key]
	return lifted
}

// Apply puts in force what operators have said since the last Apply, and all of it for rules that
// are new. It reports whether this edge should publish what is in force here now (Self).
//
// A lift races with requests that were judged before it and have not started their mitigation yet.
// So the counts are forgotten in one Apply, and in a later one the verdicts are voided that fell
// before its now, which is after that.
func (l *List) Apply(now time.Time) (changed bool) {
	for key, since := range l.settling {
		if now.After(since) {
			l.config.Blocks.Invalidate(key, now)
			delete(l.settling, key)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	if rules := l.rules.Load(); rules != l.under {
		l.changes.unannounced = true
		l.under = rules
		l.renameLifts(rules.Rules)
		for name := range l.list.All() {
			l.apply(name, now)
		}
		l.fresh = l.fresh[:0]
	}
	for _, name := range l.fresh {
		l.apply(name, now)
		l.changes.unannounced = true
	}
	l.fresh = l.fresh[:0]
	if l.changes.unannounced && l.changes.done == l.changes.version {
		l.applied, l.changes.unannounced = l.list.Marks(), false
		return true
	}
	return false
}

// report passes on operators' orders about sources at other edges since this one began, each entry
// once, those of an edge in their order. An edge that has an entry has all earlier entries of its
// edge, or what replaced them. mu is locked.
func (l *List) report() {
	if l.config.Received == nil {
		return
	}
	var fresh []*operatorlog.Entry
	for _, name := range l.fresh {
		e := l.list.At(name)
		if e == nil || e.Kind == operatorlog.Change || e.Mark().Edge == l.config.ID ||
			e.Mark().Generation <= l.reported[e.Mark().Edge] || e.Start.Before(l.began) {
			continue
		}
		fresh = append(fresh, e)
	}
	slices.SortFunc(fresh, func(a, b *operatorlog.Entry) int {
		return cmp.Or(cmp.Compare(a.Mark().Generation, b.Mark().Generation),
			cmp.Compare(a.Mark().Edge, b.Mark().Edge))
	})
	for _, e := range slices.CompactFunc(fresh,
		func(a, b *operatorlog.Entry) bool { return a.Mark() == b.Mark() }) {
		l.reported[e.Mark().Edge] = e.Mark().Generation
		l.config.Received(e.Order)
	}
}

// renameLifts makes the epochs of the rules in force.
func (l *List) renameLifts(rules Rules) {
	before := l.epochs
	l.epochs = make(map[mitigation.Key]uint64, len(l.lifts))
	for name, lift := range l.lifts {
		for _, rule := range rules[name.Rule] {
			if rule.VariantOf != 0 {
				continue
			}
			key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
			l.epochs[key] = lift.epoch
			// If it has counts, they are from before the rule was last gone
			if _, there := before[key]; !there {
				l.config.Counters.Forget(rule.Counter, name.Source)
			}
		}
	}
}

// apply puts the word of a name in force.
func (l *List) apply(name operatorlog.Name, now time.Time) {
	e := l.list.At(name)
	if e == nil || e.Kind == operatorlog.Change {
		return
	}
	if e.Epoch > l.lifts[name].epoch {
		l.Invalidate(name, e.Epoch, now)
	}
	if lift, there := l.lifts[name]; there && lift.epoch == e.Epoch {
		lift.listed = true
		l.lifts[name] = lift
	}
	for _, rule := range l.under.Rules[name.Rule] {
		if rule.ExtraLimit || rule.VariantOf != 0 {
			continue // a block is under the rule's own first limit
		}
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		bit, there := l.config.Blocks.Get(key, now)
		switch {
		case e.Kind == operatorlog.Block && now.Before(e.End):
			// now carries the monotonic clock, and ends are held against that.
			end := now.Add(min(e.End.Sub(now), mitigation.MaxBlock))
			if !there || bit.By != mitigation.ByAdmin || !bit.Start.Equal(e.Start) ||
				bit.Reason != e.Reason || bit.End.Sub(end).Abs() > time.Second {
				l.config.Blocks.Start(key, mitigation.Bit{Start: e.Start, End: end,
					By: mitigation.ByAdmin, Reason: e.Reason, Who: e.Who}, now)
			}
		case there && bit.By == mitigation.ByAdmin: // lifted, or ended by a shorter one
			l.config.Blocks.Lift(key, now)
		}
	}
}

// Invalidate begins an epoch: what was counted or started before is not in force any more. Apply
// does so as well; another edge may know of a lift before its entry is here.
func (l *List) Invalidate(name operatorlog.Name, epoch uint64, now time.Time) {
	if l.lifts == nil {
		l.lifts = make(map[operatorlog.Name]lift)
	}
	if l.settling == nil {
		l.settling = make(map[mitigation.Key]time.Time)
	}
	l.lifts[name] = lift{epoch: epoch, since: now}
	for _, rule := range l.rules.Load().Rules[name.Rule] {
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		if l.epochs == nil {
			l.epochs = make(map[mitigation.Key]uint64)
		}
		if rule.VariantOf == 0 {
			l.epochs[key] = epoch
		}
		l.config.Counters.Forget(rule.Counter, name.Source)
		if bit, there := l.config.Blocks.Last(key, now); there && bit.By != mitigation.ByAdmin {
			l.config.Blocks.Lift(key, now)
		}
		l.settling[key] = now
	}
}

// Sweep drops epochs whose entries are over: nothing is left that they void.
func (l *List) Sweep(now time.Time) {
	if len(l.lifts) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	some := false
	for name, lift := range l.lifts {
		// One learned from another edge's line has no word here yet.
		if e := l.list.At(name); (e == nil || e.Over(now)) &&
			(lift.listed || now.Sub(lift.since) > mitigation.MaxTimeout+mitigation.MaxMemory) {
			delete(l.lifts, name)
			some = true
		}
	}
	if some {
		l.renameLifts(l.rules.Load().Rules)
	}
}
