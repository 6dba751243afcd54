package operator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/edge/control"
	"sluice/edge/rules"
)

// Spread is how far what an operator said has come.
type Spread control.Spread

func (s *Spread) String() string {
	if s == nil {
		return "on this edge, which counts alone"
	}
	text := s.known()
	if s.Expected > s.Known {
		text += fmt.Sprintf("; pop.edges says that there are %d, and no more are known here",
			s.Expected)
	}
	if s.Apart == 1 {
		text += "; 1 edge counts under another secret and is not among them"
	} else if s.Apart > 1 {
		text += fmt.Sprintf("; %d edges count under another secret and are not among them", s.Apart)
	}
	if len(s.Silent) > 0 {
		text += fmt.Sprintf("; silent of late, and not among them: %s", strings.Join(s.Silent,
			", "))
	}
	return text
}

// known says how many of the edges that are known have it.
func (s *Spread) known() string {
	switch others := s.Expected > s.Known || s.Apart+len(s.Silent) > 0; {
	case s.Have >= s.Known && s.Known == 1 && others:
		return "on this edge"
	case s.Have >= s.Known && others:
		return fmt.Sprintf("on the %d edges %s that are known here", s.Known, s.where())
	case s.Have >= s.Known && s.Known == 1:
		return "on the only edge " + s.where()
	case s.Have >= s.Known:
		return fmt.Sprintf("on all %d edges %s", s.Known, s.where())
	}
	text := fmt.Sprintf("on %d of the %d edges %s", s.Have, s.Known, s.where())
	late := slices.DeleteFunc(slices.Clone(s.Missing),
		func(name string) bool { return slices.Contains(s.Refused, name) })
	switch len(late) {
	case 0:
	case 1:
		text += fmt.Sprintf(", and not yet on %s: there as soon as it can be reached", late[0])
	default:
		text += fmt.Sprintf(", and not yet on %s: there as soon as they can be reached",
			strings.Join(late, ", "))
	}
	switch len(s.Refused) {
	case 0:
	case 1:
		text += fmt.Sprintf("; %s cannot have it, and its log says why", s.Refused[0])
	default:
		text += fmt.Sprintf("; %s cannot have it, and their logs say why",
			strings.Join(s.Refused, ", "))
	}
	return text
}

// where is what the edges are of.
func (s *Spread) where() string {
	if s.PoPs > 1 {
		return fmt.Sprintf("of %d PoPs", s.PoPs)
	}
	return "of the PoP"
}

// Counted is a number of things, whose name takes an s for several.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Block refuses a source, or all sources of a prefix, for a while, under a rule or under
// control.AllRules.
func (c *Client) Block(source, rule string, d time.Duration, reason string) error {
	body := map[string]string{"for": d.String(), "reason": reason}
	err := Show(c, http.MethodPut, MitigationPath(rule, source), body,
		func(m control.Mitigation) error {
			what := fmt.Sprintf("%s is blocked %s until %s (%s)", cmp.Or(m.Source, source),
				Under(rule, m.Rules...), Clock(m.End), Span(d))
			return c.Said(what, m.Edges, m.Warning)
		})
	if rule == control.AllRules && strings.HasPrefix(source, "#") {
		return err // which says that no rule knows it
	}
	return NoRule(rule, err)
}

// Unblock ends what is in force against a source, and has its counts forgotten.
func (c *Client) Unblock(source, rule string) error {
	return NoRule(rule, Show(c, http.MethodDelete, MitigationPath(rule, source), nil,
		func(m control.Lifted) error {
			what := "was not blocked here " + strings.Replace(Under(rule), "every", "any", 1)
			if m.Lifted {
				what = "is lifted " + Under(rule)
			}
			shown := source
			if p, err := netip.ParsePrefix(source); err == nil {
				shown = p.Masked().String() // what the edge takes it for
			}
			return c.Said(fmt.Sprintf("%s %s; it starts afresh", shown, what), m.Edges, m.Warning)
		}))
}

// Said prints what was said, where it is in force, and what an edge has to say to that.
func (c *Client) Said(what string, edges *control.Spread, warning string) error {
	text := Printable(what) + "\n" + Printable("in force "+(*Spread)(edges).String()) + "\n"
	if warning != "" {
		text += "but: " + Printable(warning) + "\n"
	}
	_, err := io.WriteString(c.Out, text)
	return err
}

// Under is under which rule something is said; rules are those that it was, where it was said of a
// key.
func Under(rule string, rules ...string) string {
	switch {
	case len(rules) == 1:
		return "under rule " + rules[0]
	case len(rules) > 1:
		return "under rules " + strings.Join(rules, ", ")
	case rule == control.AllRules:
		return "under every rule"
	}
	return "under rule " + rule
}

// Everybody says that a rule challenges everybody.
func Everybody(m *control.Mitigation) string {
	does := "challenges everybody"
	if m.Mode == rules.Shadow {
		does = "would challenge everybody, and is in shadow"
	}
	line := "rule " + m.Rule + " " + does + " until " + Clock(m.End)
	if m.Who != "" {
		line += " by " + m.Who
	}
	if m.Reason != "" {
		line += ": " + m.Reason
	}
	return line
}

// NoRule says what to do where an edge has no rule of that name.
func NoRule(rule string, err error) error {
	var r *refused
	switch {
	case !errors.As(err, &r) || r.status != http.StatusNotFound:
		return err
	case rule == control.AllRules:
		return fmt.Errorf("%w: blocks under all rules at once; name one with --rule NAME (sluice rules lists them)", errAbsent)
	}
	return fmt.Errorf("%w (sluice rules lists them)", err)
}

// CheckSource reports whether text can name a source: an address, a prefix, or the digest that
// stands for a key.
func CheckSource(text string) error {
	digest, hashed := strings.CutPrefix(text, "#")
	if hashed && len(digest) == 32 && strings.Trim(digest, "0123456789abcdefABCDEF") == "" ||
		isPrefix(text) {
		return nil
	}
	return fmt.Errorf("%q is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them", text)
}

// MitigationPath is the path of a source under a rule. A prefix keeps its slash.
func MitigationPath(rule, source string) string {
	return "/v1/mitigations/" + url.PathEscape(rule) + "/" + (&url.URL{Path: source}).EscapedPath()
}
