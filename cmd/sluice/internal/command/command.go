// Package command has the commands of sluice that start no edge: what a command is, those that ask
// a running edge at its operators' listener (Operators), and the one that tells what became of a
// source (Why).
package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/completion"
	"sluice/edge/config"
	"sluice/edge/control"
)

// Exit codes: bad input is the operator's to mend, wrong usage is answered with how it is meant.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Command is one of sluice's commands: a line of help, what shells complete, and what runs. It gets
// the arguments behind its name and returns the exit code.
type Command struct {
	completion.Command
	Run func(args []string, stdout, stderr io.Writer) int
}

// Usage is the help of one command.
func (c Command) Usage() string {
	line := strings.Join(strings.Fields("sluice "+c.Name+" "+c.Args), " ")
	if c.Flags == nil {
		return fmt.Sprintf("%s: %s\n", line, c.Does)
	}
	return fmt.Sprintf("%s [flags]: %s\n\n%sFlags:\n%s", line, c.Does, examples[c.Name],
		c.Flags.FlagUsagesWrapped(100))
}

// examples are shown in the help of a command that has forms of its own.
var examples = map[string]string{"try": `Examples:
  sluice try 'limit=50 window=1m key=header:X-Api-Key' --for 10m    any fields of a rule; refuses nobody
  sluice try limit=5 window=1m 'match.methods=[GET, POST]' --name login --detach
  sluice try --file rule.yaml limit=40                              a file's fields, and another limit
  sluice try list; sluice try show login; sluice try stop login
Ctrl-C stops it, and shows what it has seen. docs/operating/trying.md has all of it.

`, "suggest": `Examples:
  sluice suggest login                 the smallest limit under which at most 1% of the sources that look honest would have been refused
  sluice suggest login --refuse 5%     needs fewer sources
docs/operating/trying.md says how it is found, and what it rests on.

`, "rules": `Examples:
  sluice rules set login limit=20 window=5m        what is named changes, on every edge of the PoP; the rest stays
  sluice rules set login 'match.methods=[POST]'    a field within a field; a list
  sluice rules set api plans.pro=1000              the limit of one plan
  sluice rules set login mode=shadow share=null    null: the default
  sluice rules add rule.yaml                       rules in YAML, as in a configuration; without FILE, or with -, from standard input
  sluice rules edit login                          all of it, in $EDITOR; or from FILE, or from standard input (-)
  sluice rules remove login                        whatever the file says
  sluice rules history login                       what was changed, by whom; each change has a version
  sluice rules rollback login                      to the version before the one in force; a second time takes that back
  sluice rules rollback login 0                    to what the file says
A rule changed here lies over the file until it is rolled back to 0. docs/configuration/rules.md has every field; sluice config shows those in force.

`}

// Offline is a command that asks no edge, with as many arguments as args names. meant is how it is
// used, for who gives others.
func Offline(set *pflag.FlagSet, args, does, meant string, run func(args []string, stdout,
	stderr io.Writer) int) Command {
	c := Command{Command: completion.Command{Name: set.Name(), Args: args, Does: does, Flags: set}}
	c.Run = func(given []string, stdout, stderr io.Writer) int {
		err := Parse(set, given)
		switch {
		case errors.Is(err, pflag.ErrHelp):
			fmt.Fprint(stdout, c.Usage())
			return 0
		case err != nil:
			return Misuse(stderr, err)
		case set.NArg() != len(strings.Fields(args)):
			return Misuse(stderr, errors.New(meant))
		}
		return run(set.Args(), stdout, stderr)
	}
	return c
}

// Misuse says what is wrong with a command line, and returns the exit code.
func Misuse(w io.Writer, err error) int {
	fmt.Fprintf(w, "sluice: %v (sluice --help tells more)\n", err)
	return ExitUsage
}

// duration is the value of a flag: a time with a unit, of which one is the day.
type duration time.Duration

func (d *duration) Set(text string) error {
	t, err := control.ParseDuration(text)
	*d = duration(t)
	return err
}

func (d *duration) String() string {
	if *d == 0 {
		return "0" // which help does not show as a default
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

// durationFlag adds a flag with a time.
func durationFlag(set *pflag.FlagSet, to *time.Duration, name string, standard time.Duration,
	usage string) *time.Duration {
	*to = standard
	set.Var((*duration)(to), name, usage)
	return to
}

// NewFlagSet is a command's flags, in the order in which they are declared.
func NewFlagSet(name string) *pflag.FlagSet {
	s := pflag.NewFlagSet(name, pflag.ContinueOnError)
	s.SortFlags = false
	s.Usage = func() {}
	return s
}

// Parse reads a command line. What pflag says of a value that is none names Go's functions, and not
// what to write in its place.
func Parse(s *pflag.FlagSet, args []string) error {
	err := s.Parse(args)
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		s.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
		return err
	}
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	want := map[string]string{"duration": "a time with a unit, such as 30s, 10m or 48h",
		"int": "a number", "int64": "a number", "uint64": "a number"}[wrong.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %s: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
}
