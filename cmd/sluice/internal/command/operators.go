package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/operator"
)

// Operators are those that ask a running edge, at its operators' listener, and own, the modules'.
// Files are read by read.
func Operators(read settings.Reader, own []operator.Command) []operator.Command {
	none := func(do func(*operator.Client) error) func(*operator.Client, []string) error {
		return func(c *operator.Client, _ []string) error { return do(c) }
	}
	status := operator.NewFlagSet("status")
	wait := operator.DurationFlag(status, new(time.Duration), "wait", 0,
		"wait `TIME` at most until the edge is ready")
	const ofPoP = "of all edges of the PoP together, with how old what each shows is, and which are missing"
	statusOfPoP := status.Bool("pop", false, "what each edge of the PoP does, and all together")
	top := operator.NewFlagSet("top")
	topOfPoP := top.Bool("pop", false, ofPoP)
	by := top.String("by", "requests", "heaviest by `requests|refused|shadow`")
	kind := top.String("kind", "address",
		"`address|key`: addresses, or the keys that rules count by")
	ofRule := top.String("rule", "", "of keys: those by which the rule `NAME` counts")
	count := top.IntP("number", "n", 20, "how many to show, 1 to 1000")
	events := operator.NewFlagSet("events")
	since := events.String("since", "",
		"only what came after the `EVENT` of a number, a time such as 2026-05-04T14:05:00Z, or a while ago such as 10m or 1d")
	eventsOfPoP := events.Bool("pop", false, ofPoP)
	block, unblock := operator.NewFlagSet("block"), operator.NewFlagSet("unblock")
	length := operator.DurationFlag(block, new(time.Duration), "for", 10*time.Minute,
		"for how long: a `TIME` such as 10m, 24h or 2d")
	until := block.String("until", "",
		"in place of --for: until this `TIME`, such as 2026-05-04T14:05:00Z, or 14:05 (UTC, the next one)")
	reason := block.String("reason", "", "why, for other operators: `TEXT`")
	blocked := operator.NewFlagSet("blocked")
	var only operator.Filter
	blocked.StringVar(&only.Rule, "rule", "",
		"only under the rule `NAME`; * is what blocks under every rule")
	blocked.StringVar(&only.Source, "source", "",
		"only `SOURCE|CIDR`, and prefixes that hold it or lie in it")
	blocked.StringVar(&only.Mode, "mode", "",
		"only by rules that refuse, or by those in shadow: `enforce|shadow`")
	blocked.StringVar(&only.By, "by", "",
		"only those that this edge, another one, an operator, or another PoP began: `edge|pop|admin|peer`")
	blocked.StringVar(&only.Text, "find", "", "only those with `TEXT` in source, rule or reason")
	blocked.BoolVar(&only.PoP, "pop", false, ofPoP)
	manual := blocked.Bool("manual", false, "only those that an operator began, as --by admin")
	blockRule := block.String("rule", control.AllRules,
		"under the rule `NAME` only; * is every rule")
	var blockKey, unblockKey keyFlags
	blockKey.add(block)
	unblockKey.add(unblock)
	unblockRule := unblock.String("rule", control.AllRules,
		"under the rule `NAME` only; * is every rule")

	all := slices.Concat([]operator.Command{
		operator.Asks(status, "", "how an edge and its PoP are; exit 1 if it is not ready",
			func(c *operator.Client, _ []string) error {
				if *wait > 0 {
					if err := c.WaitReady(*wait); err != nil {
						return err
					}
				}
				if *statusOfPoP {
					return c.StatusOfPoP()
				}
				return c.Status()
			}),
		operator.Asks(top, "", "the heaviest sources, or keys", func(c *operator.Client,
			_ []string) error {
			if !slices.Contains([]string{"requests", "refused", "shadow"}, *by) {
				return operator.UsageErrorf("--by %q: want requests, refused or shadow", *by)
			}
			if *count < 1 || *count > 1000 {
				return operator.UsageErrorf("--number %d: want 1 to 1000", *count)
			}
			switch {
			case *kind == "key":
				return c.TopKeys(*by, *count, *ofRule, *topOfPoP)
			case *kind != "address":
				return operator.UsageErrorf("--kind %q: want address or key", *kind)
			case *ofRule != "":
				return operator.UsageErrorf("--rule is about keys: give --kind key with it")
			}
			return c.Top(*by, *count, *topOfPoP)
		}),
		operator.Asks(blocked, "", "who is blocked, by whom and until when",
			func(c *operator.Client, _ []string) error {
				switch {
				case *manual && only.By != "" && only.By != "admin":
					return operator.UsageErrorf("--manual and --by %s: give one of them", only.By)
				case *manual:
					only.By = "admin"
				case !slices.Contains([]string{"", "edge", "pop", "admin", "peer"}, only.By):
					return operator.UsageErrorf("--by %q: want edge, pop, admin or peer", only.By)
				}
				if !slices.Contains([]string{"", "enforce", "shadow"}, only.Mode) {
					return operator.UsageErrorf("--mode %q: want enforce or shadow", only.Mode)
				}
				if only.Source != "" {
					if err := operator.CheckSource(only.Source); err != nil {
						return operator.UsageErrorf("--source: %w", err)
					}
				}
				return c.Blocked(only)
			}),
		rulesCommand(),
		operator.Asks(operator.NewFlagSet("reload"), "",
			"read the configuration again, wait, and say what has changed; exit 1, with the reason, if it is wrong", none((*operator.Client).Reload)),
		operator.Asks(operator.NewFlagSet("drain"), "",
			"take the edge out of service: /readyz says 503, and it serves whoever comes, until undrain or a restart", none((*operator.Client).Drain)),
		operator.Asks(operator.NewFlagSet("undrain"), "", "take the edge back into service",
			none((*operator.Client).Undrain)),
		operator.Asks(operator.NewFlagSet("config"), "",
			"the configuration in force, and where it is from", none((*operator.Client).Config)),
		operator.Asks(block, "[SOURCE|CIDR]",
			"block a source, or who is counted by a key, for a while, on every edge of the PoP",
			func(c *operator.Client, args []string) error {
				switch {
				case *until != "" && block.Changed("for"):
					return operator.UsageErrorf("--for and --until: give one of them")
				case *until != "":
					var err error
					if *length, err = lasts(*until, c.Now); err != nil {
						return err
					}
				case *length <= 0:
					return operator.UsageErrorf("--for %v: want more than 0", *length)
				}
				who, err := target(&blockKey, args, *blockRule)
				switch {
				case err != nil:
					return err
				case who.key != nil:
					return c.BlockKey(who.key, *blockRule, *length, *reason)
				}
				return c.Block(who.source, *blockRule, *length, *reason)
			}),
		operator.Asks(unblock, "[SOURCE|CIDR]",
			"lift a source's blocks on every edge of the PoP, and forget its counts",
			func(c *operator.Client, args []string) error {
				who, err := target(&unblockKey, args, *unblockRule)
				switch {
				case err != nil:
					return err
				case who.key != nil:
					return c.UnblockKey(who.key, *unblockRule)
				}
				return c.Unblock(who.source, *unblockRule)
			}),
		listCommand(operator.Allow,
			"never limit a source for a while, on every edge of the PoP; without one, whom operators allow"),
		listCommand(operator.Deny,
			"always refuse a source for a while, on every edge of the PoP; without one, whom operators deny"),
		operator.Asks(events, "", "what has happened lately, the latest last",
			func(c *operator.Client, _ []string) error { return c.Events(*since, *eventsOfPoP) }),
	}, planCommands(), own)
	for i := range all {
		if all[i].Ask != nil {
			asking(read, &all[i])
		}
	}
	return all
}

