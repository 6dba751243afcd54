package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/config"
)

// A Rule is a limit of a file, whichever program it is of, where it is from, and what is not quite
// as it was there. A format fills it, and add writes it in YAML.
type Rule struct {
	Name string `json:"name"`
	mention
	Notes []string `json:"notes,omitempty"`

	cond   condition // of the requests that it is about
	key    any       // nil: the source
	most   int       // requests in a window, or at once where there is none
	window string
	fixed  bool   // windows begin where the last one ends
	bucket string // an algorithm that has a burst; "": the rule has none
	burst  int
	count  yaml.MapSlice // nil: what passes
	status int           // of who is refused; 0: what a rule says by itself
	closes bool          // who is refused gets no answer
	shadow bool
	yaml   []byte
}

// fields are those of a rule of Sluice.
func (x *Rule) fields() (all yaml.MapSlice) {
	match, rate := x.cond.whole(), x.window != ""
	for _, f := range []struct {
		name string
		is   bool
		v    any
	}{
		{"name", true, x.Name},
		{"match", len(match) > 0, match},
		{"key", x.key != nil, x.key},
		{"concurrency", !rate, x.most},
		{"limit", rate, x.most},
		{"window", rate, x.window},
		{"algorithm", x.fixed, "fixed"},
		{"mitigation_timeout", rate, "0s"},
		{"algorithm", x.bucket != "", x.bucket},
		{"burst", x.bucket != "", x.burst},
		{"count", x.count != nil, x.count},
		{"action", x.closes, "close"},
		{"response", !x.closes && x.status != 0 && x.status != 429, named("status", x.status)},
		{"mode", x.shadow, "shadow"},
	} {
		if f.is {
			all = append(all, yaml.MapItem{Key: f.name, Value: f.v})
		}
	}
	return all
}

func (x *Rule) noteThat(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

// countsAddresses reports whether the rule counts requests by the client's address.
func (x Rule) countsAddresses() bool {
	parts, several := x.key.([]string)
	return x.key == nil || several && slices.Contains(parts, "source")
}

// add adds a rule and reports that, unless it cannot be one: then a note says why. What is not
// understood of its condition makes it a shadow.
func (r *Result) add(x Rule, err error) bool {
	if len(x.cond.unknown) > 0 {
		x.noteThat("a shadow, because this has no equal, or is not understood: %s",
			strings.Join(x.cond.unknown, ", "))
		x.shadow = true
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
		r.leftOut(x.mention, "%s", first)
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
