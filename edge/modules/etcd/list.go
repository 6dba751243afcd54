package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge/changes"
	"sluice/edge/changes/etcd"
	"sluice/edge/changes/rulelist"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// Names in etcd, under its prefix: of each rule that was changed its history, and of each edge its
// state.
const (
	ruleNames = "rules/"
	edgeNames = "edges/"
)

// maxValue bounds what is read of one rule: ten changes of the longest kind, and room.
const maxValue = 128 << 10

// shared is a list that edges of several PoPs have in etcd, and keep a copy of. What etcd has is
// merged into the copy; what the copy has and etcd lacks, because it was put back to an older
// state, is written again: so the newest change stands everywhere, and nothing that an edge
// remembers is lost. A change is made in etcd first, over what this edge has seen there, or not at
// all. A value that is no history of a rule is left alone, and reported.
type shared struct {
	*rulelist.List
	store  *etcd.Store
	report func(bad bool, rule, text string)
	id     uint64
	name   string // of this edge in etcd: its ID

	mu sync.Mutex // the copy has one of its own, which is locked within this
	// By rule: of what etcd has of it; a copy of etcd's index for those that this edge has seen of
	revisions map[string]int64
	wrong     map[string]string // by rule: why what etcd has of it cannot be read
	self      edgeState
	laid      uint64 // the version that is in force here
	seen      int64  // the latest revision of a rule that this edge has
	counts    putCounts
}

// edgeState is what an edge publishes about itself in etcd.
type edgeState struct {
	control.EdgeStatus
	Revision int64    `json:"revision"` // of the rules in etcd that are in force there
	Refuses  []string `json:"refuses,omitempty"`
}

// putCounts is what became of changes that this edge wrote.
type putCounts struct{ done, conflict, failed uint64 }

// open makes the list of an edge with an ID. report is called, for operators, when etcd stops
// answering, or has an unreadable value of a rule (bad), and when it is good again.
func open(key secret.Secret, id uint64, c etcd.Config, report func(bad bool, rule,
	text string)) (*shared, error) {
	name := fmt.Sprintf("%016x", id)
	store, err := etcd.New(c, ruleNames, edgeNames+name)
	if err != nil {
		return nil, err
	}
	e := &shared{List: rulelist.New(key, id), store: store, report: report, id: id, name: name,
		revisions: make(map[string]int64), wrong: make(map[string]string)}
	store.Turned = func(why error) {
		if why != nil {
			report(true, "",
				"etcd does not answer: rules stay as they are, and cannot be changed: "+why.Error())
		} else {
			report(false, "", "etcd answers")
		}
	}
	return e, nil
}

// Copy is what this edge has.
func (e *shared) Copy() *rulelist.List { return e.List }

// Load reads what etcd has, if it answers soon; else what this edge had stays, and Follow goes on
// asking.
func (e *shared) Load(ctx context.Context) {
	if values, err := e.store.Read(ctx); err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, v := range values {
			e.received(v, time.Now())
		}
	}
}

// Follow keeps copy and etcd together until ctx is done.
func (e *shared) Follow(ctx context.Context) {
	e.store.Follow(ctx, func(values []etcd.Value, all bool) { e.take(ctx, values, all) })
}

// take takes in etcd's values, and writes what they lack.
func (e *shared) take(ctx context.Context, values []etcd.Value, all bool) {
	now := time.Now()
	e.mu.Lock()
	var lacks []string
	if all {
		clear(e.revisions)
		e.seen, e.self.Revision = 0, 0 // it may be another etcd
	}
	for _, v := range values {
		if e.received(v, now) {
			lacks = append(lacks, strings.TrimPrefix(v.Name, ruleNames))
		}
	}
	if all {
		for rule := range e.wrong {
			if e.revisions[rule] == 0 {
				e.good(rule)
			}
		}
		var last string
		list, _, _ := e.Changes()
		for _, c := range list {
			if c.Rule != last && e.revisions[c.Rule] == 0 {
				lacks = append(lacks, c.Rule)
			}
			last = c.Rule
		}
	}
	e.announce()
	e.mu.Unlock()
	for _, rule := range lacks {
		if e.restore(ctx, rule) != nil {
			return // the session is about to end: the next one begins with all
		}
	}
}