// lasts is how long it is until a time, which --until names.
func lasts(until string, now time.Time) (time.Duration, error) {
	for _, form := range []string{time.RFC3339, "15:04", time.TimeOnly} {
		t, err := time.Parse(form, until)
		if err != nil {
			continue
		}
		if form != time.RFC3339 {
			now := now.UTC()
			t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0,
				time.UTC)
			if !t.After(now) {
				t = t.AddDate(0, 0, 1)
			}
		}
		if !t.After(now) {
			return 0, operator.UsageErrorf("--until %s: that is over", until)
		}
		return t.Sub(now).Round(time.Millisecond), nil
	}
	return 0, operator.UsageErrorf("--until %q: want a time such as 2026-05-04T14:05:00Z or 14:05",
		until)
}

// listCommand is the command of a list that operators keep.
func listCommand(list operator.List, does string) operator.Command {
	set := operator.NewFlagSet(string(list))
	length := operator.DurationFlag(set, new(time.Duration), "for", 10*time.Minute,
		"for how long: a `TIME` such as 10m, 24h or 2d")
	reason := set.String("reason", "", "why, for other operators: `TEXT`")
	remove := set.Bool("remove", false, "take the source off the list")
	return operator.Asks(set, "[SOURCE|CIDR]", does, func(c *operator.Client, args []string) error {
		if len(args) == 0 {
			for _, f := range []string{"for", "reason", "remove"} {
				if set.Changed(f) {
					return operator.UsageErrorf("--%s: whose? want a SOURCE|CIDR", f)
				}
			}
			return c.Listed(list)
		}
		if err := operator.CheckPrefix(args[0]); err != nil {
			return operator.UsageErrorf("%w", err)
		}
		switch {
		case *remove && (set.Changed("for") || set.Changed("reason")):
			return operator.UsageErrorf("--remove ends at once: leave --for and --reason out")
		case *remove:
			return c.Remove(list, args[0])
		case *length <= 0:
			return operator.UsageErrorf("--for %v: want more than 0", *length)
		}
		return c.Put(list, args[0], *length, *reason)
	})
}

