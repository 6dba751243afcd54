package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/edge/operator"
	"sluice/edge/tryout"
)

// maxRuleFile bounds what is read of a rule: more does not travel.
const maxRuleFile = 64 << 10

// tryCommand is the command by which rules are tried.
func tryCommand() operator.Command {
	set := operator.NewFlagSet("try")
	length := operator.DurationFlag(set, new(time.Duration), "for", 10*time.Minute,
		"for how long: a `TIME` such as 10m or 1d, 7 days at most")
	name := set.String("name", "", "the `NAME` of the try; without, the first try-N that is free")
	file := set.String("file", "",
		"the rule's fields from a `FILE` in YAML or JSON; - is standard input; fields given beside it win")
	detach := set.Bool("detach", false, "only begin: sluice try show NAME tells how it goes")
	const forms = "want try FIELD=VALUE…, try list, try show NAME, or try stop NAME"
	c := operator.Asks(set, "[FIELD=VALUE…|list|show|stop]",
		"try a rule beside those in force: whom it would refuse, and how many of them look honest",
		func(c *operator.Client, args []string) error {
			var does string
			if len(args) > 0 {
				does = args[0]
			}
			switch does {
			case "list", "show", "stop":
				for _, f := range []string{"for", "name", "file", "detach"} {
					if set.Changed(f) {
						return operator.UsageErrorf("--%s is for a new try: leave it out", f)
					}
				}
				switch {
				case does == "list" && len(args) == 1:
					return c.Tries()
				case does == "show" && len(args) == 2:
					return c.ShowTry(args[1])
				case does == "stop" && len(args) == 2:
					return c.StopTry(args[1])
				}
				return operator.UsageErrorf(forms)
			}
			if err := tryout.CheckTime(*length); err != nil {
				return operator.UsageErrorf("--for: %w", err)
			}
			rule, err := givenRule(*file, args)
			if err != nil {
				return err
			}
			if len(rule) == 0 {
				return operator.UsageErrorf("nothing is to be tried: " + forms +
					", such as sluice try 'limit=50 window=1m'")
			}
			begun, err := c.BeginTry(*name, rule, *length)
			switch {
			case err != nil:
				return err
			case *detach && c.JSON:
				return c.ShowTry(begun)
			case *detach:
				return nil
			}
			ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			return c.WatchTry(ctx, begun, *length)
		})
	c.Examples = `Examples:
  sluice try 'limit=50 window=1m key=header:X-Api-Key' --for 10m    any fields of a rule; refuses nobody
  sluice try limit=5 window=1m 'match.methods=[GET, POST]' --name login --detach
  sluice try --file rule.yaml limit=40                              a file's fields, and another limit
  sluice try list; sluice try show login; sluice try stop login
Ctrl-C stops it, and shows what it has seen. docs/operating/trying.md has all of it.

`
	return c
}

// givenRule is the rule of a file with the fields of the command line over it.
func givenRule(file string, args []string) (rule map[string]any, err error) {
	if file != "" {
		from := io.Reader(os.Stdin)
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			from = f
		}
		text, err := io.ReadAll(io.LimitReader(from, maxRuleFile+1))
		if err != nil {
			return nil, err
		}
		if len(text) > maxRuleFile {
			return nil, fmt.Errorf("%s is longer than a rule may be", file)
		}
		if rule, err = operator.TryFile(text); err != nil {
			return nil, err
		}
	}
	line, err := operator.TryRule(args)
	if err != nil {
		return nil, operator.UsageErrorf("%w", err)
	}
	return operator.MergeRule(rule, line), nil
}
