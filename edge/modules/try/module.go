package try

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/operator"
	"sluice/edge/route"
	"sluice/edge/view"
)

// name is the module's, and the Kind of changes of tries.
const name = "try"

// A module is what all configurations have in common.
type module struct {
	registry Registry
	said     atomic.Pointer[said] // nil: nothing yet
	inForce  atomic.Pointer[edge.Setup]
}

// said is what operators have changed of tries, when that was looked at last, and what of it could
// not be in force here then.
type said struct {
	list    []changes.Change
	at      time.Time
	refused []changes.Refused
}

// why is why what an operator has changed could not be in force; nil: it could.
func (s *said) why(o *route.Ordered) error {
	for _, r := range s.refused {
		if r.Change.Version == o.Version && r.Change.Maker == o.Maker {
			return r.Err
		}
	}
	return nil
}

// Module has operators try rules.
func Module() edge.Module {
	m := new(module)
	return edge.Module{Name: name, Prepare: m.prepare, Answer: m.answer, Routes: m.routes(),
		Changes:  &edge.Changes{Apply: m.apply, Text: changed},
		Commands: []operator.Command{command()}}
}

// prepare has those tried that can be under a configuration.
func (m *module) prepare(s *edge.Setup) (p edge.Points, err error) {
	var list []Order
	if said := m.said.Load(); said != nil {
		list, _ = inForce(s.Config, said.list, said.at)
	}
	runs := m.registry.next(list, time.Now())
	p.InForce = func() {
		m.registry.set(runs, time.Now())
		m.inForce.Store(s)
	}
	if len(runs) > 0 {
		p.Trials, p.Observers = runs.trials(), []edge.Observer{{Decided: runs.Decided}}
	}
	return p, nil
}

// apply has those tried that run by now, and no others. Those that are over are so even if the rest
// cannot be tried, because another module does not take the configuration that is in force: a file
// of its is away, say.
func (m *module) apply(list []changes.Change, now time.Time,
	log *slog.Logger) []changes.Refused {
	on, before := m.inForce.Load(), m.registry.running()
	next, refused := inForce(on.Config, list, now)
	m.said.Store(&said{list: list, at: now})
	var left Runs
	for _, run := range before {
		if slices.ContainsFunc(next, func(o Order) bool { return o.Is(&run.Order) }) {
			left = append(left, run)
		} else {
			log.Info("a try has ended", "try", run.Name)
		}
	}
	m.registry.set(left, now)
	if len(left) < max(len(next), len(before)) {
		if err := on.Edge.Renew(); err != nil {
			log.Error("rules cannot be tried on this edge", "error", err)
			for i := range next {
				if !slices.ContainsFunc(left, func(r *Run) bool { return next[i].Is(&r.Order) }) {
					refused = append(refused, changes.Refused{Change: *next[i].in(list),
						Err: fmt.Errorf("try: %w", err)})
				}
			}
		}
	}
	m.said.Store(&said{list, now, refused})
	return refused
}

// changed is of the event that another edge has changed something of a try.
func changed(c *changes.Change) string {
	if c.Does == stops {
		return "a try is stopped, at the word of another edge"
	}
	return "a rule is tried, at the word of another edge"
}

// about begins the question what an edge has seen of a try.
const about = "try "

// answer adds to a part what this edge says of a try.
func (m *module) answer(p *view.Part, question string, now time.Time) bool {
	try, is := strings.CutPrefix(question, about)
	if !is {
		return false
	}
	run := m.registry.Run(try)
	if run == nil {
		p.Answer(question, json.RawMessage(`{}`)) // there is no such version
		return true
	}
	part := m.part(run, now)
	short := func(sources int) func() json.RawMessage {
		return func() json.RawMessage { return part.Short(sources) }
	}
	p.Answer(question, part.Short(kept), short(kept/4), short(kept/16))
	return true
}

// part is what this edge has seen of a try.
func (m *module) part(r *Run, now time.Time) *Part { return r.Part(m.inForce.Load().Secret, now) }