// received takes in a value, and reports whether it lacks something of a rule that this edge has.
// mu is locked.
func (e *shared) received(v etcd.Value, now time.Time) (lacks bool) {
	rule := strings.TrimPrefix(v.Name, ruleNames)
	if v.Text != nil && v.Revision < e.revisions[rule] {
		return false // the watch repeats what a Put has returned already
	}
	e.revisions[rule], e.seen = v.Revision, max(e.seen, v.Revision)
	if v.Text == nil {
		e.good(rule)
		return len(e.ofRule(rule)) > 0
	}
	entries, err := decode(rule, v.Text)
	if err != nil {
		if was := e.wrong[rule]; was != err.Error() {
			e.wrong[rule] = err.Error()
			e.report(true, rule,
				"what etcd has of a rule cannot be read: what was stays: "+err.Error())
		}
		return false
	}
	e.good(rule)
	e.Merge(entries, now)
	var both operatorlog.List
	both.Merge(entries, now)
	both.Merge(e.ofRule(rule), now)
	// By their marks: ends, which clocks may bound otherwise, would be written for ever
	return slices.ContainsFunc(ofRule(both.Changes(), rule), func(c operatorlog.Entry) bool {
		return !slices.ContainsFunc(entries,
			func(o operatorlog.Entry) bool { return o.Mark() == c.Mark() })
	})
}

// good notes that a rule's value is readable. mu is locked.
func (e *shared) good(rule string) {
	if _, was := e.wrong[rule]; was {
		delete(e.wrong, rule)
		e.report(false, rule, "what etcd has of a rule can be read again")
	}
}

// ofRule is what this edge has of a rule. mu is locked.
func (e *shared) ofRule(rule string) []operatorlog.Entry {
	list, _, _ := e.Changes()
	return ofRule(list, rule)
}

func ofRule(all []operatorlog.Entry, rule string) (list []operatorlog.Entry) {
	for _, c := range all {
		if c.Rule == rule {
			list = append(list, c)
		}
	}
	return list
}

// restore writes what this edge has of a rule and etcd lacks. Others may do the same, so it looks
// again at what they have written.
func (e *shared) restore(ctx context.Context, rule string) error {
	for {
		e.mu.Lock()
		entries, revision := e.ofRule(rule), e.revisions[rule]
		e.mu.Unlock()
		if len(entries) == 0 { // it was over
			return nil
		}
		v, done, err := e.store.Put(ctx, ruleNames+rule, encode(entries), revision)
		e.mu.Lock()
		if done {
			e.revisions[rule], e.seen = v.Revision, max(e.seen, v.Revision)
		}
		again := err == nil && !done && e.received(v, time.Now())
		e.mu.Unlock()
		if !again {
			return err
		}
	}
}

// Add sends a change to all edges: in etcd, over what was there at the version that it was made of.
// The error is changes.ErrMoved if there is something else by now, and changes.ErrAway if etcd does
// not answer.
func (e *shared) Add(w operatorlog.Order, version uint64,
	now time.Time) (mark operatorlog.Mark, err error) {
	e.mu.Lock()
	list, is, _ := e.Changes()
	if is != version {
		e.mu.Unlock()
		return mark, changes.ErrMoved
	}
	var next operatorlog.List // with what etcd has not yet
	next.Merge(list, now)
	if mark, err = next.Add(w, e.id, 0, now); err != nil {
		e.mu.Unlock()
		return mark, err
	}
	entries, revision := ofRule(next.Changes(), w.Rule), e.revisions[w.Rule]
	e.mu.Unlock()
	v, done, err := e.store.Put(context.Background(), ruleNames+w.Rule, encode(entries), revision)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, etcd.ErrAway):
		e.counts.failed++
		return mark, fmt.Errorf("%w: %w", changes.ErrAway, err)
	case err != nil:
		e.counts.failed++
		return mark, fmt.Errorf("%w: %w; it may be changed all the same: look again",
			changes.ErrAway, err)
	case !done:
		e.counts.conflict++
		e.received(v, now)
		return mark, changes.ErrMoved
	}
	e.counts.done++
	e.good(w.Rule)
	e.revisions[w.Rule] = max(e.revisions[w.Rule], v.Revision)
	e.seen = max(e.seen, v.Revision)
	e.Merge(entries, now)
	return mark, nil
}

