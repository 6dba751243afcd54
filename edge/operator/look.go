package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/top"
	"sluice/edge/view"

	"github.com/goccy/go-yaml"
)

// Top prints the heaviest sources, here or in the whole PoP: by is requests, refused or shadow.
func (c *Client) Top(by string, n int, pop bool) error {
	t := &Table{Columns: []Column{{"SOURCE", Whole}, {strings.ToUpper(by), Right},
		{"AT LEAST", Right}, {"EDGES", Text}}}
	query := url.Values{"by": {by}, "n": {strconv.Itoa(n)}}
	return showList(c, "/v1/top", query, pop, t, noneOf("source", by, pop), func(list []view.Heavy) {
		for _, h := range list {
			t.Add(h.Source, Number(h.Count), atLeast(h.Heavy), largest(h.Edges))
		}
	})
}

// TopKeys prints the heaviest keys that rules count by, or one of them.
func (c *Client) TopKeys(by string, n int, rule string, pop bool) error {
	t := &Table{Columns: []Column{{"SOURCE", Whole}, {"KEY", Whole}, {"OF", Cut},
		{strings.ToUpper(by), Right}, {"AT LEAST", Right}, {"RULES", Text}}}
	if pop {
		t.Columns[5].Title = "EDGES"
	}
	query := url.Values{"kind": {"key"}, "by": {by}, "n": {strconv.Itoa(n)}}
	if rule != "" {
		query.Set("rule", rule)
	}
	return NoRule(rule, showList(c, "/v1/top", query, pop, t, noneOf("key", by, pop),
		func(list []view.HeavyKey) {
			for _, h := range list {
				where := strings.Join(h.Rules, ", ")
				if pop {
					where = largest(h.Edges)
				}
				t.Add(h.Source, Shown(h.KeyStart, h.Plan), h.Key, Number(h.Count),
					atLeast(h.Heavy), where)
			}
		}))
}

// noneOf says that nothing heavy is there.
func noneOf(what, by string, pop bool) string {
	if !pop {
		what += " here"
	}
	return fmt.Sprintf("no %s of late (by %s)", what, by)
}

// atLeast is what is sure of a count that may be too high; "": all of it.
func atLeast(h top.Heavy) string {
	if h.Error == 0 {
		return ""
	}
	return Number(h.Count - min(h.Count, h.Error))
}

// Shown is what operators see of a key, and the plan of who has it.
func Shown(start, plan string) string {
	if start != "" {
		start += "…"
	}
	if start != "" && plan != "" {
		start += " · "
	}
	return start + plan
}

// blockedMost is how many blocks are shown: under attack there may be a million.
const blockedMost = 1000

// Filter says which blocks are asked for. Empty fields ask for all.
type Filter struct {
	Rule   string // of this rule; control.AllRules: of those under every rule
	Source string // of this source, or of prefixes that hold it or lie in it
	Mode   string // enforce or shadow
	By     string // edge, pop, admin or peer
	Text   string // with this in source, rule or reason
	PoP    bool   // on any edge of the PoP, and not on this one only
}

// Blocked prints who is blocked, and what becomes of their requests: operators' blocks first, then
// those that end last.
func (c *Client) Blocked(f Filter) error {
	query := url.Values{"n": {strconv.Itoa(blockedMost)}}
	for name, value := range map[string]string{"rule": f.Rule, "source": f.Source, "mode": f.Mode,
		"by": f.By, "q": f.Text} {
		if value != "" {
			query.Set(name, value)
		}
	}
	t := &Table{Columns: []Column{{"SOURCE", Whole}, {"KEY", Whole}, {"RULE", Cut}, {"MODE", Whole},
		{"ACTION", Whole}, {"WHERE", Whole}, {"BY", Whole}, {"UNTIL", Whole}, {"LEFT", Right},
		{"NOT ON", Cut}, {"REASON", Text}}}
	none, more := "nobody is blocked", ""
	if f.PoP {
		none += ", or nobody like that"
	} else if f != (Filter{}) {
		none = "nobody like that is blocked"
	}
	err := showList(c, "/v1/mitigations", query, f.PoP, t, none, func(list []view.Block) {
		kernel := false
		if !f.PoP {
			slices.SortFunc(list, func(a, b view.Block) int {
				return cmp.Or(-cmp.Compare(rank(a), rank(b)), b.End.Compare(a.End),
					cmp.Compare(a.Source, b.Source), cmp.Compare(a.Rule, b.Rule))
			})
			kernel = slices.ContainsFunc(list, func(m view.Block) bool { return m.Kernel != nil })
		}
		for _, m := range list {
			where := ""
			if kernel {
				where = refusedIn(m)
			}
			t.Add(m.Source, Shown(m.KeyStart, m.Plan), cmp.Or(m.Policy, m.Rule), string(m.Mode),
				string(m.Action), where, m.By, Clock(m.End), Span(m.End.Sub(c.Now)),
				strings.Join(m.NotOn, ", "), m.Reason)
		}
		if len(list) >= blockedMost {
			more = fmt.Sprintf("these are %s; there may be more: sluice status counts them, "+
				"GET /v1/mitigations lists them\n", Number(uint64(len(list))))
		}
	})
	if err != nil || f.PoP || c.JSON {
		return NoRule(f.Rule, err)
	}
	return c.blockedEnd(more)
}

