package pop

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/words"
)

// operators is what operators have said, and what of it is in force here. What is behind mu is anybody's; the rest is Step's.
type operators struct {
	mu      sync.Mutex
	list    words.List
	fresh   []words.Name // changed, and not yet in force
	version uint64       // of the list: grows with every change
	changed chan struct{}
	text    []byte // the list encoded, as of version encoded
	id      words.Digest
	encoded uint64
	latest  time.Time         // when this edge last had something to say
	began   time.Time         // when this edge did
	applied []words.Mark      // of what is in force
	heard   map[uint64]uint64 // of each other edge, the generation of its latest word on a source that Config.Heard was told of
	others  []presence.Edge
	changes ruleChanges

	listKey, headKey string
	rules            *ruleSet // that lifts and blocks were last applied to
	lifts            map[words.Name]lift
	epochs           map[mitigation.Key]uint64    // lifts, for the rules in force
	settling         map[mitigation.Key]time.Time // when their counts were forgotten
	news             bool                         // applied has changed since this edge last said what it is
}

// lift is an epoch that is in force.
type lift struct {
	epoch uint64
	since time.Time
	said  bool // by a word of the list, which says how long it is kept
}

// Say puts an operator's word into the list; the next Step puts it in force here and sends it on its way to all edges. Spread says
// of them which have it. It may be called from anywhere. The error is words.ErrFull, ErrWord or ErrLong.
func (m *Machine) Say(w words.Word, now time.Time) (Receipt, error) {
	if w.Kind == words.Change && !m.config.Rules {
		return Receipt{}, fmt.Errorf("%w: changes of rules do not travel under a secret that can be guessed", words.ErrWord)
	}
	voids := mitigation.MaxTimeout
	for _, rule := range m.rules.Load().byName[w.Rule] {
		voids = max(voids, rule.Counter.Lifetime(), rule.Repeat.Longest(rule.Timeout)+rule.Repeat.Memory())
	}
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	mark, err := o.list.Add(w, m.id, voids+2*words.ClockSkew, now)
	if err != nil {
		return Receipt{}, err
	}
	o.latest = now
	name := words.Name{Rule: w.Rule, Source: w.Source}
	if w.Kind == words.Change {
		name.Change = mark
	}
	o.change(name)
	return Receipt{mark}, nil
}

// change notes that entries have changed. mu is locked.
func (o *operators) change(names ...words.Name) {
	o.fresh = append(o.fresh, names...)
	o.version++
	o.changes.note(names)
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// Receipt is for a word that was said here.
type Receipt struct{ Mark words.Mark }

// Spread is how far a word has come.
type Spread struct {
	Known   int      // edges of the PoP, this one included
	Have    int      // of them, those where it is in force
	Missing []string // the others, by name
}

// Spread says which edges have a word that was said here. It may be called from anywhere.
func (m *Machine) Spread(r Receipt) (s Spread) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range append([]presence.Edge{m.self()}, o.others...) {
		s.Known++
		has := slices.ContainsFunc(e.Marks, func(k words.Mark) bool { return k.Edge == r.Mark.Edge && k.Generation >= r.Mark.Generation })
		if has && !slices.Contains(e.Refused, r.Mark) {
			s.Have++
		} else {
			s.Missing = append(s.Missing, e.Name)
		}
	}
	return s
}

// Words returns the list in the form in which it is kept, and a channel that is closed when it changes. It may be called
// from anywhere.
func (m *Machine) Words(now time.Time) (list []byte, changed <-chan struct{}) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	text, _ := o.encode(m.secret, now)
	return text, o.changed
}

// Restore takes in a list that Words returned. Before the first Step, lifts in it are taken to be in force: whoever calls it then has
// nothing from before them. The error is ErrWords.
func (m *Machine) Restore(list []byte, now time.Time) error {
	entries, _, err := words.Decode(m.secret, list)
	if err != nil {
		return err
	}
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	if names, _ := o.list.Merge(m.travelling(entries), now); len(names) > 0 {
		o.change(names...)
	}
	if o.rules != nil {
		return nil
	}
	if o.lifts == nil {
		o.lifts = make(map[words.Name]lift)
	}
	for name, e := range o.list.All() {
		if e.Epoch != 0 {
			o.lifts[name] = lift{e.Epoch, now, true}
		}
	}
	return nil
}

