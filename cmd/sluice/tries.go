package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/edge/admin"
	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/edge/tryout"
	"sluice/pop/operatorlog"
)

// try has those tried that a list of changes says, and returns which of these cannot be here. r.mu
// is locked.
func (r *reloader) try(list []changes.Change, now time.Time) []changes.Refused {
	running, refused := tryout.InForce(r.server.Config(), list, now)
	if slices.EqualFunc(running, r.tries, func(a, b tryout.Order) bool { return a.Is(&b) }) {
		return refused
	}
	if err := r.server.Try(running, now); err != nil {
		r.log.Error("rules cannot be tried on this edge", "error", settings.Sentence(err))
		return refused
	}
	for i := range r.tries {
		if o := &r.tries[i]; !slices.ContainsFunc(running,
			func(n tryout.Order) bool { return n.Is(o) }) {
			r.log.Info("a try has ended", "try", o.Name)
		}
	}
	r.tries = running
	return refused
}

// endTries ends those whose time is over.
func (r *reloader) endTries(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.tries, func(o tryout.Order) bool { return !now.Before(o.Until) }) {
		if err := r.lay(r.base); err != nil {
			r.log.Error("a try cannot be ended", "error", err)
		}
	}
}

// beginTry begins one here and on all edges, as an operator asks.
func (r *reloader) beginTry(t admin.Try) (begun admin.Begun, err error) {
	rule, err := tryout.Parse(r.server.Config(), orName(t.Name), t.Rule)
	if err != nil {
		return begun, err
	}
	for tries := 1; ; tries++ {
		mark, err := r.newTry(&t, rule, &begun)
		if err != nil {
			return begun, err
		}
		begun.Edges, begun.Warnings = r.awaitTry(begun.Name, mark)
		if err = r.beaten(begun.Name, mark, t.By); err == nil {
			return begun, nil
		}
		if t.Name != "" || !errors.Is(err, tryout.ErrName) || tries == editTries {
			return admin.Begun{}, err
		}
	}
}

// newTry says that one begins.
func (r *reloader) newTry(t *admin.Try, rule rules.Config,
	begun *admin.Begun) (mark operatorlog.Mark, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.caughtUp(); err != nil {
		return mark, err
	}
	var remembered []string
	_, ended := r.server.Tries().All()
	for _, run := range ended {
		remembered = append(remembered, run.Name)
	}
	if begun.Name, err = tryout.NewName(t.Name, r.tries, remembered); err != nil {
		return mark, err
	}
	return r.say(tryout.Begin(begun.Name, rule, time.Now().Add(t.For), t.By.Who, t.By.From, r.name),
		"tries a rule for "+t.For.String()+": "+tryout.About(&rule))
}

// beaten returns why a try that was begun here does not run: at another edge one was begun in the
// same instant, of the same name, or the last that there is room for.
func (r *reloader) beaten(name string, mark operatorlog.Mark, by control.Operator) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.caughtUp(); err != nil {
		return err
	}
	for i := range r.tries {
		if o := &r.tries[i]; o.Name == name {
			if o.Version == mark.Generation && o.Maker == mark.Edge {
				return nil
			}
			return fmt.Errorf("%w (it was begun at %s in the same instant)", tryout.ErrName, o.Edge)
		}
	}
	if len(r.tries) < tryout.MaxRuns {
		return nil // it is over, or was stopped
	}
	_, err := r.say(tryout.Stop(&tryout.Order{Name: name, Until: time.Now().Add(tryout.MaxTime)}, by.Who, by.From, r.name), "stopped a try") // else it began when another ends
	return errors.Join(tryout.ErrRuns, err)
}

// orName is a name to read a rule under.
func orName(name string) string {
	if name == "" {
		return "try"
	}
	return name
}

// stopTry ends one before its time, here and on all edges.
func (r *reloader) stopTry(name string, by control.Operator) (begun admin.Begun, err error) {
	mark, err := func() (operatorlog.Mark, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.caughtUp(); err != nil {
			return operatorlog.Mark{}, err
		}
		i := slices.IndexFunc(r.tries, func(o tryout.Order) bool { return o.Name == name })
		if i < 0 {
			return operatorlog.Mark{}, fmt.Errorf("%w runs: %s", tryout.ErrNone, name)
		}
		return r.say(tryout.Stop(&r.tries[i], by.Who, by.From, r.name), "stopped a try")
	}()
	if err != nil {
		return begun, err
	}
	begun.Name = name
	begun.Edges, begun.Warnings = r.awaitTry(name, mark)
	return begun, nil
}

// say sends a change of a try to all edges, and puts it in force here. r.mu is locked.
func (r *reloader) say(c changes.Change, text string) (mark operatorlog.Mark, err error) {
	now := time.Now()
	w := operatorlog.Order{Rule: c.Name, Kind: operatorlog.Change, Start: now,
		End: c.Until.Add(operatorlog.ClockSkew), Text: c.Text()}
	switch mark, err = r.store.Add(w, r.laid, now); {
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
	name := c.Name[len(changes.TrialPrefix):]
	r.events.Add(events.Event{Time: now, Kind: events.Operator, Text: text, Rule: name, Who: c.Who,
		From: c.From})
	r.log.Info("try", "name", name, "does", string(c.Does), "who", c.Who, "from", c.From)
	return mark, nil
}

// awaitTry waits until a change of a try is in force on all edges, or for as long as an operator
// waits.
func (r *reloader) awaitTry(name string,
	mark operatorlog.Mark) (edges *control.Spread, warnings []string) {
	if r.store.Await != nil {
		edges = r.store.Await(func() tier.Made {
			_ = r.catchUp() // it logs
			return tier.Made{Rule: changes.TrialPrefix + name, Marks: []operatorlog.Mark{mark}}
		}).Spread
	}
	if r.store.Origin == changes.Local && r.machine != nil {
		warnings = append(warnings,
			"this edge only: without pop.secret_file what is tried does not travel to the other edges of the PoP")
	}
	return edges, warnings
}
