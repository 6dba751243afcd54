package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/settings"
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

// A flag with a time takes days, and help shows its default as before.
func TestDurationFlag(t *testing.T) {
	var d, none time.Duration
	set := NewFlagSet("x")
	durationFlag(set, &d, "for", 10*time.Minute, "a `TIME`")
	durationFlag(set, &none, "wait", 0, "a `TIME`")
	if got := set.FlagUsages(); got != "      --for TIME    a TIME (default 10m0s)\n      --wait TIME   a TIME\n" {
		t.Errorf("%q", got)
	}
	if err := Parse(set, []string{"--for", "2d", "--wait", "1d12h"}); err != nil || d != 48*time.Hour || none != 36*time.Hour {
		t.Errorf("%v, %v, %v", d, none, err)
	}
}

// A command line that makes no sense is answered with what is wrong and the exit code of misuse, and no edge is asked. Help is no misuse.
func TestCommandLines(t *testing.T) {
	commands := append(Operators(settings.Reader{}), Why())
	for _, test := range []struct {
		line, says string // a part of what it says
		code       int
	}{
		{"status --help", "sluice status [flags]: how an edge", 0},
		{"rules --help", "sluice rules rollback login 0", 0},
		{"why --help", "Usage: sluice why SOURCE", 0},
		{"status now", `unexpected argument "now"`, ExitUsage},
		{"status --no-such-flag", "unknown flag", ExitUsage},
		{"block 192.0.2.7 --reson x", "unknown flag: --reson: did you mean --reason?", ExitUsage},
		{"block 192.0.2.7 --for 1d --until 14:05", "--for and --until: give one of them", ExitUsage},
		{"block 192.0.2.7 --until noon", "want a time such as 2026-05-04T14:05:00Z or 14:05", ExitUsage},
		{"block 192.0.2.7 --until 2020-01-01T00:00:00Z", "--until 2020-01-01T00:00:00Z: that is over", ExitUsage},
		{"quota set k --plan pro --for 0s", "--for 0s: want more than 0", ExitUsage},
		{"quota set k --plan pro --for 1d --until 2030-01-01T00:00:00Z", "--for and --until: give one of them", ExitUsage},
		{"quota list --for 1d", "takes none of", ExitUsage},
		{"quota get k --for 1d", "takes none of", ExitUsage},
		{"try limit=5 --for 8d", "want 1s to 168h", ExitUsage},
		{"why 192.0.2.7 --around 1d /no/such/access.log", "/no/such/access.log", ExitFailed},
		{"status --admin nowhere", "want HOST:PORT or unix:/PATH", ExitUsage},
		{"top --by name", "want requests, refused or shadow", ExitUsage},
		{"top --kind name", "want address or key", ExitUsage},
		{"top --rule api", "give --kind key", ExitUsage},
		{"top -n 0", "want 1 to 1000", ExitUsage},
		{"blocked --manual --by edge", "give one of them", ExitUsage},
		{"blocked --by me", "want edge, pop, admin or peer", ExitUsage},
		{"blocked --mode off", "want enforce or shadow", ExitUsage},
		{"block", "want a SOURCE|CIDR", ExitUsage},
		{"block 192.0.2.7 192.0.2.8", `unexpected argument "192.0.2.8"`, ExitUsage},
		{"block 192.0.2.7 --for 0s", "want more than 0", ExitUsage},
		{"block 192.0.2.7 --rule=", "--rule is empty", ExitUsage},
		{"allow --reason why", "--reason: whose?", ExitUsage},
		{"allow nobody", "nobody", ExitUsage},
		{"deny 192.0.2.7 --remove --for 1m", "leave --for and --reason out", ExitUsage},
		{"rules show", `no form "show"`, ExitUsage},
		{"rules set", `"set" is not enough`, ExitUsage},
		{"rules set login", "nothing is to be set", ExitUsage},
		{"rules set login limit", "no FIELD=VALUE", ExitUsage},
		{"rules rollback login first", `version "first"`, ExitUsage},
		{"rules history login 3", "rules history NAME", ExitUsage},
		{"try --help", "sluice try list; sluice try show login", 0},
		{"try", "nothing is to be tried", ExitUsage},
		{"try limit", "no FIELD=VALUE", ExitUsage},
		{"try show", "want try FIELD=VALUE", ExitUsage},
		{"try list now", "want try FIELD=VALUE", ExitUsage},
		{"try stop a --for 1m", "--for is for a new try", ExitUsage},
		{"try limit=5 --for 0s", "want 1s to 168h", ExitUsage},
		{"try limit=5 --for 10", "want a time with a unit", ExitUsage},
		{"try --file /no/such/rule.yaml", "/no/such/rule.yaml", ExitFailed},
		{"suggest --help", "sluice suggest RULE [flags]: suggest a limit", 0},
		{"suggest", "want sluice suggest RULE", ExitUsage},
		{"suggest login api", `unexpected argument "api"`, ExitUsage},
		{"suggest login --refuse 1", "want a share in percent, such as 1%", ExitUsage},
		{"suggest login --refuse 0.1%", "want 0.4% to 50%", ExitUsage},
		{"why", "want a SOURCE|CIDR", ExitUsage},
		{"why #15", `source "#15"`, ExitUsage},
		{"why --key header:A=1 --admin 127.0.0.1:1 access.log", "or give the # and digest", ExitFailed},
		{"block 192.0.2.7 --key header:A=1", "give one of them", ExitUsage},
		{"block --key header:A", "--key has no value", ExitUsage},
		{"block --key header:A=", "--key header:A: the value is empty", ExitUsage},
		{"unblock --key header:A --key header:B --key-file x", "two --key have no value", ExitUsage},
		{"unblock --key header:A --key-file /no/such/file", "/no/such/file", ExitFailed},
		{"usage", "want a KEY, or --key", ExitUsage},
		{"usage --by header:A --key header:A=1", "leave it out", ExitUsage},
		{"why me", `source "me"`, ExitUsage},
		{"why 192.0.2.7 --at 14:05", "--at wants logs", ExitUsage},
		{"why 192.0.2.7 --at noon access.log", "want a time such as 14:05", ExitUsage},
		{"why 192.0.2.7 --around 0s access.log", "--around 0s", ExitUsage},
		{"why 192.0.2.7 /no/such/access.log", "/no/such/access.log", ExitFailed},
	} {
		words := strings.Fields(test.line)
		i := slices.IndexFunc(commands, func(c Command) bool { return c.Name == words[0] })
		var out, wrong bytes.Buffer
		code := commands[i].Run(words[1:], &out, &wrong)
		says, silent := &wrong, &out
		if test.code == 0 {
			says, silent = silent, says
		}
		if code != test.code || !strings.Contains(says.String(), test.says) || silent.Len() > 0 {
			t.Errorf("%s: exit %d, %q and %q; want exit %d, %q", test.line, code, out.String(), wrong.String(), test.code, test.says)
		}
		commands = append(Operators(settings.Reader{}), Why()) // flags keep what they were set to
	}
}
