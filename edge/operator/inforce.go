package operator

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/edge/config"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// A rule is what is shown of one.
type rule struct {
	Name, Mode        string
	Limit             uint64
	Window            string
	MitigationTimeout string `json:"mitigation_timeout"`
	Key               []string
	Match             match.Config
	Count             struct {
		Statuses []int
		Refused  bool
	}
	Share   int
	ShowKey uint64 `json:"show_key"`
	Windows []struct {
		Limit  uint64
		Window string
	}
	Prefixes        []any // numbers, or with a limit
	Priority, Queue string
	Concurrency     uint64
	Algorithm       string
	Burst           uint64
	Action, Check   string
	FirstSight      string `json:"first_sight"`
	OnStoreFailure  string `json:"on_store_failure"`
	Estimate        string
	Escalate        []string
	Plans           map[string]struct{ Limit uint64 }
	Cost            any // a number, or of what
}

// Rules prints the rules in force, those that are off as well.
func (c *Client) Rules() error {
	return Show(c, http.MethodGet, "/v1/rules", nil, func(list []rule) error {
		t := Table{Columns: []Column{{"RULE", Cut}, {"MODE", Whole}, {"LIMIT", Whole},
			{"THEN BLOCKED", Whole}, {"BY", Cut}, {"COUNTS", Cut}, {"MATCHES", Text}}}
		for _, r := range list {
			then := "for " + r.MitigationTimeout
			if d, err := time.ParseDuration(r.MitigationTimeout); err == nil && d == 0 {
				then = "no: throttled"
			}
			if r.Action == "tag" {
				then = strings.NewReplacer("throttled", "tagged", "for", "tagged for").Replace(then)
			}
			limit := r.limits()
			if r.Limit == 0 {
				limit, then = "none", ""
			}
			if r.Concurrency > 0 {
				limit = strings.TrimPrefix(limit+", "+Number(r.Concurrency)+" in flight", "none, ")
			}
			t.Add(r.Name, r.Mode, limit, then, strings.Join(r.Key, "+"), r.counts(), r.matches(config.Facts(c.Modules)))
		}
		return t.Write(c.Out)
	})
}

// limits are those of a rule, in each of its windows.
func (r rule) limits() string {
	text := Number(r.Limit) + " in " + r.Window
	for _, w := range r.Windows {
		text += ", " + Number(w.Limit) + " in " + w.Window
	}
	return text
}

// counts is "" for what is usual: every admitted request.
func (r rule) counts() string {
	switch {
	case len(r.Count.Statuses) > 0:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Count.Statuses), "[]"), " ", ",")
	case r.Count.Refused:
		return "refused too"
	}
	return ""
}

func (r rule) matches(facts []*key.Fact) string {
	m := &r.Match
	parts := slices.DeleteFunc([]string{strings.Join(m.Methods, ","), strings.Join(m.Hosts, ","),
		m.Path}, func(p string) bool { return p == "" || p == "*" })
	matches := cmp.Or(strings.Join(append(parts, m.Others(facts...)...), " "), "everything")
	if r.Share > 0 && r.Share < 100 {
		matches += fmt.Sprintf(", of %d %% of sources", r.Share)
	}
	if r.Priority == "critical" || r.Priority == "sheddable" {
		matches += ", " + r.Priority
	}
	if d, err := time.ParseDuration(r.Queue); err == nil && d > 0 {
		matches += ", may wait " + r.Queue
	}
	for _, of := range []struct{ what, is, usually string }{
		{"", r.Algorithm, "sliding"}, {"burst ", Number(r.Burst), "0"}, {"action ", r.Action,
			"refuse"}, {"cost ", cost(r.Cost), "1"}, {"check ", r.Check, "async"},
		{"first sight ", r.FirstSight, "go"}, {"on store failure ", r.OnStoreFailure,
			"local"}, {"estimate ", r.Estimate, "nearest"},
		{"shows of a key ", Number(r.ShowKey), "0"},
	} {
		if of.is != "" && of.is != of.usually {
			matches += ", " + of.what + of.is
		}
	}
	if len(r.Escalate) > 0 {
		matches += ", repeat blocks " + strings.Join(r.Escalate, ", ")
	}
	for i, plan := range slices.Sorted(maps.Keys(r.Plans)) {
		matches += []string{", plans ", ", "}[min(i, 1)] + plan + " " + Number(r.Plans[plan].Limit)
	}
	for i, p := range r.Prefixes {
		width, own := p.(map[string]any)
		switch text := []string{", by /", ", /"}[min(i, 1)]; {
		case own:
			matches += fmt.Sprintf("%s%v (%v)", text, width["prefix"], width["limit"])
		default:
			matches += fmt.Sprintf("%s%v", text, p)
		}
	}
	return matches
}

// cost is what a request costs, or by what; "" where an edge does not say.
func cost(c any) string {
	switch c := c.(type) {
	case float64:
		return Number(uint64(c))
	case map[string]any:
		if bytes, ok := c["bytes"].(float64); ok {
			return "1 for each " + Number(uint64(bytes)) + " bytes"
		}
		return fmt.Sprintf("by %v", c["header"])
	}
	return ""
}
