package command

import (
	"errors"
	"fmt"
	"io"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/completion"
	"sluice/cmd/sluice/internal/operator"
	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/config"
)

// Operators are those that ask a running edge, at its operators' listener.
func Operators() []Command {
	none := func(do func(*operator.Client) error) func(*operator.Client, []string) error {
		return func(c *operator.Client, _ []string) error { return do(c) }
	}
	status := NewFlagSet("status")
	wait := status.Duration("wait", 0, "wait `TIME` at most until the edge is ready")
	top := NewFlagSet("top")
	by := top.String("by", "requests", "heaviest by `requests|refused|shadow`")
	count := top.IntP("number", "n", 20, "how many to show, 1 to 1000")
	events := NewFlagSet("events")
	since := events.String("since", "", "only what came after the `EVENT` of a number, a time such as 2026-05-04T14:05:00Z, or a while ago such as 10m")
	block, unblock := NewFlagSet("block"), NewFlagSet("unblock")
	length := block.Duration("for", 10*time.Minute, "for how long: a `TIME` such as 10m or 24h")
	reason := block.String("reason", "", "why, for other operators: `TEXT`")
	blockRule := block.String("rule", operator.AllRules, "under the rule `NAME` only; * is every rule")
	unblockRule := unblock.String("rule", operator.AllRules, "under the rule `NAME` only; * is every rule")

	return []Command{
		operatorCommand(status, "", "how an edge and its PoP are; exit 1 if it is not ready", func(c *operator.Client, _ []string) error {
			if *wait > 0 {
				if err := c.WaitReady(*wait); err != nil {
					return err
				}
			}
			return c.Status()
		}),
		operatorCommand(top, "", "the heaviest sources", func(c *operator.Client, _ []string) error {
			if !slices.Contains([]string{"requests", "refused", "shadow"}, *by) {
				return usageError{fmt.Errorf("--by %q: want requests, refused or shadow", *by)}
			}
			if *count < 1 || *count > 1000 {
				return usageError{fmt.Errorf("--number %d: want 1 to 1000", *count)}
			}
			return c.Top(*by, *count)
		}),
		operatorCommand(NewFlagSet("blocked"), "", "who is blocked, by whom and until when", none((*operator.Client).Blocked)),
		operatorCommand(NewFlagSet("rules"), "", "the rules in force", none((*operator.Client).Rules)),
		operatorCommand(NewFlagSet("config"), "", "the configuration in force, and where it is from", none((*operator.Client).Config)),
		operatorCommand(block, "SOURCE|CIDR", "block a source for a while, on every edge of the PoP", func(c *operator.Client, args []string) error {
			if *length <= 0 {
				return usageError{fmt.Errorf("--for %v: want more than 0", *length)}
			}
			if err := checkTarget(args[0], *blockRule); err != nil {
				return err
			}
			return c.Block(args[0], *blockRule, *length, *reason)
		}),
		operatorCommand(unblock, "SOURCE|CIDR", "lift a source's blocks on every edge of the PoP, and forget its counts", func(c *operator.Client, args []string) error {
			if err := checkTarget(args[0], *unblockRule); err != nil {
				return err
			}
			return c.Unblock(args[0], *unblockRule)
		}),
		operatorCommand(events, "", "what has happened lately, the latest last", func(c *operator.Client, _ []string) error { return c.Events(*since) }),
	}
}

func checkTarget(source, rule string) error {
	if err := operator.CheckSource(source); err != nil {
		return usageError{err}
	}
	if rule == "" {
		return usageError{errors.New("--rule is empty: name a rule, or leave it out")}
	}
	return nil
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

// operatorCommand makes a command of what it asks of an edge. It takes as many arguments as args names.
func operatorCommand(set *pflag.FlagSet, args, does string, do func(*operator.Client, []string) error) Command {
	name := set.Name()
	admin := set.String("admin", config.Default().Admin, "the edge's operators' listener, `ADDR`")
	file := set.String("config", "", "the edge's configuration `FILE`, which names that listener and its token")
	tokenFile := set.String("token-file", "", "`FILE` that holds the listener's token")
	asJSON := set.Bool("json", false, "print the edge's answer as it is")

	c := Command{Command: completion.Command{Name: name, Args: args, Does: does, Flags: set}}
	c.Run = func(given []string, stdout, stderr io.Writer) int {
		err := set.Parse(given)
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprint(stdout, c.Usage())
			return 0
		}
		wanted := 0
		if args != "" {
			wanted = 1
		}
		switch {
		case err != nil:
			err = usageError{err}
		case set.NArg() < wanted:
			err = usageError{fmt.Errorf("want a %s: sluice %s %s", args, name, args)}
		case set.NArg() > wanted:
			err = usageError{fmt.Errorf("unexpected argument %q", set.Arg(wanted))}
		default:
			client := &operator.Client{Address: *admin, JSON: *asJSON, Now: time.Now(), Out: stdout}
			if err = findListener(client, *file, *tokenFile, set.Changed("admin")); err == nil {
				err = do(client, set.Args())
			}
		}
		var wrong usageError
		switch {
		case errors.As(err, &wrong):
			fmt.Fprintf(stderr, "sluice %s: %v (sluice help %s tells more)\n", name, err, name)
			return ExitUsage
		case err != nil:
			fmt.Fprintf(stderr, "sluice %s: %s\n", name, settings.Sentence(err))
			return ExitFailed
		}
		return 0
	}
	return c
}

// findListener finds out where to ask, and with which token.
func findListener(c *operator.Client, file, tokenFile string, given bool) error {
	what := "--token-file"
	if file != "" {
		found, err := settings.ReadConfig(file)
		if err != nil {
			return err
		}
		if !given {
			c.Address = found.Admin
		}
		if tokenFile == "" {
			what, tokenFile = "admin_token_file", found.AdminTokenFile
		}
	}
	if config.CheckAddress(c.Address) != nil {
		return usageError{fmt.Errorf("--admin: %q is not the address of an operators' listener: want HOST:PORT or unix:/PATH", c.Address)}
	}
	if u, err := user.Current(); err == nil {
		c.Who = u.Username
	}
	var err error
	c.Token, err = settings.ReadToken(what, tokenFile)
	return err
}
