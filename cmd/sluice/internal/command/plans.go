package command

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/edge/control"
	"sluice/edge/operator"
)

// planCommands are those of clients' plans.
func planCommands() []operator.Command {
	set, used := operator.NewFlagSet("quota"), operator.NewFlagSet("usage")
	var q control.Quota
	var usedKey keyFlags
	usedKey.add(used)
	const byWhat = "KEY is what the client sends as `PART`, one of plans.also, such as header:X-Organisation; without, as plans.key"
	by, usedBy := set.String("by", "", byWhat), used.String("by", "", byWhat)
	set.StringVar(&q.Rule, "rule", "", "under the rule `NAME` only; without, under all of them")
	set.StringVar(&q.Plan, "plan", "",
		"the client is on the `PLAN`; with list, only clients with a quota of it")
	set.Uint32Var(&q.Limit, "limit", 0,
		"the client has the limit `N`, whatever its plan says; needs --rule, of a rule that counts by the client's key, with plans or without")
	from := set.String("from", "", "not before this `TIME`, such as 2026-05-04T14:05:00Z")
	length := operator.DurationFlag(set, new(time.Duration), "for", 0,
		"lent for so long, from now or --from on: a `TIME` such as 12h or 30d")
	list := operator.QuotaPage{N: 100}
	set.IntVarP(&list.N, "number", "n", list.N, "how many clients to list, 1 to 1000")
	set.StringVar(&list.After, "after", "",
		"list those after `WHERE`, which the list before has named")
	until := set.String("until", "",
		"lent until this `TIME`; then what is in force now is so again")
	return []operator.Command{
		operator.Asks(set, "list|set|get|history|delete [KEY]",
			"the plan and limits of a client, by the key that it sends; list has all clients with one, and what they use", func(c *operator.Client, args []string) error {
				if does := args[0]; does == "list" {
					return listQuotas(c, set, args, list, q.Plan)
				} else if !slices.Contains([]string{"set", "get", "history", "delete"}, does) {
					return operator.UsageErrorf("no form %q: want quota list, quota set KEY, quota get KEY, quota history KEY or quota delete KEY", does)
				} else if len(args) == 1 {
					return operator.UsageErrorf("whose? want quota %s KEY", does)
				} else if set.Changed("number") || set.Changed("after") {
					return operator.UsageErrorf("quota %s is about one client: --number and --after are for list", does)
				}
				does, key := args[0], operator.Key{Text: args[1], By: *by}
				var err error
				if q.EffectiveAt, err = instant("from", *from); err != nil {
					return err
				}
				if q.ExpiresAt, err = instant("until", *until); err != nil {
					return err
				}
				switch {
				case set.Changed("for") && set.Changed("until"):
					return operator.UsageErrorf("--for and --until: give one of them")
				case set.Changed("for") && *length <= 0:
					return operator.UsageErrorf("--for %v: want more than 0", *length)
				case set.Changed("for"):
					end := c.Now
					if q.EffectiveAt != nil {
						end = *q.EffectiveAt
					}
					end = end.Add(*length).UTC().Truncate(time.Second)
					q.ExpiresAt = &end
				}
				said := slices.ContainsFunc([]string{"plan", "limit", "from", "until", "for"},
					set.Changed)
				switch {
				case key.Text == "":
					return operator.UsageErrorf("KEY is empty: whose quota?")
				case does == "set" && q.Plan == "" && q.Limit == 0:
					return operator.UsageErrorf("nothing is to be set: give --plan PLAN, or --rule NAME and --limit N")
				case does == "set" && q.Limit != 0 && q.Rule == "":
					return operator.UsageErrorf("--limit is under one rule: give --rule NAME")
				case does == "set":
					return c.SetQuota(key, q)
				case said || does != "delete" && set.Changed("rule"):
					return operator.UsageErrorf("quota %s takes none of --plan, --limit, --from, --until and --for, and only delete takes --rule", does)
				case does == "get":
					return c.Quotas(key)
				case does == "history":
					return c.QuotaHistory(key)
				case does == "delete" && set.Changed("rule"):
					return c.DeleteQuotas(key, &q.Rule)
				}
				return c.DeleteQuotas(key, nil)
			}),
		operator.Asks(used, "[KEY]",
			"what a client has used of its limits, by the key that it sends",
			func(c *operator.Client, args []string) error {
				switch {
				case usedKey.given() || len(args) == 1 && strings.HasPrefix(args[0], "#") &&
					operator.CheckSource(args[0]) == nil:
					if *usedBy != "" {
						return operator.UsageErrorf("--by is about KEY, the key of a plan: leave it out")
					}
					who, err := usedKey.whom(args, operator.CheckSource)
					if err != nil {
						return err
					}
					return c.UsageOf(who.source, who.key)
				case len(args) == 0:
					return operator.UsageErrorf("whose? want a KEY, or --key PART=VALUE")
				case args[0] == "":
					return operator.UsageErrorf("KEY is empty: whose usage?")
				}
				return c.Usage(operator.Key{Text: args[0], By: *usedBy})
			}),
	}
}

// listQuotas is quota list.
func listQuotas(c *operator.Client, set *pflag.FlagSet, args []string, page operator.QuotaPage,
	plan string) error {
	switch {
	case len(args) > 1:
		return operator.UsageErrorf("quota list has no KEY: quota get %s is about that client",
			args[1])
	case slices.ContainsFunc([]string{"by", "rule", "limit", "from", "until", "for"}, set.Changed):
		return operator.UsageErrorf("quota list takes none of --by, --rule, --limit, --from, --until and --for")
	case page.N < 1 || page.N > 1000:
		return operator.UsageErrorf("--number %d: want 1 to 1000", page.N)
	}
	page.Plan = plan
	return c.ListQuotas(page)
}

// instant reads the time of a flag; nil: it is not given.
func instant(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, operator.UsageErrorf("--%s %q: want a time such as 2026-05-04T14:05:00Z", flag,
			text)
	}
	return &t, nil
}
