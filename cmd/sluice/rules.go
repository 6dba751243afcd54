package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/edge/admin"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/pop/operatorlog"
	"sluice/pop/presence"
)

// lay puts a file's rules in force, under operators' changes. If that is not possible, what was in
// force stays. r.mu is locked.
func (r *reloader) lay(base *config.Config) error {
	entries, version, _ := r.store.List()
	list := changesOf(entries)
	o := r.over(base, list)
	err := r.put(base, o)
	var cannot map[operatorlog.Mark]error
	if err != nil {
		if wrong := r.server.Check(r.laidOver(base, r.over(base, nil))); wrong != nil {
			return wrong // not even the file's rules can be in force
		}
		cannot = r.without(base, list, err)
		// A file that is read again does not go before what operators have in force
		if was := r.inForceOf(cannot); was != nil && base != r.base {
			return was
		}
		o = r.over(base, list)
		if err := r.put(base, o); err != nil {
			return err
		}
	}
	r.base, r.laid, r.cannot = base, version, cannot
	now := time.Now()
	r.ends = nextEnd(list, now)
	var refused []operatorlog.Mark
	why := make(map[operatorlog.Mark]error)
	for _, f := range append(r.modules.Change(list, now, r.log), o.Refused...) {
		mark := markOf(&f.Change)
		refused, why[mark] = append(refused, mark), f.Err
	}
	slices.SortFunc(refused,
		func(a, b operatorlog.Mark) int { return int(int64(b.Generation - a.Generation)) })
	r.recordChanges(entries, list, why, o)
	r.overlay.Store(o)
	r.describe(entries)
	r.store.InForce(version, refused)
	return nil
}

// changesOf are what entries of the operators' log say.
func changesOf(entries []operatorlog.Entry) []changes.Change {
	list := make([]changes.Change, len(entries))
	for i := range entries {
		e := &entries[i]
		list[i] = changes.Read(e.Rule, e.Mark().Generation, e.Mark().Edge, e.Start, e.Text)
	}
	return list
}

// markOf is the mark of the entry that says a change.
func markOf(c *changes.Change) operatorlog.Mark {
	return operatorlog.Mark{Edge: c.Maker, Generation: c.Version}
}

// over lays changes over a file's rules.
func (r *reloader) over(base *config.Config, list []changes.Change) *changes.Overlay {
	from := changes.File
	if r.flags.config == "" {
		from = changes.Flags
	}
	return changes.Lay(base, from, list, r.store.Origin)
}

// laidOver is a file's configuration under operators' changes.
func (r *reloader) laidOver(base *config.Config, o *changes.Overlay) *config.Config {
	c := config.Running(r.server.Config(), base)
	c.Rules = o.Rules
	return c
}

// put puts it in force, if it is not. Whether it can be is checked first: where only some of the
// changes cannot, no reload has failed.
func (r *reloader) put(base *config.Config, o *changes.Overlay) error {
	if base == r.base && slices.EqualFunc(o.Rules, r.server.Config().Rules,
		func(a, b rules.Config) bool { return config.RuleJSON(a) == config.RuleJSON(b) }) {
		return nil
	}
	c := r.laidOver(base, o)
	if err := r.server.Check(c); err != nil {
		return err
	}
	return r.server.Apply(c)
}

// without refuses those of some changes of rules that cannot be in force on this edge together with
// the others, and returns them. The newest give way, since the others were in force before they came.
func (r *reloader) without(base *config.Config, list []changes.Change,
	why error) map[operatorlog.Mark]error {
	var all []*changes.Change // that this edge understands, the oldest first
	for i := range list {
		if list[i].Kind == "" && list[i].Wrong() == nil {
			all = append(all, &list[i])
		}
	}
	slices.SortFunc(all, func(a, b *changes.Change) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Maker, b.Maker))
	})
	check := func() error { return r.server.Check(r.laidOver(base, r.over(base, list))) }
	for _, c := range all { // what could not be before takes nothing from what is in force
		if was := r.cannot[markOf(c)]; was != nil {
			c.Refuse(was)
			why = nil
		}
	}
	if why == nil {
		why = check()
	}
	for first := len(all); why != nil && first > 0; why = check() {
		first--
		all[first].Refuse(why)
	}
	cannot := make(map[operatorlog.Mark]error)
	for _, c := range all {
		if c.Wrong() == nil {
			continue
		}
		c.Refuse(nil) // only some of them may be wrong
		if err := check(); err != nil {
			c.Refuse(err)
			cannot[markOf(c)] = err
		}
	}
	return cannot
}

