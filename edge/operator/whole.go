package operator

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/edge/view"
)

// WholePoP asks for all edges of the PoP together.
const WholePoP = "pop"

// ofPoP is a list of the whole PoP, and of which edges.
type ofPoP[T any] struct {
	Edges []view.Edge
	List  []T
}

// EdgesShown says which edges are shown, how old what they show is, and which are missing: a line,
// and one more for each of those.
func EdgesShown(w io.Writer, edges []view.Edge) error {
	var there, lines []string
	for _, e := range edges {
		name := Printable(cmp.Or(e.Name, e.ID))
		switch {
		case e.Missing != "" && e.Age > 0:
			lines = append(lines, fmt.Sprintf("MISSING: %s, last seen %.0f s ago: %s\n", name,
				e.Age, Printable(e.Missing)))
		case e.Missing != "":
			lines = append(lines, fmt.Sprintf("MISSING: %s: %s\n", name, Printable(e.Missing)))
		case e.Age > 0:
			there = append(there, fmt.Sprintf("%s (%.1f s ago)", name, e.Age))
		default:
			there = append(there, name)
		}
	}
	_, err := io.WriteString(w, fmt.Sprintf("of %d of %s: %s\n", len(there),
		Counted(len(edges), "edge"), strings.Join(there, ", "))+strings.Join(lines, ""))
	return err
}

// largest writes counts by name, the largest first.
func largest(counts map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(counts),
		func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]),
				cmp.Compare(a, b))
		})
	for i, name := range names {
		names[i] = name + " " + Number(counts[name])
	}
	return strings.Join(names, ", ")
}

// TopOfPoP is Top over all edges.
func (c *Client) TopOfPoP(by string, n int) error {
	query := url.Values{"by": {by}, "n": {strconv.Itoa(n)}, "scope": {WholePoP}}
	return Show(c, http.MethodGet, "/v1/top?"+query.Encode(), nil,
		func(all ofPoP[view.Heavy]) error {
			t := Table{Columns: []Column{{"SOURCE", Whole}, {strings.ToUpper(by), Right},
				{"AT LEAST", Right}, {"EDGES", Text}}}
			for _, h := range all.List {
				sure := ""
				if h.Error > 0 {
					sure = Number(h.Count - min(h.Count, h.Error))
				}
				t.Add(h.Source, Number(h.Count), sure, largest(h.Edges))
			}
			if len(all.List) == 0 {
				fmt.Fprintf(c.Out, "no source of late (by %s)\n", by)
			} else if err := t.Write(c.Out); err != nil {
				return err
			}
			return EdgesShown(c.Out, all.Edges)
		})
}

// TopKeysOfPoP is TopKeys over all edges.
func (c *Client) TopKeysOfPoP(by string, n int, rule string) error {
	query := url.Values{"kind": {"key"}, "by": {by}, "n": {strconv.Itoa(n)}, "scope": {WholePoP}}
	if rule != "" {
		query.Set("rule", rule)
	}
	return NoRule(rule, Show(c, http.MethodGet, "/v1/top?"+query.Encode(), nil,
		func(all ofPoP[view.HeavyKey]) error {
			t := Table{Columns: []Column{{"SOURCE", Whole}, {"KEY", Whole}, {"OF", Cut},
				{strings.ToUpper(by), Right}, {"AT LEAST", Right}, {"EDGES", Text}}}
			for _, h := range all.List {
				sure := ""
				if h.Error > 0 {
					sure = Number(h.Count - min(h.Count, h.Error))
				}
				t.Add(h.Source, Shown(h.KeyStart, h.Plan), h.Key, Number(h.Count), sure,
					largest(h.Edges))
			}
			if len(all.List) == 0 {
				fmt.Fprintf(c.Out, "no key of late (by %s)\n", by)
			} else if err := t.Write(c.Out); err != nil {
				return err
			}
			return EdgesShown(c.Out, all.Edges)
		}))
}

