package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/completion"
)

// command is one of sluice's commands: a line of help, what shells complete, and what runs. It gets the arguments behind its
// name and returns the exit code.
type command struct {
	completion.Command
	run func(args []string, stdout, stderr io.Writer) int
}

func commands() []command {
	list := []command{
		{completion.Command{Name: "check", Args: "FILE", Does: "validate a configuration"}, cmdCheck},
	}
	list = append(list, operatorCommands()...)
	return append(list,
		command{completion.Command{Name: "why", Args: "SOURCE [LOG…]", Does: "what became of a source, from access logs or an edge", Flags: newWhyArgs().flags}, explain},
		command{completion.Command{Name: "help", Args: "[COMMAND]", Does: "tell how a command is used"}, cmdHelp},
		command{completion.Command{Name: "completion", Args: strings.Join(completion.Shells(), "|"), Does: "print the script by which a shell completes sluice"}, cmdCompletion},
		command{completion.Command{Name: "version", Does: "print version and commit"}, cmdVersion},
	)
}

func findCommand(name string) (command, bool) {
	for _, c := range commands() {
		if c.Name == name {
			return c, true
		}
	}
	return command{}, false
}

func cmdCheck(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return misuse(stderr, errors.New("check wants one file: sluice check FILE"))
	}
	return check(args[0], stdout, stderr)
}

func cmdVersion(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return misuse(stderr, errors.New("version wants nothing else"))
	}
	fmt.Fprintln(stdout, "sluice", version())
	return 0
}

func cmdHelp(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		f, _ := parseFlags(nil)
		fmt.Fprint(stdout, usage(f))
		return 0
	}
	c, known := findCommand(args[0])
	if !known || len(args) > 1 {
		return misuse(stderr, fmt.Errorf("help: no command %q: sluice help lists them", strings.Join(args, " ")))
	}
	fmt.Fprint(stdout, c.usage())
	return 0
}

// usage is the help of one command.
func (c command) usage() string {
	line := strings.Join(strings.Fields("sluice "+c.Name+" "+c.Args), " ")
	if c.Flags == nil {
		return fmt.Sprintf("%s: %s\n", line, c.Does)
	}
	return fmt.Sprintf("%s [flags]: %s\n\nFlags:\n%s", line, c.Does, c.Flags.FlagUsagesWrapped(100))
}

func cmdCompletion(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		return misuse(stderr, fmt.Errorf("completion wants one of %s", strings.Join(completion.Shells(), ", ")))
	}
	list := []completion.Command{{Flags: newFlags().set}}
	for _, c := range commands() {
		list = append(list, c.Command)
	}
	if err := completion.Write(stdout, args[0], "sluice", list); err != nil {
		return misuse(stderr, fmt.Errorf("completion: %w", err))
	}
	return 0
}

// newFlagSet is a command's flags, in the order in which they are declared.
func newFlagSet(name string) *pflag.FlagSet {
	s := pflag.NewFlagSet(name, pflag.ContinueOnError)
	s.SortFlags = false
	s.Usage = func() {}
	return s
}