// InForce notes that a version is in force here, except what cannot be.
func (e *shared) InForce(version uint64, refused []operatorlog.Mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.laid, e.self.Refuses, e.self.Refused = version, nil, len(refused)
	for _, mark := range refused {
		e.self.Refuses = append(e.self.Refuses, markText(mark))
	}
	e.announce()
}

// Describe sets what this edge publishes about itself.
func (e *shared) Describe(s control.EdgeStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.ID, s.Refused = e.name, e.self.Refused
	e.self.EdgeStatus = s
}

// announce publishes what is in force here, if that has changed. mu is locked.
func (e *shared) announce() {
	if _, version, _ := e.Changes(); e.laid == version {
		e.self.Revision = e.seen
	}
	text, _ := json.Marshal(e.self) // it always can be
	e.store.Publish(text)
}

func markText(m operatorlog.Mark) string { return fmt.Sprintf("%d-%016x", m.Generation, m.Edge) }

// Spread is how far changes of a rule have come, of which one is this edge's own. The error is that
// etcd does not answer.
func (e *shared) Spread(rule string, marks []operatorlog.Mark) (control.Spread, error) {
	others, err := e.others()
	if err != nil {
		return control.Spread{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var s control.Spread
	s.Missing = []string{}
	pops := make(map[string]bool)
	for _, state := range append([]edgeState{e.self}, others...) {
		s.Known++
		pops[state.PoP] = true
		refuses := slices.ContainsFunc(marks,
			func(m operatorlog.Mark) bool { return slices.Contains(state.Refuses, markText(m)) })
		name := state.PoP + "/" + state.Name
		if state.Revision >= e.revisions[rule] && !refuses {
			s.Have++
		} else {
			s.Missing = append(s.Missing, name)
		}
		if refuses {
			s.Refused = append(s.Refused, name)
		}
	}
	s.PoPs = len(pops)
	return s, nil
}

// others are the other edges, as they say of themselves.
func (e *shared) others() (list []edgeState, err error) {
	values, err := e.store.List(context.Background(), edgeNames)
	for _, v := range values {
		var state edgeState
		if json.Unmarshal(v.Text, &state) == nil && edgeNames+state.ID == v.Name &&
			state.ID != e.name {
			list = append(list, state)
		}
	}
	return list, err
}

// Status returns for operators whether etcd answers, and which edges share it.
func (e *shared) Status() control.EtcdStatus {
	others, _ := e.others() // else up is false
	up := e.store.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := control.EtcdStatus{Up: up.Up, Since: up.Since, Wrong: maps.Clone(e.wrong),
		Edges: []control.EdgeStatus{e.self.EdgeStatus}}
	if up.Why != nil {
		s.Error = up.Why.Error()
	}
	for _, state := range others {
		s.Edges = append(s.Edges, state.EdgeStatus)
	}
	return s
}

// up reports whether etcd answers.
func (e *shared) up() bool { return e.store.Status().Up }

// counted is for metrics: what became of what this edge wrote, and how many values or changes in
// them cannot be in force here.
func (e *shared) counted() (puts putCounts, wrong int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts, len(e.wrong) + e.self.Refused
}

// decode reads the past of a rule.
func decode(rule string, text []byte) (list []operatorlog.Entry, err error) {
	if len(text) > maxValue {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", len(text), maxValue)
	}
	records, err := changes.DecodeRecords(text)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		e, err := operatorlog.ChangeEntry(operatorlog.Order{Rule: rule, Kind: operatorlog.Change,
			Start: r.At, End: r.Until, Text: r.Text}, operatorlog.Mark{Edge: r.Edge,
			Generation: r.Version})
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func encode(list []operatorlog.Entry) []byte {
	records := make([]changes.Record, len(list))
	for i := range list {
		e := &list[i]
		records[i] = changes.Record{Version: e.Mark().Generation, Edge: e.Mark().Edge, At: e.Start,
			Until: e.End, Text: e.Text}
	}
	return changes.EncodeRecords(records)
}
