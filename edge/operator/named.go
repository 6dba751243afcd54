package operator

import (
	"net/http"

	"sluice/edge/lists"
)

// Lists prints how the named lists of addresses stand.
func (c *Client) Lists() error {
	return Show(c, http.MethodGet, "/v1/lists", nil, func(list []lists.Status) error {
		if len(list) == 0 {
			return c.Lines([]string{"there are no named lists: the configuration has none under lists"})
		}
		t := Table{Columns: []Column{{"LIST", Whole}, {"ENTRIES", Right}, {"READ", Right},
			{"CHANGED", Right}, {"FROM", Text}, {"ERROR", Text}}}
		for _, l := range list {
			read := "not yet"
			if !l.Read.IsZero() {
				read = Span(c.Now.Sub(l.Read)) + " ago"
			}
			changed := "never"
			if !l.Changed.IsZero() {
				changed = Span(c.Now.Sub(l.Changed)) + " ago"
			}
			t.Add(l.Name, Number(uint64(l.Entries)), read, changed, l.From, l.Error)
		}
		return t.Write(c.Out)
	})
}
