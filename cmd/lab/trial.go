package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
)

// A trial is the command line of a subcommand that tries programs: which they are, in how many
// rounds, in full or in a short form, and where its figures go.
type trial struct {
	*pflag.FlagSet
	short    bool
	self     string // this program, of which origins and proxies are subcommands
	json     string
	programs []func() error
	choices  []func() error
}

// newTrial begins one, whose short form does what is said.
func newTrial(name, short string) *trial {
	t := &trial{FlagSet: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	if short != "" {
		t.BoolVar(&t.short, "short", false, short)
	}
	return t
}

// rounds are the flags of one that measures, and writes figures.
func (t *trial) rounds(rounds *int, each *time.Duration, times int, length time.Duration,
	of string) {
	t.IntVar(rounds, "rounds", times, "how often each is measured, by turns")
	t.DurationVar(each, "time", length, of)
	t.StringVar(&t.json, "json", "", "write the figures to `FILE`, too")
	t.choices = append(t.choices, func() error {
		if *rounds < 1 || *rounds > 100 || *each < 100*time.Millisecond || *each > time.Minute {
			return cli.Usagef("--rounds %d, --time %v: want 1 to 100 rounds of 100ms to 1m",
				*rounds, *each)
		}
		return nil
	})
}

// program is the flag of an executable.
func (t *trial) program(path *string, flag, name, what string) {
	t.StringVar(path, flag, "", "`PATH` of "+what+"; none: "+name+" beside this one")
	t.programs = append(t.programs, func() error {
		if err := cli.Beside(path, name); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("%w: make builds it", err)
		}
		return nil
	})
}

// sluice is that of the edge.
func (t *trial) sluice(path *string) {
	t.program(path, "sluice", "sluice", "the edge's executable")
}

// some is a flag of names, of those that there are.
func (t *trial) some(given *[]string, name string, usual, there []string, what string) {
	t.StringSliceVar(given, name, usual, what)
	t.choices = append(t.choices, func() error { return cli.SomeOf("--"+name, *given, there) })
}

// parse reads the command line. What it names must make sense before a program is looked for.
func (t *trial) parse(args []string) (err error) {
	if err := cli.Parse(t.FlagSet, args); err != nil {
		return err
	}
	for _, check := range append(t.choices, t.programs...) {
		if err := check(); err != nil {
			return err
		}
	}
	t.self, err = os.Executable()
	return err
}

// report writes figures as JSON, where that is asked for, and as a table.
func (t *trial) report(figures any, table func(io.Writer) error) error {
	if err := cli.ToJSON(t.json, figures); err != nil {
		return err
	}
	return table(os.Stdout)
}

func say(s string) { fmt.Fprintln(os.Stderr, s) }