// target is who is to be blocked, or not any more.
func target(key *keyFlags, args []string, rule string) (named, error) {
	if rule == "" {
		return named{}, operator.UsageErrorf("--rule is empty: name a rule, or leave it out")
	}
	return key.whom(args, operator.CheckSource)
}

// asking has a command ask the edge that its flags name.
func asking(read settings.Reader, c *operator.Command) {
	edge := listener{read: read}
	edge.addFlags(c.Flags)
	asJSON := c.Flags.Bool("json", false, "print the edge's answer as it is")
	c.Run = func(given []string, stdout, stderr io.Writer) int {
		err := operator.Parse(c.Flags, given)
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprint(stdout, c.Usage())
			return 0
		}
		least, most := 0, 0
		for _, arg := range strings.Fields(c.Args) {
			if most++; !strings.HasPrefix(arg, "[") && !strings.HasSuffix(arg, "]") {
				least++
			}
			if strings.Contains(arg, "…") {
				most = len(given)
			}
		}
		switch {
		case err != nil:
			err = operator.UsageErrorf("%w", err)
		case c.Flags.NArg() < least:
			err = operator.UsageErrorf("too little is given: want sluice %s %s", c.Name, c.Args)
		case c.Flags.NArg() > most:
			err = operator.UsageErrorf("unexpected argument %q", c.Flags.Arg(most))
		default:
			var client *operator.Client
			if client, err = edge.client(); err == nil {
				client.JSON, client.Now, client.Out = *asJSON, time.Now(), stdout
				err = c.Ask(client, c.Flags.Args())
			}
		}
		var lines wholeError
		switch {
		case errors.As(err, new(operator.UsageError)):
			fmt.Fprintf(stderr, "sluice %s: %v (sluice help %s tells more)\n", c.Name, err, c.Name)
			return operator.ExitUsage
		case errors.As(err, &lines):
			fmt.Fprintf(stderr, "%v\n", err)
			return operator.ExitFailed
		case err != nil:
			fmt.Fprintf(stderr, "sluice %s: %s\n", c.Name, settings.Sentence(err))
			return operator.ExitFailed
		}
		return 0
	}
}

// listener is the operators' listener of an edge, as a command line names it.
type listener struct {
	read                     settings.Reader
	admin, config, tokenFile string
	flags                    *pflag.FlagSet
}

func (l *listener) addFlags(set *pflag.FlagSet) {
	l.flags = set
	set.StringVar(&l.admin, "admin", config.Default().Admin,
		"the edge's operators' listener, `ADDR`")
	set.StringVar(&l.config, "config", "",
		"the edge's configuration `FILE`, which names that listener and its token")
	set.StringVar(&l.tokenFile, "token-file", "", "`FILE` that holds the listener's token")
}

// AddListener adds the flags of an operators' listener to a command that knows the edge's
// configuration, and returns how to ask there.
func AddListener(read settings.Reader, set *pflag.FlagSet) func(*config.Config) (*operator.Client, error) {
	l := &listener{read: read, flags: set}
	set.StringVar(&l.admin, "admin", "",
		"the edge's operators' listener, `ADDR`, in place of that of the file")
	set.StringVar(&l.tokenFile, "token-file", "",
		"`FILE` that holds the listener's token, in place of that of the file")
	return l.of
}

// client finds out where to ask, and with which token.
func (l *listener) client() (*operator.Client, error) {
	if l.config != "" {
		found, err := l.read.Config(l.config)
		var unread syscall.Errno
		if errors.As(err, &unread) {
			return nil, err
		} else if err != nil {
			return nil,
				fmt.Errorf("%s; until it is mended, leave --config out, and name the listener with --admin ADDR and --token-file FILE", settings.Sentence(err))
		}
		return l.of(found)
	}
	return l.of(nil)
}

// of is client of an edge with a configuration; nil: it is not known.
func (l *listener) of(found *config.Config) (*operator.Client, error) {
	c := &operator.Client{Address: l.admin, Now: time.Now(), Modules: l.read.Modules}
	what, tokenFile := "--token-file", l.tokenFile
	if found != nil && !l.flags.Changed("admin") {
		c.Address = found.Admin
	}
	if found != nil && tokenFile == "" {
		what, tokenFile = "admin_token_file", found.AdminTokenFile
	}
	if config.CheckAddress(c.Address) != nil {
		return nil,
			operator.UsageErrorf("--admin: %q is not the address of an operators' listener: want HOST:PORT or unix:/PATH", c.Address)
	}
	c.Who = who(os.Getenv("SUDO_USER"))
	var err error
	c.Token, err = settings.ReadToken(what, tokenFile)
	return c, err
}

// who is the operator: under sudo the caller, and not root.
func who(caller string) string {
	u, err := user.Current()
	switch {
	case caller != "" && (err != nil || u.Uid == "0"):
		return caller
	case err != nil:
		return ""
	}
	return u.Username
}
