package operator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// AllRules is the name that stands for every rule.
const AllRules = "*"

// A block is a mitigation as the API tells it.
type block struct {
	Rule, Source, Mode, By, Reason string
	Action                         string // "": the edge is of an older version
	End                            time.Time
	Edges                          *spread
	Warning                        string
	Policy                         string // which of the rule's limits; "": its first
}

// lifted is what became of what an operator took back.
type lifted struct {
	Lifted  bool
	Edges   *spread
	Warning string
}

// spread is how far what an operator said has come.
type spread struct {
	Known, Have int
	Missing     []string
}

func (s *spread) String() string {
	switch {
	case s == nil:
		return "on this edge, which counts alone"
	case s.Have >= s.Known && s.Known == 1:
		return "on the only edge of the PoP"
	case s.Have >= s.Known:
		return fmt.Sprintf("on all %d edges of the PoP", s.Known)
	}
	return fmt.Sprintf("on %d of the %d edges of the PoP, and not yet on %s: there as soon as it is back", s.Have, s.Known, strings.Join(s.Missing, ", "))
}

// Block refuses a source, or all sources of a prefix, for a while, under a rule or under AllRules.
func (c *Client) Block(source, rule string, d time.Duration, reason string) error {
	body := map[string]string{"for": d.String(), "reason": reason}
	return noRule(rule, show(c, http.MethodPut, mitigation(rule, source), body, func(m block) error {
		what := fmt.Sprintf("%s is blocked %s until %s (%s)", cmp.Or(m.Source, source), under(rule), clock(m.End), span(d))
		return c.said(what, m.Edges, m.Warning)
	}))
}

// Unblock ends what is in force against a source, and has its counts forgotten.
func (c *Client) Unblock(source, rule string) error {
	return noRule(rule, show(c, http.MethodDelete, mitigation(rule, source), nil, func(m lifted) error {
		what := "was not blocked here"
		if m.Lifted {
			what = "is lifted"
		}
		return c.said(fmt.Sprintf("%s %s %s; it starts afresh", source, what, under(rule)), m.Edges, m.Warning)
	}))
}

// said prints what was said, where it is in force, and what an edge has to say to that.
func (c *Client) said(what string, edges *spread, warning string) error {
	text := Printable(what) + "\n" + Printable("in force "+edges.String()) + "\n"
	if warning != "" {
		text += "but: " + Printable(warning) + "\n"
	}
	_, err := io.WriteString(c.Out, text)
	return err
}

func under(rule string) string {
	if rule == AllRules {
		return "under every rule"
	}
	return "under rule " + rule
}

// noRule says what to do where an edge has no rule of that name.
func noRule(rule string, err error) error {
	var r *refused
	switch {
	case !errors.As(err, &r) || r.status != http.StatusNotFound:
		return err
	case rule == AllRules:
		return fmt.Errorf("%w: blocks under all rules at once; name one with --rule NAME (sluice rules lists them)", errAbsent)
	}
	return fmt.Errorf("%w (sluice rules lists them)", err)
}

// CheckSource reports whether text can name a source: an address, a prefix, or the digest that stands for a key.
func CheckSource(text string) error {
	digest, hashed := strings.CutPrefix(text, "#")
	if hashed && len(digest) == 32 && strings.Trim(digest, "0123456789abcdefABCDEF") == "" || isPrefix(text) {
		return nil
	}
	return fmt.Errorf("%q is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them", text)
}

// mitigation is the path of a source under a rule. A prefix keeps its slash.
func mitigation(rule, source string) string {
	return "/v1/mitigations/" + url.PathEscape(rule) + "/" + (&url.URL{Path: source}).EscapedPath()
}