// blockedOfPoP is Blocked over all edges.
func (c *Client) blockedOfPoP(f Filter, query url.Values) error {
	query.Set("scope", WholePoP)
	return NoRule(f.Rule, Show(c, http.MethodGet, "/v1/mitigations?"+query.Encode(), nil,
		func(all ofPoP[view.Block]) error {
			t := Table{Columns: []Column{{"SOURCE", Whole}, {"KEY", Whole}, {"RULE", Cut},
				{"MODE", Whole}, {"ACTION", Whole}, {"BY", Whole}, {"UNTIL", Whole}, {"LEFT",
					Right}, {"NOT ON", Cut}, {"REASON", Text}}}
			for _, m := range all.List {
				t.Add(m.Source, Shown(m.KeyStart, m.Plan), cmp.Or(m.Policy, m.Rule), string(m.Mode),
					string(m.Action), m.By, Clock(m.End), Span(m.End.Sub(c.Now)),
					strings.Join(m.NotOn,
						", "), m.Reason)
			}
			if len(all.List) == 0 {
				fmt.Fprintln(c.Out, "nobody is blocked, or nobody like that")
			} else if err := t.Write(c.Out); err != nil {
				return err
			}
			return EdgesShown(c.Out, all.Edges)
		}))
}

// EventsOfPoP is Events over all edges.
func (c *Client) EventsOfPoP(since string) error {
	query := url.Values{"scope": {WholePoP}}
	if since = c.instant(since); since != "" {
		query.Set("since", since)
	}
	return Show(c, http.MethodGet, "/v1/events?"+query.Encode(), nil,
		func(all ofPoP[view.Event]) error {
			t := Table{Columns: []Column{{"TIME", Whole}, {"KIND", Whole}, {"EDGES", Cut},
				{"RULE", Cut}, {"SOURCE", Whole}, {"WHO", Cut}, {"WHAT", Text}}}
			for _, e := range slices.Backward(all.List) {
				t.Add(Clock(e.Time), string(e.Kind), strings.Join(e.Edges, ", "),
					cmp.Or(e.Policy, e.Rule), e.Source, cmp.Or(e.Who, e.From), eventText(&e.Event))
			}
			if len(all.List) == 0 {
				fmt.Fprintln(c.Out, "nothing has happened")
			} else if err := t.Write(c.Out); err != nil {
				return err
			}
			return EdgesShown(c.Out, all.Edges)
		})
}

// StatusOfPoP prints what each edge does.
func (c *Client) StatusOfPoP() error {
	return Show(c, http.MethodGet, "/v1/status?scope="+WholePoP, nil, func(all struct {
		Edges []struct {
			view.Edge
			Unready string
			Blocked int
			Load    *view.Load
		}
		Load view.Load
	}) error {
		t := Table{Columns: []Column{{"EDGE", Cut}, {"AGE", Right}, {"VERSION", Cut},
			{"REQUESTS", Right}, {"REFUSED", Right}, {"CONNECTIONS", Right}, {"BLOCKED",
				Right}, {"STATE", Text}}}
		row := func(name, age, state string, blocked int, l *view.Load) {
			t.Add(name, age, l.Version, Number(uint64(l.Received)),
				Number(uint64(l.Answers["limit"])), Number(uint64(l.Connections)),
				Number(uint64(blocked)), state)
		}
		most, missing := 0, 0
		for _, e := range all.Edges {
			if e.Load == nil {
				missing++
				t.Add(cmp.Or(e.Name, e.ID), "", "", "", "", "", "", "MISSING: "+e.Missing)
				continue
			}
			row(cmp.Or(e.Name, e.ID), fmt.Sprintf("%.1f s", e.Age), cmp.Or(e.Unready, "ready"),
				e.Blocked, e.Load)
			most = max(most, e.Blocked)
		}
		all.Load.Version = ""
		state := "all"
		if missing > 0 {
			state = fmt.Sprintf("without %s that %s missing", Counted(missing, "edge"),
				map[bool]string{true: "is", false: "are"}[missing == 1])
		}
		row("together", "", state, most, &all.Load)
		return t.Write(c.Out)
	})
}