// encode returns the list as it travels. What has merely ended since it was last encoded stays in it, so that edges whose clocks
// differ do not take turns in telling each other. mu is locked.
func (o *operators) encode(s secret.Secret, now time.Time) ([]byte, words.Digest) {
	if o.text == nil || o.encoded != o.version {
		o.text, o.encoded = o.list.Encode(s, now), o.version
		copy(o.id[:], o.text[len(o.text)-secret.MACSize:])
	}
	return o.text, o.id
}

// epoch is the generation of the last lift of a source under a rule that this edge knows of, and 0 if there is none. What was
// counted or started before it is void.
func (m *Machine) epoch(rule *algorithm.Rule, source counter.Source) uint64 {
	if len(m.operators.epochs) == 0 {
		return 0
	}
	id := rule.ID
	if known := m.rules.Load().byID[id]; known != nil && known.Of != 0 {
		id = known.Of // all variants have the epoch of their rule
	}
	return m.operators.epochs[mitigation.Key{Rule: id, Source: source}]
}

// applyWords puts in force what operators have said since the last Step, and all of it for rules that are new.
//
// A lift races with requests that were judged before it and have not started their mitigation yet. So the counts are forgotten
// in one Step, and in a later one the verdicts are voided that fell before its now, which is after that.
func (m *Machine) applyWords(now time.Time) {
	o := &m.operators
	for key, since := range o.settling {
		if now.After(since) {
			m.bits.Void(key, now)
			delete(o.settling, key)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	m.hear()
	set := m.rules.Load()
	if set != o.rules {
		o.changes.unsaid = true
		o.rules = set
		m.renameLifts(set)
		for name := range o.list.All() {
			m.apply(name, now)
		}
		o.fresh = o.fresh[:0]
	}
	for _, name := range o.fresh {
		m.apply(name, now)
		o.changes.unsaid = true
	}
	o.fresh = o.fresh[:0]
	if o.changes.unsaid && o.changes.done == o.changes.version {
		o.applied, o.changes.unsaid = o.list.Marks(), false
		m.peers.next, o.news = now, true // the others should know
	}
}

// hear tells what operators have said of sources at other edges since this one began, each word once, those of an edge in their order. Whoever has
// a word has all that its edge had said until then, or what took its place. operators.mu is locked.
func (m *Machine) hear() {
	o := &m.operators
	if m.config.Heard == nil {
		return
	}
	var news []*words.Entry
	for _, name := range o.fresh {
		e := o.list.At(name)
		if e == nil || e.Kind == words.Change || e.Mark().Edge == m.id || e.Mark().Generation <= o.heard[e.Mark().Edge] || e.Start.Before(o.began) {
			continue
		}
		news = append(news, e)
	}
	slices.SortFunc(news, func(a, b *words.Entry) int {
		return cmp.Or(cmp.Compare(a.Mark().Generation, b.Mark().Generation), cmp.Compare(a.Mark().Edge, b.Mark().Edge))
	})
	for _, e := range slices.CompactFunc(news, func(a, b *words.Entry) bool { return a.Mark() == b.Mark() }) {
		o.heard[e.Mark().Edge] = e.Mark().Generation
		m.config.Heard(e.Word)
	}
}

// renameLifts makes the epochs of the rules in force.
func (m *Machine) renameLifts(set *ruleSet) {
	o, before := &m.operators, m.operators.epochs
	o.epochs = make(map[mitigation.Key]uint64, len(o.lifts))
	for name, l := range o.lifts {
		for _, rule := range set.byName[name.Rule] {
			if rule.Of != 0 {
				continue
			}
			key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
			o.epochs[key] = l.epoch
			if _, there := before[key]; !there { // if it has counts, they are from before the rule was last gone
				m.counters.Forget(rule.Counter, name.Source)
			}
		}
	}
}

// apply puts the word of a name in force.
func (m *Machine) apply(name words.Name, now time.Time) {
	e := m.operators.list.At(name)
	if e == nil || e.Kind == words.Change {
		return
	}
	if e.Epoch > m.operators.lifts[name].epoch {
		m.void(name, e.Epoch, now)
	}
	if l, there := m.operators.lifts[name]; there && l.epoch == e.Epoch {
		l.said = true
		m.operators.lifts[name] = l
	}
	for _, rule := range m.operators.rules.byName[name.Rule] {
		if rule.Candidate || rule.Further || rule.Of != 0 {
			continue
		}
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		bit, there := m.bits.Get(key, now)
		switch {
		case e.Kind == words.Block && now.Before(e.End):
			// now carries the monotonic clock, and ends are held against that.
			end := now.Add(min(e.End.Sub(now), mitigation.MaxBlock))
			if !there || bit.By != mitigation.ByAdmin || !bit.Start.Equal(e.Start) || bit.Reason != e.Reason || bit.End.Sub(end).Abs() > time.Second {
				m.bits.Start(key, mitigation.Bit{Start: e.Start, End: end, By: mitigation.ByAdmin, Reason: e.Reason}, now)
			}
		case there && bit.By == mitigation.ByAdmin: // lifted, or ended by a shorter one
			m.bits.Lift(key, now)
		}
	}
}

// void begins an epoch: what was counted or started before is not in force any more.
func (m *Machine) void(name words.Name, epoch uint64, now time.Time) {
	o := &m.operators
	if o.lifts == nil {
		o.lifts = make(map[words.Name]lift)
	}
	if o.settling == nil {
		o.settling = make(map[mitigation.Key]time.Time)
	}
	o.lifts[name] = lift{epoch: epoch, since: now}
	for _, rule := range m.rules.Load().byName[name.Rule] {
		key := mitigation.Key{Rule: rule.Counter.ID, Source: name.Source}
		if o.epochs == nil {
			o.epochs = make(map[mitigation.Key]uint64)
		}
		if rule.Of == 0 {
			o.epochs[key] = epoch
		}
		m.counters.Forget(rule.Counter, name.Source)
		if bit, there := m.bits.Last(key, now); there && bit.By != mitigation.ByAdmin {
			m.bits.Lift(key, now)
		}
		o.settling[key] = now
	}
}

// forgetLifts drops epochs whose words are over: nothing is left that they void.
func (m *Machine) forgetLifts(now time.Time) {
	o := &m.operators
	if len(o.lifts) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	some := false
	for name, l := range o.lifts {
		// One learned from another edge's line has no word here yet.
		if e := o.list.At(name); (e == nil || e.Over(now)) && (l.said || now.Sub(l.since) > mitigation.MaxTimeout+mitigation.MaxMemory) {
			delete(o.lifts, name)
			some = true
		}
	}
	if some {
		m.renameLifts(m.rules.Load())
	}
}

// name is what operators call this edge.
func (m *Machine) name() string {
	if m.config.Name == "" {
		return hexID(m.id)
	}
	return m.config.Name
}

func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }

// Changes of rules are words as well. What one says means nothing here: whoever runs the Machine puts it in force, and says so. Until
// then this edge does not count among those that have what was said.

// ruleChanges is what became of them here; operators.mu guards it.
type ruleChanges struct {
	version uint64        // grows with each
	moved   chan struct{} // closed when it does
	done    uint64        // the version that is in force
	refused []words.Mark  // that cannot be in force here
	about   presence.About
	unsaid  bool // the others do not know yet what is in force here
}

// Changes returns the changes of rules that operators have said: by rule, the newest first. Their version grows with each of them, and
// the channel is closed then. It may be called from anywhere.
func (m *Machine) Changes() (list []words.Entry, version uint64, moved <-chan struct{}) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changes.moved == nil {
		o.changes.moved = make(chan struct{})
	}
	return o.list.Changes(), o.changes.version, o.changes.moved
}

