package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/cmd/sluice/internal/operator"
	"sluice/edge/control"
)

// planCommands are those of clients' plans.
func planCommands() []Command {
	set, used := NewFlagSet("quota"), NewFlagSet("usage")
	var q control.Quota
	var usedKey keyFlags
	usedKey.add(used)
	const byWhat = "KEY is what the client sends as `PART`, one of plans.also, such as header:X-Organisation; without, as plans.key"
	by, usedBy := set.String("by", "", byWhat), used.String("by", "", byWhat)
	set.StringVar(&q.Rule, "rule", "", "under the rule `NAME` only; without, under all of them")
	set.StringVar(&q.Plan, "plan", "", "the client is on the `PLAN`")
	set.Uint32Var(&q.Limit, "limit", 0, "the client has the limit `N`, whatever its plan says; needs --rule")
	from := set.String("from", "", "not before this `TIME`, such as 2026-05-04T14:05:00Z")
	until := set.String("until", "", "lent until this `TIME`; then what is in force now is so again")
	return []Command{
		operatorCommand(set, "set|get|history|delete KEY", "the plan and limits of a client, by the key that it sends", func(c *operator.Client, args []string) error {
			does, key := args[0], operator.Key{Text: args[1], By: *by}
			var err error
			if q.EffectiveAt, err = instant("from", *from); err != nil {
				return err
			}
			if q.ExpiresAt, err = instant("until", *until); err != nil {
				return err
			}
			said := slices.ContainsFunc([]string{"plan", "limit", "from", "until"}, set.Changed)
			switch {
			case key.Text == "":
				return usageError{errors.New("KEY is empty: whose quota?")}
			case does == "set" && q.Plan == "" && q.Limit == 0:
				return usageError{errors.New("nothing is to be set: give --plan PLAN, or --rule NAME and --limit N")}
			case does == "set" && q.Limit != 0 && q.Rule == "":
				return usageError{errors.New("--limit is under one rule: give --rule NAME")}
			case does == "set":
				return c.SetQuota(key, q)
			case said || does != "delete" && set.Changed("rule"):
				return usageError{fmt.Errorf("quota %s takes none of --plan, --limit, --from and --until, and only delete takes --rule", does)}
			case does == "get":
				return c.Quotas(key)
			case does == "history":
				return c.QuotaHistory(key)
			case does == "delete" && set.Changed("rule"):
				return c.DeleteQuotas(key, &q.Rule)
			case does == "delete":
				return c.DeleteQuotas(key, nil)
			}
			return usageError{fmt.Errorf("no form %q: want quota set KEY, quota get KEY, quota history KEY or quota delete KEY", does)}
		}),
		operatorCommand(used, "[KEY]", "what a client has used of its limits, by the key that it sends", func(c *operator.Client, args []string) error {
			switch {
			case usedKey.given() || len(args) == 1 && strings.HasPrefix(args[0], "#") && operator.CheckSource(args[0]) == nil:
				if *usedBy != "" {
					return usageError{errors.New("--by is about KEY, the key of a plan: leave it out")}
				}
				who, err := usedKey.whom(args, operator.CheckSource)
				if err != nil {
					return err
				}
				return c.UsageOf(who.source, who.key)
			case len(args) == 0:
				return usageError{errors.New("whose? want a KEY, or --key PART=VALUE")}
			case args[0] == "":
				return usageError{errors.New("KEY is empty: whose usage?")}
			}
			return c.Usage(operator.Key{Text: args[0], By: *usedBy})
		}),
	}
}

// instant reads the time of a flag; nil: it is not given.
func instant(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--%s %q: want a time such as 2026-05-04T14:05:00Z", flag, text)}
	}
	return &t, nil
}