// refusedIn says where connections of a source end; "": nowhere.
func refusedIn(m view.Block) string {
	switch {
	case m.Kernel != nil:
		return "kernel"
	case m.Mode == "enforce" && m.Action != "tag":
		return "edge"
	}
	return ""
}

// blockedEnd ends what is said of who is blocked: with a text, and with what the edge cannot know.
func (c *Client) blockedEnd(text string) error {
	var s control.State
	if c.Get("/v1/status", &s) == nil && s.LearningUntil != nil { // an older edge does not tell
		text += fmt.Sprintf("as far as this edge knows: until %s there may be others, whom its neighbours had blocked before it started\n", Clock(*s.LearningUntil))
	}
	_, err := io.WriteString(c.Out, text)
	return err
}

// rank puts what operators have said before what limits have.
func rank(m view.Block) int {
	if m.By == "admin" {
		return 1
	}
	return 0
}

// wait is a setting that the file says otherwise than it runs.
type wait struct {
	Field string
	File  json.RawMessage
}

// Config prints what runs, as YAML, and where each rule is from. What the file says and waits for a
// restart is a comment beside it.
func (c *Client) Config() error {
	return Show(c, http.MethodGet, "/v1/config", nil, func(answer json.RawMessage) error {
		var all map[string]json.RawMessage
		var waiting []wait
		if json.Unmarshal(answer, &all) == nil && all["waiting"] != nil {
			if err := c.decode(all["waiting"], &waiting); err != nil {
				return err
			}
			delete(all, "waiting")
			answer, _ = json.Marshal(all) // it was read from JSON
		}
		text, err := yaml.JSONToYAML(answer)
		if err != nil {
			return c.decode(answer, new(any))
		}
		return c.raw([]byte(marked(string(text), waiting)))
	})
}

// marked is YAML with what waits beside what runs.
func marked(text string, waiting []wait) string {
	var out strings.Builder
	under := "" // the setting that the lines are of
	for line := range strings.Lines(text) {
		name, _, isKey := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		depth := len(name) - len(strings.TrimLeft(name, " "))
		if isKey && depth == 0 {
			under = name
		}
		for _, w := range waiting {
			if isKey && (depth == 0 && w.Field == name || depth == 2 &&
				w.Field == under+"."+name[depth:]) {
				line = strings.TrimSuffix(line, "\n") + "  # the file says " +
					Printable(plain(w.File)) + ": after a restart\n"
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

// Events prints what has happened lately, here or in the whole PoP, the latest last. Since is the
// number of an event, a time (RFC 3339), a duration before now, or "": all that is remembered.
func (c *Client) Events(since string, pop bool) error {
	t := &Table{Columns: []Column{{"TIME", Whole}, {"KIND", Whole}, {"EDGES", Cut}, {"RULE", Cut},
		{"SOURCE", Whole}, {"WHO", Cut}, {"WHAT", Text}}}
	query := url.Values{}
	if d, err := control.ParseDuration(since); err == nil && since != "0" {
		since = c.Now.Add(-d).UTC().Format(time.RFC3339Nano)
	}
	if since != "" {
		query.Set("since", since)
	}
	return showList(c, "/v1/events", query, pop, t, "nothing has happened", func(list []view.Event) {
		for _, e := range slices.Backward(list) {
			t.Add(Clock(e.Time), string(e.Kind), strings.Join(e.Edges, ", "),
				cmp.Or(e.Policy, e.Rule), e.Source, cmp.Or(e.Who, e.From), eventText(&e.Event))
		}
	})
}

// eventText is what happened, with what was left out before it, and what of a rule was changed.
func eventText(e *events.Event) string {
	text := e.Text
	if e.Skipped > 0 {
		text += fmt.Sprintf(" (and %s more before it)", Number(e.Skipped))
	}
	if e.KeyStart != "" {
		text += ", key " + Shown(e.KeyStart, "")
	}
	if len(e.Changed) > 0 {
		text += ": " + strings.Join(changed(e.Changed), ", ")
	}
	return text
}
