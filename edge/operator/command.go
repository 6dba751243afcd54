package operator

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/edge/config"
	"sluice/edge/control"
)

// Exit codes: bad input is the operator's to mend, wrong usage is answered with how it is meant.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Command is one of sluice's commands: help, what shells complete and what runs come from it. What
// a flag or an argument wants is read from its name: of a|b it is one of these words, FILE is a
// file, and of other names a shell knows nothing.
type Command struct {
	Name, Does string // no Name: the program without a command
	Args       string // such as "SOURCE", "[FILE]", "bash|zsh|fish", "FIELD=VALUE…"
	Examples   string // in its help
	Flags      *pflag.FlagSet
	// Ask asks an edge. The program adds flags that say which, and Run. A command line that makes
	// no sense is an error of UsageErrorf.
	Ask func(c *Client, args []string) error
	// Run gets what stands behind its name, and returns the exit code.
	Run func(args []string, stdout, stderr io.Writer) int
}

// Usage is the help of one command.
func (c Command) Usage() string {
	line := strings.Join(strings.Fields("sluice "+c.Name+" "+c.Args), " ")
	if c.Flags == nil {
		return fmt.Sprintf("%s: %s\n", line, c.Does)
	}
	return fmt.Sprintf("%s [flags]: %s\n\n%sFlags:\n%s", line, c.Does, c.Examples,
		c.Flags.FlagUsagesWrapped(100))
}

// Asks is a command that asks an edge. It takes as many arguments as args names: [NAME] may be left
// out, and of one with … there may be several.
func Asks(set *pflag.FlagSet, args, does string, ask func(*Client, []string) error) Command {
	return Command{Name: set.Name(), Args: args, Does: does, Flags: set, Ask: ask}
}

// UsageError is a command line that makes no sense.
type UsageError struct{ error }

// UsageErrorf makes one.
func UsageErrorf(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Offline is a command that asks no edge, with as many arguments as args names. meant is how it is
// used, for who gives others.
func Offline(set *pflag.FlagSet, args, does, meant string, run func(args []string, stdout,
	stderr io.Writer) int) Command {
	c := Command{Name: set.Name(), Args: args, Does: does, Flags: set}
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

// DurationFlag adds a flag with a time.
func DurationFlag(set *pflag.FlagSet, to *time.Duration, name string, standard time.Duration,
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
