package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// Command is one subcommand. Run gets the arguments behind its name and ends when ctx does.
type Command struct {
	Name string
	Does string
	Run  func(ctx context.Context, args []string) error
}

// Program is a program of subcommands.
type Program struct {
	Name     string
	Commands []Command
}

// Main runs the program of the process, and ends it.
func (p *Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	code := p.Run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// Run is Main without the process: it gives the exit code, 0, 1 for what went wrong, 2 for a
// command line that makes no sense, 3 for a run that is no measurement (NoMeasurement) and in which
// nothing else went wrong.
func (p *Program) Run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, p.Help())
		return 2
	}
	if args[0] == "help" && len(args) == 2 {
		args = []string{args[1], "--help"}
	}
	switch args[0] {
	case "help", "-h", "--help":
		fmt.Fprint(stderr, p.Help())
		return 0
	}
	for _, c := range p.Commands {
		if c.Name != args[0] {
			continue
		}
		err := c.Run(ctx, args[1:])
		var wrong UsageError
		var told Told
		var busy NoMeasurement
		switch {
		case err == nil, errors.Is(err, pflag.ErrHelp):
			return 0
		case errors.As(err, &told):
			return int(told)
		case errors.As(err, &wrong):
			fmt.Fprintf(stderr, "%s %s: %v; see %s %s --help\n", p.Name, c.Name, err, p.Name,
				c.Name)
			return 2
		case errors.As(err, &busy):
			fmt.Fprintf(stderr, "%s %s: %v\n", p.Name, c.Name, err)
			return 3
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			fmt.Fprintf(stderr, "%s %s: interrupted; everything it started is stopped\n", p.Name,
				c.Name)
			return 1
		default:
			fmt.Fprintf(stderr, "%s %s: %v\n", p.Name, c.Name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "%s: no subcommand %q; see %s help\n", p.Name, args[0], p.Name)
	return 2
}

// Help lists the subcommands.
func (p *Program) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s SUBCOMMAND [flags]\n\n", p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "  %-11s %s\n", c.Name, c.Does)
	}
	fmt.Fprintf(&b, "\n%s SUBCOMMAND --help lists its flags.\n", p.Name)
	return b.String()
}

// Logf writes a line to standard error.
func Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
