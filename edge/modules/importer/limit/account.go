package limit

import (
	"fmt"
	"slices"
	"strings"

	"sluice/edge/operator"
)

// An Account is what became of the limits of a file. Each is one of the three.
type Account struct {
	Limits  int `json:"limits"`
	Rules   int `json:"rules"` // in force
	Shadows int `json:"shadows"`
	Notes   int `json:"notes"` // no rule, and a note says why
}

func (a Account) String() string {
	n := operator.Counted
	return fmt.Sprintf("%d of %s: %s, %s, %s", a.Rules+a.Shadows+a.Notes, n(a.Limits, "limit"),
		n(a.Rules, "rule"), n(a.Shadows, "shadow"), n(a.Notes, "note"))
}

// A mention is a directive that says a limit, or is about one: where, and in which words.
type Mention struct {
	Position
	From string `json:"from"`
}

// Mention has a limit accounted for.
func (r *Result) Mention(m Mention) { r.mentions = append(r.mentions, m) }

// LeftOut notes that a limit has no rule.
func (r *Result) LeftOut(m Mention, format string, args ...any) {
	r.Note(m.Position, "left out: %s: %s", m.From, fmt.Sprintf(format, args...))
}

// PassOver accounts for a limit that has no rule.
func (r *Result) PassOver(m Mention, format string, args ...any) {
	r.Mention(m)
	r.LeftOut(m, format, args...)
}

// account finds what became of each limit. One of which neither a rule nor a note speaks gets a
// note, so that none is lost without a word.
func (r *Result) account() {
	rules, shadows := make(map[Mention]int), make(map[Mention]int)
	for _, x := range r.Rules {
		if x.Shadow {
			shadows[x.Mention]++
		} else {
			rules[x.Mention]++
		}
	}
	r.Account.Limits = len(r.mentions)
	for _, m := range r.mentions {
		isAbout := func(n Note) bool {
			return n.Position == m.Position && strings.Contains(n.Text, m.From)
		}
		switch {
		case rules[m] > 0:
			rules[m]--
			r.Account.Rules++
		case shadows[m] > 0:
			shadows[m]--
			r.Account.Shadows++
		default:
			if r.Account.Notes++; !slices.ContainsFunc(r.Notes, isAbout) {
				r.LeftOut(m, "it is not understood")
			}
		}
	}
}
