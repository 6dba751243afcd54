package operator

import (
	"net/http"
	"time"

	"sluice/edge/control"
	"sluice/edge/rules"
)

// Challenge has a rule challenge all that come under it for a while, over its limit or not.
func (c *Client) Challenge(rule string, d time.Duration, reason string) error {
	body := map[string]string{"for": d.String(), "reason": reason}
	return noRule(rule, show(c, http.MethodPut, mitigationPath(rule, control.Everybody), body,
		func(m control.Mitigation) error {
			return c.said(Challenges(&m), m.Edges, m.Warning)
		}))
}

// EndChallenge has it challenge those who are over its limit, as ever.
func (c *Client) EndChallenge(rule string) error {
	return noRule(rule, show(c, http.MethodDelete, mitigationPath(rule, control.Everybody), nil,
		func(m control.Lifted) error {
			what := "rule " + rule + " did not challenge everybody here"
			if m.Lifted {
				what = "rule " + rule + " challenges those who are over its limit, and nobody else"
			}
			return c.said(what, m.Edges, m.Warning)
		}))
}

// Challenges says that a rule challenges everybody.
func Challenges(m *control.Mitigation) string {
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
