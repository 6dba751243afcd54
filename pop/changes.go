package pop

import (
	"slices"

	"sluice/pop/presence"
	"sluice/pop/words"
)

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
