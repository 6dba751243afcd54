// Package cli is what the subcommands' command lines have in common: which requests they are about
// (Trace), what the limiter allows (RuleFlags), how large PoPs are (PoP), and where reports go
// (Output).
package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// UsageError marks a command line that makes no sense: exit code 2.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usagef is a UsageError of a text.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// NoMeasurement is the error of a run that nothing can be said of, because the machine was too
// busy: the program ends with exit code 3.
type NoMeasurement string

func (e NoMeasurement) Error() string { return string(e) }

// Told is an error that a user has been told already: the program ends with that exit code, and
// says no more.
type Told int

func (c Told) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// SomeOf reports what a list names that it cannot.
func SomeOf(flag string, given, there []string) error {
	for _, name := range given {
		if !slices.Contains(there, name) {
			return Usagef("%s %s: want some of %s", flag, name, strings.Join(there, ", "))
		}
	}
	return nil
}

// Beside completes the path of a program that none was given for: it lies beside this one.
func Beside(path *string, name string) error {
	if *path != "" {
		return nil
	}
	self, err := os.Executable()
	*path = filepath.Join(filepath.Dir(self), name)
	return err
}

// Parse reads a subcommand's flags. There are no other arguments.
func Parse(flags *pflag.FlagSet, args []string) error {
	flags.SortFlags = false
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return UsageError{err}
	}
	if flags.NArg() > 0 {
		return Usagef("unexpected argument %q", flags.Arg(0))
	}
	return nil
}