// InForce says that what Changes returned is in force, but for what cannot be, the newest of that first. It may be called from anywhere.
func (m *Machine) InForce(version uint64, refused []words.Mark) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes.done, o.changes.refused, o.changes.unsaid = version, slices.Clone(refused[:min(len(refused), presence.MaxRefused)]), true
}

// Describe says what the others are told of this edge. It may be called from anywhere.
func (m *Machine) Describe(a presence.About) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes.about, o.changes.unsaid = a, true
}

// Edges are those of the PoP, this one first, as far as it knows. It may be called from anywhere.
func (m *Machine) Edges() []presence.Edge {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]presence.Edge{m.self()}, o.others...)
}

// self is what this edge says of itself. operators.mu is locked.
func (m *Machine) self() presence.Edge {
	o := &m.operators
	return presence.Edge{ID: m.id, Name: m.name(), Marks: o.applied, Refused: o.changes.refused, About: o.changes.about}
}

// note takes notice of changes of rules among the names. mu is locked.
func (c *ruleChanges) note(names []words.Name) {
	if !slices.ContainsFunc(names, func(n words.Name) bool { return n.Change != words.Mark{} }) {
		return
	}
	c.version++
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// travelling is what of a list is taken in: no changes of rules where anybody could have made them, because the secret can be guessed.
func (m *Machine) travelling(list []words.Entry) []words.Entry {
	if m.config.Rules {
		return list
	}
	return slices.DeleteFunc(list, func(e words.Entry) bool { return e.Kind == words.Change })
}
