// Package try has operators try rules on live traffic, beside those in force: whom they would
// refuse, how often, and how many of those look honest.
//
//	an operator   a change of Kind try --- the list that changes of rules travel by ---> every edge of the PoP
//	every edge    inForce: those that have not ended    Registry: a Run each, whose rule the edge decides as well
//	              Runs.Decided (by the edge)            Run.Part  (edge/view carries it)
//	the asked     Sum: the parts of all edges
//
// A try has counters of its own, over the tier, as any rule in shadow. It refuses nobody, lets
// nobody wait, is in no header, log and metric, and ends by itself on each edge at its end,
// whatever became of the edge that began it. Of what the rules in force refuse it counts nothing
// but that they did.
//
// A source looks honest (edge/honest) if the origin answered it at least three times before the
// first request of it that would have been refused, and at least nine in ten of these with 2xx or
// 3xx.
//
// Memory is bounded: MaxRuns tries, MaxSources sources of each. While there is no room for all,
// sources that would be refused stay, and numbers of sources say "at least".
package try

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/route"
	"sluice/edge/rules"
)

const (
	// MaxRuns is how many tries run at once.
	MaxRuns = 8
	// MaxTime is how long one runs at most.
	MaxTime = 7 * 24 * time.Hour
	// maxName leaves room for what a try's name travels under.
	maxName = 40
)

// What a change of a try does.
const (
	begins changes.Does = "try"
	stops  changes.Does = "stop"
)

// prefix begins the name of a rule that is tried, which no other rule has.
const prefix = name + ":"

// Order is a try as an operator began it.
type Order struct {
	Name    string       // as operators know it
	Rule    rules.Config // as it is tried, under the name with prefix
	Version uint64       // with Maker, of the change that began it: of one name, another try
	Maker   uint64
	Began   time.Time
	Until   time.Time
	Who     string
	Edge    string // where it was begun
}

// Is reports whether two are one try.
func (o *Order) Is(other *Order) bool {
	return o.Name == other.Name && o.Version == other.Version && o.Maker == other.Maker
}

// in is the change in a list by which the try began.
func (o *Order) in(list []changes.Change) *changes.Change {
	return &list[slices.IndexFunc(list, func(c changes.Change) bool {
		return c.Name == o.Name && c.Version == o.Version && c.Maker == o.Maker
	})]
}

// Errors of what operators want, beside what is wrong with a rule.
var (
	errRuns = &route.StatusError{Status: http.StatusConflict, Text: fmt.Sprintf(
		"try: %d tries run already, and no more may at once: wait until one has ended, or stop one",
		MaxRuns)}
	errName = &route.StatusError{Status: http.StatusConflict,
		Text: "try: a try of that name runs already: choose another with --name, or stop it"}
	errNone = &route.StatusError{Status: http.StatusNotFound, Text: "try: no such try"}
)

// Parse reads a rule in JSON, with the fields of a configuration, as one that is tried. The error
// names the field, and what is wanted.
func Parse(on *config.Config, name string, text []byte) (rules.Config, error) {
	rule, err := on.ParseRule(name, text)
	if err != nil {
		return rule, err
	}
	if rule, err = rules.Triable(rule); err != nil {
		return rule, err
	}
	rule.Name = prefix + name
	set, err := rules.New(nil, on.RuleDefaults(), nil)
	if err == nil {
		err = set.Try([]rules.Trial{{Config: rule}}, on.RuleDefaults())
	}
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), prefix+name, name))
	}
	return rule, err
}

// checkTime returns what is wrong with how long a try is to run.
func checkTime(d time.Duration) error {
	if d < time.Second || d > MaxTime {
		return fmt.Errorf("try: %v is not possible: want 1s to %v", d, rules.Duration(MaxTime))
	}
	return nil
}

// newName is the name of a new try: the one that is wanted, or else the first try-N that is free.
// Those that have ended are still remembered.
func newName(wanted string, running, ended []*Run) (string, error) {
	in := func(list []*Run, name string) bool {
		return slices.ContainsFunc(list, func(r *Run) bool { return r.Name == name })
	}
	switch {
	case len(running) >= MaxRuns:
		return "", errRuns
	case wanted == "":
		for i := 1; ; i++ {
			if name := fmt.Sprintf("try-%d", i); !in(running, name) && !in(ended, name) {
				return name, nil
			}
		}
	case len(wanted) > maxName:
		return "", fmt.Errorf("try: the name %q is too long: want at most %d characters", wanted,
			maxName)
	case in(running, wanted):
		return "", errName
	}
	return wanted, nil
}

// begin is the change by which a try begins on all edges.
func begin(try string, rule rules.Config, until time.Time, by control.Operator) *changes.Change {
	rule.Name = try
	return &changes.Change{Kind: name, Name: try, Does: begins,
		Rule: json.RawMessage(config.RuleJSON(rule)), Until: until, Who: by.Who, From: by.From}
}

// stop is the change by which one ends before its time.
func stop(try string, until time.Time, by control.Operator) *changes.Change {
	return &changes.Change{Kind: name, Name: try, Does: stops, Until: until, Who: by.Who,
		From: by.From}
}

// inForce are the tries in a list of changes, by name and the newest first, that run at a time, the
// first that began first, and the changes that cannot be in force on this edge.
func inForce(on *config.Config, list []changes.Change,
	now time.Time) (running []Order, refused []changes.Refused) {
	last := ""
	for _, c := range list {
		err := c.Wrong()
		switch {
		case err != nil:
		case c.Does != begins && c.Does != stops:
			err = c.Unknown()
		case c.Name == last: // the newest of a name is what it is
			continue
		default:
			if last = c.Name; c.Does == stops || !now.Before(c.Until) {
				continue
			}
			var rule rules.Config
			if rule, err = Parse(on, c.Name, c.Rule); err == nil {
				running = append(running, Order{c.Name, rule, c.Version, c.Maker, c.At, c.Until, c.Who,
					c.Edge})
			}
		}
		if err != nil {
			refused = append(refused, changes.Refused{Change: c, Err: err})
		}
	}
	slices.SortFunc(running, func(a, b Order) int {
		return cmp.Or(cmp.Compare(int64(a.Version-b.Version), 0), strings.Compare(a.Name, b.Name))
	})
	if len(running) > MaxRuns { // two edges may each have begun the last that there is room for
		for _, o := range running[MaxRuns:] {
			refused = append(refused, changes.Refused{Change: *o.in(list), Err: errRuns})
		}
		running = running[:MaxRuns]
	}
	return running, refused
}

// ruleOf is the rule of a try as an operator would write it.
func ruleOf(o *Order) json.RawMessage {
	rule := o.Rule
	rule.Name = o.Name
	return json.RawMessage(config.RuleJSON(rule))
}