// inForceOf returns why the first of some changes that is in force here cannot be any more; nil:
// none of them is.
func (r *reloader) inForceOf(cannot map[operatorlog.Mark]error) error {
	for _, mark := range slices.SortedFunc(maps.Keys(cannot), operatorlog.Mark.Compare) {
		if r.known[mark] && r.cannot[mark] == nil {
			return cannot[mark]
		}
	}
	return nil
}

// takes returns why a new change of a rule cannot be in force here; nil: it can. What could not be
// here would be in force on other edges, and be laid again by a process that starts.
func (r *reloader) takes(c changes.Change) error {
	entries, _, _ := r.store.List()
	list := changesOf(entries)
	for i := range list {
		if why := r.cannot[entries[i].Mark()]; why != nil {
			list[i].Refuse(why)
		}
	}
	c.Version = math.MaxUint64 // it is the newest
	i := slices.IndexFunc(list,
		func(o changes.Change) bool { return o.Kind == "" && o.Name == c.Name })
	if i < 0 {
		i = len(list)
	}
	return r.server.Check(r.laidOver(r.base, r.over(r.base, slices.Insert(list, i, c))))
}

// recordChanges records as events, and logs, what other edges have changed, and what cannot be in
// force here. What an older process of this edge had, or its folder, is left out.
func (r *reloader) recordChanges(entries []operatorlog.Entry, list []changes.Change,
	why map[operatorlog.Mark]error, now *changes.Overlay) {
	known := make(map[operatorlog.Mark]bool, len(entries))
	for i := len(entries) - 1; i >= 0; i-- { // of a rule the newest come first
		mark, c := entries[i].Mark(), &list[i]
		known[mark] = true
		if r.known[mark] || r.known == nil && why[mark] == nil {
			continue
		}
		newest := i == 0 || entries[i-1].Rule != entries[i].Rule
		e := events.Event{Time: time.Now(), Rule: c.Name, Who: c.Who, From: c.From + " at " + c.Edge}
		switch {
		case why[mark] != nil:
			e.Kind, e.New = events.Warning, string(c.Rule)
			e.Text = fmt.Sprintf("a change of the rule is not in force here: %v: what was stays",
				why[mark])
			r.log.Error("a change of a rule cannot be in force on this edge: what was stays",
				"rule", c.Subject(), "version", c.Version, "at", c.Edge, "error",
				settings.Sentence(why[mark]))
		case c.Kind != "":
			e.Kind, e.Text, e.New = events.Rule, r.modules.ChangeText(c), string(c.Rule)
		// Older ones were in force for a moment, if at all
		case newest || c.At.After(r.about.Started):
			e.Old, e.New = now.Made(c)
			e.Changed = changes.Fields(e.Old, e.New)
			e.Kind, e.Text = events.Rule, changes.Done(e.Old, e.New,
				c.To != nil)+", at another edge"
			r.log.Info("rule changed at another edge", "rule", c.Name, "version", c.Version, "at",
				c.Edge)
		default:
			continue
		}
		r.server.Events().Add(e)
	}
	r.known = known
}

// describe publishes what is in force here.
func (r *reloader) describe(entries []operatorlog.Entry) {
	r.about.Generation = 0
	for i := range entries {
		r.about.Generation = max(r.about.Generation, entries[i].Mark().Generation)
	}
	r.about.ConfigHash, r.about.Since = r.server.RulesHash()
	if r.machine != nil {
		r.machine.Operators.Describe(r.about)
	}
	if r.store.Describe != nil {
		s := tier.EdgeStatus(presence.Edge{Name: r.name, About: r.about})
		s.PoP = r.server.Config().PoP.Name
		r.store.Describe(s)
	}
}

// self is this edge where there are no others.
func (r *reloader) self() control.EdgeStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return tier.EdgeStatus(presence.Edge{Name: r.name, About: r.about})
}

