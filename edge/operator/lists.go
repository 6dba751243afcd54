package operator

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"sluice/edge/control"
)

// List is one of prefixes that operators keep beside the configuration's: Allow or Deny.
type List string

const (
	Allow List = "allow" // those who are never limited
	Deny  List = "deny"  // those who are always refused
)

func (l List) path(prefix string) string {
	return "/v1/" + string(l) + "/" + (&url.URL{Path: prefix}).EscapedPath()
}

// done is what has happened to who is on the list.
func (l List) done() string {
	if l == Allow {
		return "allowed"
	}
	return "denied"
}

// Put puts a prefix on a list for a while.
func (c *Client) Put(l List, prefix string, d time.Duration, reason string) error {
	body := map[string]string{"for": d.String(), "reason": reason}
	return Show(c, http.MethodPut, l.path(prefix), body, func(m control.Listed) error {
		return c.Said(fmt.Sprintf("%s is %s until %s (%s)", m.Prefix, l.done(), Clock(m.End),
			Span(d)), m.Edges, m.Warning)
	})
}

// Remove takes a prefix off a list.
func (c *Client) Remove(l List, prefix string) error {
	return Show(c, http.MethodDelete, l.path(prefix), nil, func(m control.Lifted) error {
		what := fmt.Sprintf("%s was not %s here by an operator", prefix, l.done())
		if m.Lifted {
			what = fmt.Sprintf("%s is %s no more", prefix, l.done())
		}
		return c.Said(what, m.Edges, m.Warning)
	})
}

// Listed prints who is on a list by an operator's word, those that end first at the top.
func (c *Client) Listed(l List) error {
	return Show(c, http.MethodGet, "/v1/"+string(l), nil, func(list []control.Listed) error {
		if len(list) == 0 {
			_, err := fmt.Fprintf(c.Out,
				"nobody is %s by an operator (sluice config shows whom the file lists)\n", l.done())
			return err
		}
		slices.SortFunc(list, func(a, b control.Listed) int { return a.End.Compare(b.End) })
		t := Table{Columns: []Column{{"SOURCE", Whole}, {"UNTIL", Whole}, {"LEFT", Right},
			{"REASON", Text}}}
		for _, m := range list {
			t.Add(m.Prefix, Clock(m.End), Span(m.End.Sub(c.Now)), m.Reason)
		}
		return t.Write(c.Out)
	})
}

// CheckPrefix reports whether text can be on a list: an address or a prefix.
func CheckPrefix(text string) error {
	if isPrefix(text) {
		return nil
	}
	return fmt.Errorf("%q is no prefix: want an address, or a prefix such as 192.0.2.0/24", text)
}

func isPrefix(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(text)
	return err == nil
}
