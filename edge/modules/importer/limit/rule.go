package limit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/config"
)

// A Rule is a limit of a file, where it is from, and what is not quite as it was there.
type Rule struct {
	Name string `json:"name"`
	Mention
	Notes  []string `json:"notes,omitempty"`
	Limit  `json:"-"`
	Shadow bool `json:"-"`
	yaml   []byte
}

// A Limit is what a file says of one, whichever program it is of.
type Limit struct {
	Cond   Condition // of the requests that it is about
	Key    any       // nil: the source
	Most   int       // requests in a window, or at once where there is none
	Window string
	Fixed  bool   // windows begin where the last one ends
	Bucket string // an algorithm that has a burst; "": the limit has none
	Burst  int
	Count  yaml.MapSlice // nil: what passes
	Status int           // of who is refused; 0: what a rule says by itself
	Closes bool          // who is refused gets no answer
}

// fields are those of a rule of Sluice.
func (x *Rule) fields() (all yaml.MapSlice) {
	match, rate := x.Cond.whole(), x.Window != ""
	for _, f := range []struct {
		name string
		is   bool
		v    any
	}{
		{"name", true, x.Name},
		{"match", len(match) > 0, match},
		{"key", x.Key != nil, x.Key},
		{"concurrency", !rate, x.Most},
		{"limit", rate, x.Most},
		{"window", rate, x.Window},
		{"algorithm", x.Fixed, "fixed"},
		{"mitigation_timeout", rate, "0s"},
		{"algorithm", x.Bucket != "", x.Bucket},
		{"burst", x.Bucket != "", x.Burst},
		{"count", x.Count != nil, x.Count},
		{"action", x.Closes, "close"},
		{"response", !x.Closes && x.Status != 0 && x.Status != 429, Named("status", x.Status)},
		{"mode", x.Shadow, "shadow"},
	} {
		if f.is {
			all = append(all, yaml.MapItem{Key: f.name, Value: f.v})
		}
	}
	return all
}

// NoteThat adds a note on what is not quite as it was.
func (x *Rule) NoteThat(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

// countsAddresses reports whether the rule counts requests by the client's address.
func (x Rule) countsAddresses() bool {
	parts, several := x.Key.([]string)
	return x.Key == nil || several && slices.Contains(parts, "source")
}

// Add adds a rule and reports that, unless it cannot be one: then a note says why. What is not
// understood of its condition makes it a shadow.
func (r *Result) Add(x Rule, err error) bool {
	if len(x.Cond.Unknown) > 0 {
		x.NoteThat("a shadow, because this has no equal, or is not understood: %s",
			strings.Join(x.Cond.Unknown, ", "))
		x.Shadow = true
	}
	x.Name = r.name(x.Name)
	if err == nil {
		x.yaml, err = yaml.Marshal([]yaml.MapSlice{x.fields()})
	}
	if err == nil {
		_, err = (config.Parser{}).ParseRules("rule", x.yaml)
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		if place, after, found := strings.Cut(first, ": "); found &&
			strings.HasPrefix(place, "rule:") {
			first = after
		}
		r.LeftOut(x.Mention, "%s", first)
		return false
	}
	r.Rules = append(r.Rules, x)
	return true
}

var notPlain = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// name is one for a rule, which no other has.
func (r *Result) name(text string) string {
	text = strings.Trim(notPlain.ReplaceAllString(text, "-"), "-.")
	text = cmp.Or(text[:min(len(text), 56)], "rule")
	name := text
	isNamed := func(x Rule) bool { return x.Name == name }
	for n := 2; slices.ContainsFunc(r.Rules, isNamed); n++ {
		name = fmt.Sprintf("%s-%d", text, n)
	}
	return name
}