// catchUp puts in force what has been changed since.
func (r *reloader) catchUp() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.caughtUp()
}

// caughtUp is catchUp where r.mu is locked.
func (r *reloader) caughtUp() error {
	entries, version, _ := r.store.List()
	if version == r.laid && r.overlay.Load() != nil {
		return nil
	}
	err := r.lay(r.base)
	if err != nil {
		r.log.Error("what operators changed of the rules cannot be put in force: what was stays",
			"error", err)
		var refused []operatorlog.Mark
		for i := range entries {
			if mark := entries[i].Mark(); !r.known[mark] {
				refused = append(refused, mark)
			}
		}
		r.store.InForce(version, refused)
	}
	return err
}

// editTries is how often a change of some fields is made anew, over what another operator has
// changed of the rule at the same moment.
const editTries = 5

// edit changes a rule as an operator asks, here and on all edges, and returns where it is in force,
// and what of it is not because another operator has set it at the same moment.
func (r *reloader) edit(e changes.Edit) (admin.Edited, error) {
	done, mark, err := r.apply(e)
	for tries := 1; errors.Is(err, changes.ErrMoved) && e.Action == changes.Patch &&
		tries < editTries; tries++ {
		done, mark, err = r.apply(e)
	}
	if err != nil || mark == (operatorlog.Mark{}) {
		return done, err
	}
	done.Warnings = slices.Clone(r.store.Warnings)
	made := func() (m tier.Made) {
		_ = r.catchUp() // it logs
		done.Now = r.overlay.Load()
		m, done.Overtaken = madeOf(done.Now, e.Name, mark)
		return m
	}
	made()
	if r.store.Await != nil {
		s := r.store.Await(made)
		if done.Edges = s.Spread; s.Spread == nil {
			done.Warnings = append(done.Warnings,
				"the change is made, but on which edges it is in force could not be read")
		}
		if s.Newer {
			done.Warnings = append(done.Warnings,
				"another edge has said something newer, which is not known here yet: see the history of the rule for what stands")
		}
	}
	done.Warnings = append(done.Warnings, done.Now.Replaced(e.Name, mark.Generation, mark.Edge,
		done.Overtaken)...)
	for i := range done.Overtaken {
		text := done.Overtaken[i].String()
		done.Warnings = append(done.Warnings, text)
		r.log.Warn("what an operator said of a rule here does not stand", "rule", e.Name, "who",
			e.Who, "why", text)
	}
	if r.store.Save != nil {
		if err := r.store.Save(); err != nil {
			done.Warnings = append(done.Warnings,
				"the change is in force, but could not be written to state_dir: "+err.Error())
		}
	}
	return done, nil
}

// madeOf is a change that was said here and those that are newer of the same rule, as an overlay
// has them, and what of it does not stand.
func madeOf(o *changes.Overlay, rule string,
	mark operatorlog.Mark) (m tier.Made, lost []changes.Overtaken) {
	m = tier.Made{Rule: rule, Marks: []operatorlog.Mark{mark}}
	for _, c := range o.Newer(rule, mark.Generation, mark.Edge) {
		m.Marks = append(m.Marks, markOf(&c))
	}
	lost = o.Overtaken(rule, mark.Generation, mark.Edge)
	m.Overtaken = len(lost) > 0
	return m, lost
}

// apply puts an edit in force on this edge, and sends it to the others. It has no mark if the rule
// is so already.
func (r *reloader) apply(e changes.Edit) (done admin.Edited, mark operatorlog.Mark, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.caughtUp(); err != nil {
		return done, mark, err
	}
	c, needed, err := r.overlay.Load().Change(e)
	if err != nil {
		return done, mark, err
	}
	if !needed {
		return done, mark, nil
	}
	now := time.Now()
	c.Edge = r.name
	var until time.Time
	if c.Does == changes.Restore {
		until = now.Add(operatorlog.LongestAway) // then nothing is left of what it replaced
	}
	switch mark, err = r.send(&c, now, until); {
	case errors.Is(err, changes.ErrMoved) && e.IfMatch != "":
		return done, mark, changes.ErrMatch
	case err != nil:
		return done, mark, err
	}
	// Recorded now, and not when its operator gets the answer: until then others may have changed
	// the rule again. And described by the change itself, not by the rule before and now: what
	// another edge has changed at the same moment came into force together with it, and is not this
	// operator's doing.
	if old, rule := r.overlay.Load().Made(&changes.Change{Name: c.Name, Version: mark.Generation,
		Maker: mark.Edge}); rule != old {
		r.server.Events().Add(events.Event{Time: now, Kind: events.Operator, Text: changes.Done(old,
			rule, e.Action == changes.Rollback), Rule: e.Name,
			Who: e.Who, From: e.From, Old: old, New: rule, Changed: changes.Fields(old, rule)})
	}
	r.log.Info("rule changed by an operator", "rule", c.Name, "does", string(c.Does), "who", c.Who,
		"from", c.From)
	return done, mark, nil
}

