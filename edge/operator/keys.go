package operator

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sluice/edge/control"
)

// Look asks how a source stands, an address or a digest, or who is named by a key.
func (c *Client) Look(source string, key *control.Key) (l control.Looked, err error) {
	answer, err := c.ask(lookAt(source, key))
	if err == nil {
		err = c.decode(answer, &l)
	}
	return l, err
}

// lookAt is how that is asked: a key in a body, because logs keep URLs.
func lookAt(source string, key *control.Key) (method, path string, body any) {
	if key != nil {
		return http.MethodPost, "/v1/sources", key
	}
	return http.MethodGet, "/v1/sources/" + url.PathEscape(source), nil
}

// BlockKey refuses who is named by a key for a while, under a rule or under all that count by it
// (control.AllRules).
func (c *Client) BlockKey(key *control.Key, rule string, d time.Duration, reason string) error {
	body := struct {
		*control.Key
		Rule   string `json:"rule"`
		For    string `json:"for"`
		Reason string `json:"reason,omitempty"`
	}{key, rule, d.String(), reason}
	return Show(c, http.MethodPost, "/v1/mitigations", body, c.blocked)
}

// blocked tells of a block that was just said.
func (c *Client) blocked(m control.Mitigation) error {
	return c.Said(fmt.Sprintf("%s is blocked %s until %s (%s)", m.Source, Under(m.Rule, m.Rules...),
		Clock(m.End), Span(m.End.Sub(m.Start))), m.Edges, m.Warning)
}

// UnblockKey ends what is in force against who is named by a key, and has its counts forgotten.
func (c *Client) UnblockKey(key *control.Key, rule string) error {
	body := struct {
		*control.Key
		Rule string `json:"rule"`
	}{key, rule}
	return Show(c, http.MethodPost, "/v1/mitigations/lift", body, func(m control.Lifted) error {
		what := "was not blocked here "
		if m.Lifted {
			what = "is lifted "
		}
		return c.Said(m.Source+" "+what+Under(rule, m.Rules...)+"; it starts afresh", m.Edges,
			m.Warning)
	})
}

// UsageOf prints what a source has used, or who is named by a key: under every rule that counts it.
func (c *Client) UsageOf(source string, key *control.Key) error {
	method, path, body := lookAt(source, key)
	return Show(c, method, path, body, func(l control.Looked) error {
		lines := []string{Who(&l)}
		if len(l.Rules) == 0 {
			lines = append(lines, NoRules(&l))
		} else if !l.Asked {
			lines = append(lines,
				"(as this edge alone knows: there is no tier, or it has not answered)")
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(c.Out, Printable(line)); err != nil {
				return err
			}
		}
		if len(l.Rules) == 0 {
			return nil
		}
		t := usageTable()
		for _, r := range l.Rules {
			addUsage(&t, control.Usage{Rule: cmp.Or(r.Policy, r.Rule), Plan: r.Plan,
				Used: r.Estimate, Limit: r.Limit, Remaining: r.Remaining, Reset: r.Reset,
				Until: r.Until, Places: r.Places})
		}
		return t.Write(c.Out)
	})
}

// Who is whom an answer is about.
func Who(l *control.Looked) string {
	if l.Key == "" {
		if l.Known != "" {
			return l.Source + " (" + l.Known + ")"
		}
		return l.Source
	}
	return l.Source + ", by " + l.Key
}

// NoRules says why no rule is shown.
func NoRules(l *control.Looked) string {
	if strings.HasPrefix(l.Source, "#") && l.Key == "" {
		where := ", here or in the tier"
		if !l.Asked {
			where = ", as this edge alone knows: there is no tier, or it has not answered"
		}
		return "no rule has counted that digest of late" + where +
			" (sluice why --key PART=VALUE shows one that was never seen)"
	}
	return "no rule with a limit is about it"
}
