package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sluice/edge/view"
)

// WholePoP asks for all edges of the PoP together.
const WholePoP = "pop"

// aList is one of an edge, or of the whole PoP, and then of which edges.
type aList[T any] struct {
	Edges []view.Edge
	List  []T
}

func (l *aList[T]) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		return json.Unmarshal(text, &l.List)
	}
	type plain aList[T]
	return json.Unmarshal(text, (*plain)(l))
}

// showList asks an edge for a list, of itself or of the whole PoP, and prints it: as a table, which
// fill fills, or else what none says; of a PoP, also which edges it is of.
func showList[T any](c *Client, path string, query url.Values, pop bool, t *Table, none string,
	fill func([]T)) error {
	if pop {
		query.Set("scope", WholePoP)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return Show(c, http.MethodGet, path, nil, func(all aList[T]) error {
		if len(all.List) == 0 {
			fmt.Fprintln(c.Out, none)
		} else {
			fill(all.List)
			if err := t.Write(c.Out); err != nil {
				return err
			}
		}
		if !pop {
			return nil
		}
		return EdgesShown(c.Out, all.Edges)
	})
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
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " " + Number(counts[name])
	}
	return strings.Join(names, ", ")
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