// send puts a change in force on this edge, which records it, and sends it to the others, for whom
// it is over at end; zero: never. r.mu is locked.
func (r *reloader) send(c *changes.Change, now, end time.Time) (operatorlog.Mark, error) {
	if c.Kind == "" {
		if err := r.takes(*c); err != nil {
			return operatorlog.Mark{}, err
		}
	}
	w := operatorlog.Order{Rule: c.Subject(), Kind: operatorlog.Change, Start: now, End: end,
		Text: c.Text()}
	mark, err := r.store.Add(w, r.laid, now)
	switch {
	case errors.Is(err, operatorlog.ErrFull):
		return mark, control.ErrFull
	case errors.Is(err, operatorlog.ErrLong):
		return mark, fmt.Errorf("%w: %d bytes, and at most %d travel", control.ErrLong, len(w.Text),
			operatorlog.MaxText)
	case err != nil:
		return mark, err
	}
	r.known[mark] = true
	if err := r.lay(r.base); err != nil {
		return mark, err
	}
	return mark, r.cannot[mark]
}

// order is route.Order.
func (r *reloader) order(do func() (*changes.Change, string, error)) (o route.Ordered, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.caughtUp(); err != nil {
		return o, err
	}
	c, text, err := do()
	if err != nil || c == nil {
		return o, err
	}
	c.Edge = r.name
	now := time.Now()
	end := c.Until
	if !end.IsZero() {
		end = end.Add(operatorlog.ClockSkew)
	}
	mark, err := r.send(c, now, end)
	if err != nil {
		return o, err
	}
	r.events.Add(events.Event{Time: now, Kind: events.Operator, Text: text, Rule: c.Name,
		Who: c.Who, From: c.From})
	r.log.Info(c.Kind, "name", c.Name, "does", string(c.Does), "who", c.Who, "from", c.From)
	o = route.Ordered{Version: mark.Generation, Maker: mark.Edge,
		Alone: r.store.Origin == changes.Local && r.machine != nil}
	if r.store.Await != nil {
		o.Await = func() *control.Spread {
			return r.store.Await(func() tier.Made {
				_ = r.catchUp() // it logs
				return tier.Made{Rule: c.Subject(), Marks: []operatorlog.Mark{mark}}
			}).Spread
		}
	}
	return o, nil
}

// nextEnd is when the first of some changes of modules' own ends; zero: none does.
func nextEnd(list []changes.Change, now time.Time) (first time.Time) {
	for i := range list {
		if until := list[i].Until; list[i].Kind != "" && until.After(now) &&
			(first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}

// endChanges has what modules do without a change of their own that has ended.
func (r *reloader) endChanges(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends.IsZero() || now.Before(r.ends) {
		return
	}
	if err := r.lay(r.base); err != nil {
		r.log.Error("what operators changed has ended, and stays in force", "error", err)
	}
}

// hidden warns of rules of the file that have changed while an operator's change of them stays in
// force.
func (r *reloader) hidden(before, now *config.Config, log *slog.Logger) {
	for _, rule := range now.Rules {
		was := slices.IndexFunc(before.Rules,
			func(b rules.Config) bool { return b.Name == rule.Name })
		if r.overlay.Load().InForce(rule.Name).Version != 0 &&
			(was < 0 || config.RuleJSON(before.Rules[was]) != config.RuleJSON(rule)) {
			log.Warn("the file has changed a rule, but an operator's change of it stays in force: roll it back to version 0 to have the file's", "rule", rule.Name)
		}
	}
}
