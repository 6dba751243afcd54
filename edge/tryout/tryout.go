// Package tryout is rules that are tried on live traffic, beside those in force: whom they would
// refuse, how often, and how many of those look honest.
//
//	an operator   Order --- the list that changes of rules travel by ---> every edge of the PoP
//	every edge    InForce: those that have not ended          Registry: a Run each, which requests are told to
//	              Run.Decided, Run.Answered  (by the edge)    Run.Part  (edge/view carries it)
//	the asked     Sum: the parts of all edges
//
// A try has counters of its own, over the tier, as any rule in shadow. It refuses nobody, lets
// nobody wait, is in no header, log and metric, and ends by itself on each edge at its end,
// whatever became of the edge that began it. Of what the rules in force refuse it counts nothing
// but that they did.
//
// A source looks honest (Honest) if the origin answered it at least Answers times
// before the first request of it that would have been refused, and at least nine in ten of these
// with 2xx or 3xx. That is all that is known: a scraper that gets what it asks for looks honest as
// well.
//
// Memory is bounded: MaxRuns tries, MaxSources sources of each. While there is no room for all,
// sources that would be refused stay, and numbers of sources say "at least".
package tryout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/edge/changes"
	"sluice/edge/config"
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

// Order is a try as an operator began it.
type Order struct {
	Name    string       // as operators know it
	Rule    rules.Config // as it is tried, under the name that it travels by
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

// Errors of Parse, Begin and Stop, beside what is wrong with a rule.
var (
	ErrRuns = fmt.Errorf("try: %d tries run already, and no more may at once: wait until one has ended, or stop one", MaxRuns)
	ErrName = errors.New("try: a try of that name runs already: choose another with --name, or stop it")
	ErrNone = errors.New("try: no such try")
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
	rule.Name = changes.TrialPrefix + name
	set, err := rules.New(nil, on.RuleDefaults(), nil)
	if err == nil {
		err = set.Try([]rules.Config{rule}, on.RuleDefaults(),
			func(string) *rules.Tally { return nil })
	}
	switch {
	case err != nil:
		return rule, errors.New(strings.ReplaceAll(err.Error(), changes.TrialPrefix+name, name))
	case len(set.Claims()) > 0 && !on.JWT.Is():
		return rule,
			fmt.Errorf("key: %s: nothing says which tokens are believed: give jwt.keys_file in the configuration", strings.Join(rule.Key, ", "))
	}
	return rule, nil
}

// CheckTime returns what is wrong with how long a try is to run.
func CheckTime(d time.Duration) error {
	if d < time.Second || d > MaxTime {
		return fmt.Errorf("try: %v is not possible: want 1s to %v", d, rules.Duration(MaxTime))
	}
	return nil
}

// NewName is the name of a new try: the one that is wanted, or else the first try-N that is free.
// taken are those that run, and those that are still remembered.
func NewName(wanted string, running []Order, remembered []string) (string, error) {
	runs := func(name string) bool {
		return slices.ContainsFunc(running, func(o Order) bool { return o.Name == name })
	}
	switch {
	case len(running) >= MaxRuns:
		return "", ErrRuns
	case wanted == "":
		for i := 1; ; i++ {
			if name := fmt.Sprintf("try-%d", i); !runs(name) && !slices.Contains(remembered, name) {
				return name, nil
			}
		}
	case len(wanted) > maxName:
		return "", fmt.Errorf("try: the name %q is too long: want at most %d characters", wanted,
			maxName)
	case runs(wanted):
		return "", ErrName
	}
	return wanted, nil
}

// Begin is the change by which a try begins on all edges.
func Begin(name string, rule rules.Config, until time.Time, who, from, edge string) changes.Change {
	rule.Name = name
	return changes.Change{Name: changes.TrialPrefix + name, Does: changes.Try,
		Rule: json.RawMessage(config.RuleJSON(rule)), Until: until, Who: who, From: from,
		Edge: edge}
}

// Stop is the change by which one ends before its time.
func Stop(o *Order, who, from, edge string) changes.Change {
	return changes.Change{Name: changes.TrialPrefix + o.Name, Does: changes.Stop, Until: o.Until,
		Who: who, From: from, Edge: edge}
}

// InForce are the tries in a list of changes, by rule and the newest first, that run at a time, the
// first that began first, and those that cannot be in force on this edge.
func InForce(on *config.Config, list []changes.Change,
	now time.Time) (running []Order, refused []changes.Refused) {
	last := ""
	var at []int
	for i := range list {
		c := &list[i]
		name, is := strings.CutPrefix(c.Name, changes.TrialPrefix)
		if !is || c.Name == last && c.Wrong() == nil {
			continue // the newest of a name is what it is
		}
		if err := c.Wrong(); err != nil {
			refused = append(refused, changes.Refused{Index: i, Change: *c, Err: err})
			continue
		}
		last = c.Name
		if c.Does == changes.Stop || !now.Before(c.Until) {
			continue
		}
		rule, err := Parse(on, name, c.Rule)
		if err != nil {
			refused = append(refused, changes.Refused{Index: i, Change: *c, Err: err})
			continue
		}
		running = append(running, Order{name, rule, c.Version, c.Maker, c.At, c.Until, c.Who,
			c.Edge})
		at = append(at, i)
	}
	order := make([]int, len(running))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &running[a], &running[b]
		if x.Version != y.Version {
			return int(min(max(int64(x.Version-y.Version), -1), 1))
		}
		return strings.Compare(x.Name, y.Name)
	})
	var first []Order
	for n, i := range order {
		if n < MaxRuns { // two edges may each have begun the last that there is room for
			first = append(first, running[i])
		} else {
			refused = append(refused, changes.Refused{Index: at[i], Change: list[at[i]],
				Err: ErrRuns})
		}
	}
	return first, refused
}

// RuleOf is the rule of a try as an operator would write it.
func RuleOf(o *Order) json.RawMessage {
	rule := o.Rule
	rule.Name = o.Name
	return json.RawMessage(config.RuleJSON(rule))
}

// About is a rule in a few words.
func About(r *rules.Config) string {
	text := fmt.Sprintf("%d in %v", r.Limit, r.Window)
	for _, w := range r.Windows {
		text += fmt.Sprintf(", %d in %v", w.Limit, w.Window)
	}
	text += " by " + strings.Join(r.Key, ", ")
	if !r.Match.Everything() {
		match, _ := json.Marshal(r.Match) // numbers and texts
		text += ", of " + string(match)
	}
	return text
}
