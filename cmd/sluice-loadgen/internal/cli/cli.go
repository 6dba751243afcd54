// Package cli is what the subcommands' command lines have in common: which requests they are about (Trace), what the limiter allows
// (Rule), how large PoPs are (PoP), and where reports go (Output).
package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// UsageError marks a command line that makes no sense: exit code 2.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usagef is a UsageError of a text.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

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
