package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge"
	"sluice/edge/modules/challenge"
	"sluice/edge/modules/maintenance"
	"sluice/edge/modules/suggest"
	"sluice/edge/modules/try"
	"sluice/edge/operator"
)

// A time of --until is an instant, or the next time of day.
func TestLasts(t *testing.T) {
	now := time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)
	for until, want := range map[string]time.Duration{"2026-05-04T15:05:00Z": time.Hour, "2026-05-04T17:05:00+02:00": time.Hour, "14:35": 30 * time.Minute,
		"14:05:01": time.Second, "14:05": 24 * time.Hour, "14:00": 24*time.Hour - 5*time.Minute} {
		if d, err := lasts(until, now); d != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", until, d, err, want)
		}
	}
}

// A command line that makes no sense is answered with what is wrong and the exit code of misuse, and no edge is asked. Help is no misuse.
func TestCommandLines(t *testing.T) {
	own := func() []operator.Command {
		return edge.Modules{challenge.Module(nil), maintenance.Module(), suggest.Module(),
			try.Module()}.Commands()
	}
	commands := append(Operators(settings.Reader{}, own()), Why(settings.Reader{}))
	for _, test := range []struct {
		line, says string // a part of what it says
		code       int
	}{
		{"status --help", "sluice status [flags]: how an edge", 0},
		{"rules --help", "sluice rules rollback login 0", 0},
		{"why --help", "Usage: sluice why SOURCE", 0},
		{"status now", `unexpected argument "now"`, operator.ExitUsage},
		{"status --no-such-flag", "unknown flag", operator.ExitUsage},
		{"block 192.0.2.7 --reson x", "unknown flag: --reson: did you mean --reason?", operator.ExitUsage},
		{"block 192.0.2.7 --for 1d --until 14:05", "--for and --until: give one of them", operator.ExitUsage},
		{"block 192.0.2.7 --until noon", "want a time such as 2026-05-04T14:05:00Z or 14:05", operator.ExitUsage},
		{"block 192.0.2.7 --until 2020-01-01T00:00:00Z", "--until 2020-01-01T00:00:00Z: that is over", operator.ExitUsage},
		{"quota set k --plan pro --for 0s", "--for 0s: want more than 0", operator.ExitUsage},
		{"quota set k --plan pro --for 1d --until 2030-01-01T00:00:00Z", "--for and --until: give one of them", operator.ExitUsage},
		{"quota list --for 1d", "takes none of", operator.ExitUsage},
		{"quota get k --for 1d", "takes none of", operator.ExitUsage},
		{"try limit=5 --for 8d", "want 1s to 168h", operator.ExitUsage},
		{"challenge off asks --for 1m", "belong to on: sluice challenge on RULE --for 1h", operator.ExitUsage},
		{"challenge maybe asks", "want on or off", operator.ExitUsage},
		{"maintenance on --allow=", "--allow is empty", operator.ExitUsage},
		{"maintenance off --for 1h", "belong to on: sluice maintenance on --for 2h", operator.ExitUsage},
		{"challenge on", "too little is given: want sluice challenge on|off RULE", operator.ExitUsage},
		{"why 192.0.2.7 --around 1d /no/such/access.log", "/no/such/access.log", operator.ExitFailed},
		{"status --admin nowhere", "want HOST:PORT or unix:/PATH", operator.ExitUsage},
		{"top --by name", "want requests, refused or shadow", operator.ExitUsage},
		{"top --kind name", "want address or key", operator.ExitUsage},
		{"top --rule api", "give --kind key", operator.ExitUsage},
		{"top -n 0", "want 1 to 1000", operator.ExitUsage},
		{"blocked --manual --by edge", "give one of them", operator.ExitUsage},
		{"blocked --by me", "want edge, pop, admin or peer", operator.ExitUsage},
		{"blocked --mode off", "want enforce or shadow", operator.ExitUsage},
		{"block", "want a SOURCE|CIDR", operator.ExitUsage},
		{"block 192.0.2.7 192.0.2.8", `unexpected argument "192.0.2.8"`, operator.ExitUsage},
		{"block 192.0.2.7 --for 0s", "want more than 0", operator.ExitUsage},
		{"block 192.0.2.7 --rule=", "--rule is empty", operator.ExitUsage},
		{"allow --reason why", "--reason: whose?", operator.ExitUsage},
		{"allow nobody", "nobody", operator.ExitUsage},
		{"deny 192.0.2.7 --remove --for 1m", "leave --for and --reason out", operator.ExitUsage},
		{"rules show", `no form "show"`, operator.ExitUsage},
		{"rules set", `"set" is not enough`, operator.ExitUsage},
		{"rules set login", "nothing is to be set", operator.ExitUsage},
		{"rules set login limit", "no FIELD=VALUE", operator.ExitUsage},
		{"rules rollback login first", `version "first"`, operator.ExitUsage},
		{"rules history login 3", "rules history NAME", operator.ExitUsage},
		{"try --help", "sluice try list; sluice try show login", 0},
		{"try", "nothing is to be tried", operator.ExitUsage},
		{"try limit", "no FIELD=VALUE", operator.ExitUsage},
		{"try show", "want try FIELD=VALUE", operator.ExitUsage},
		{"try list now", "want try FIELD=VALUE", operator.ExitUsage},
		{"try stop a --for 1m", "--for is for a new try", operator.ExitUsage},
		{"try limit=5 --for 0s", "want 1s to 168h", operator.ExitUsage},
		{"try limit=5 --for 10", "want a time with a unit", operator.ExitUsage},
		{"try --file /no/such/rule.yaml", "/no/such/rule.yaml", operator.ExitFailed},
		{"suggest --help", "sluice suggest RULE [flags]: suggest a limit", 0},
		{"suggest", "want sluice suggest RULE", operator.ExitUsage},
		{"suggest login api", `unexpected argument "api"`, operator.ExitUsage},
		{"suggest login --refuse 1", "want a share in percent, such as 1%", operator.ExitUsage},
		{"suggest login --refuse 0.1%", "want 0.4% to 50%", operator.ExitUsage},
		{"why", "want a SOURCE|CIDR", operator.ExitUsage},
		{"why #15", `source "#15"`, operator.ExitUsage},
		{"why --key header:A=1 --admin 127.0.0.1:1 access.log", "or give the # and digest", operator.ExitFailed},
		{"block 192.0.2.7 --key header:A=1", "give one of them", operator.ExitUsage},
		{"block --key header:A", "--key has no value", operator.ExitUsage},
		{"block --key header:A=", "--key header:A: the value is empty", operator.ExitUsage},
		{"unblock --key header:A --key header:B --key-file x", "two --key have no value", operator.ExitUsage},
		{"unblock --key header:A --key-file /no/such/file", "/no/such/file", operator.ExitFailed},
		{"usage", "want a KEY, or --key", operator.ExitUsage},
		{"usage --by header:A --key header:A=1", "leave it out", operator.ExitUsage},
		{"why me", `source "me"`, operator.ExitUsage},
		{"why 192.0.2.7 --at 14:05", "--at wants logs", operator.ExitUsage},
		{"why 192.0.2.7 --at noon access.log", "want a time such as 14:05", operator.ExitUsage},
		{"why 192.0.2.7 --around 0s access.log", "--around 0s", operator.ExitUsage},
		{"why 192.0.2.7 /no/such/access.log", "/no/such/access.log", operator.ExitFailed},
	} {
		words := strings.Fields(test.line)
		i := slices.IndexFunc(commands, func(c operator.Command) bool { return c.Name == words[0] })
		var out, wrong bytes.Buffer
		code := commands[i].Run(words[1:], &out, &wrong)
		says, silent := &wrong, &out
		if test.code == 0 {
			says, silent = silent, says
		}
		if code != test.code || !strings.Contains(says.String(), test.says) || silent.Len() > 0 {
			t.Errorf("%s: exit %d, %q and %q; want exit %d, %q", test.line, code, out.String(), wrong.String(), test.code, test.says)
		}
		commands = append(Operators(settings.Reader{}, own()), Why(settings.Reader{})) // flags keep what they were set to
	}
}
