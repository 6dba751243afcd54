package challenge

import (
	"net/http"
	"time"

	"sluice/edge/control"
	"sluice/edge/operator"
)

// command has a rule challenge everybody.
func command() operator.Command {
	set := operator.NewFlagSet("challenge")
	length := operator.DurationFlag(set, new(time.Duration), "for", time.Hour,
		"for how long: a `TIME` such as 10m or 1h")
	reason := set.String("reason", "", "why, for other operators: `TEXT`")
	does := "on has a rule with action: challenge ask all that come under it for a pass, over its limit or not, on every edge of the PoP; off ends it"
	return operator.Asks(set, "on|off RULE", does, func(c *operator.Client, args []string) error {
		on, rule := args[0] == "on", args[1]
		path := operator.MitigationPath(rule, control.Everybody)
		switch {
		case !on && args[0] != "off":
			return operator.UsageErrorf("%q: want on or off", args[0])
		case !on && (set.Changed("for") || set.Changed("reason")):
			return operator.UsageErrorf("--for and --reason belong to on: sluice challenge on RULE --for 1h")
		case !on:
			return operator.NoRule(rule, operator.Show(c, http.MethodDelete, path, nil,
				func(m control.Lifted) error {
					what := "rule " + rule + " did not challenge everybody here"
					if m.Lifted {
						what = "rule " + rule + " challenges those who are over its limit, and nobody else"
					}
					return c.Said(what, m.Edges, m.Warning)
				}))
		case *length <= 0:
			return operator.UsageErrorf("--for %v: want more than 0", *length)
		}
		body := map[string]string{"for": length.String(), "reason": *reason}
		return operator.NoRule(rule, operator.Show(c, http.MethodPut, path, body,
			func(m control.Mitigation) error {
				return c.Said(operator.Everybody(&m), m.Edges, m.Warning)
			}))
	})
}
