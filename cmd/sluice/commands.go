package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/cmd/sluice/internal/command"
	"sluice/cmd/sluice/internal/completion"
)

// commands is all of them, as help shows them.
func commands() []command.Command {
	return slices.Concat([]command.Command{
		{Command: completion.Command{Name: "check", Args: "FILE", Does: "validate a configuration"}, Run: cmdCheck},
	}, command.Operators(), []command.Command{
		command.Why(),
		{Command: completion.Command{Name: "help", Args: "[COMMAND]", Does: "show how a command is used"}, Run: cmdHelp},
		{Command: completion.Command{Name: "completion", Args: strings.Join(completion.Shells(), "|"), Does: "print the script by which a shell completes sluice"}, Run: cmdCompletion},
		{Command: completion.Command{Name: "version", Does: "print version and commit"}, Run: cmdVersion},
	})
}

func findCommand(name string) (command.Command, bool) {
	for _, c := range commands() {
		if c.Name == name {
			return c, true
		}
	}
	return command.Command{}, false
}

func cmdCheck(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return command.Misuse(stderr, errors.New("check wants one file: sluice check FILE"))
	}
	return check(args[0], stdout, stderr)
}

func cmdVersion(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return command.Misuse(stderr, errors.New("version wants nothing else"))
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
		return command.Misuse(stderr, fmt.Errorf("help: no command %q: sluice help lists them", strings.Join(args, " ")))
	}
	fmt.Fprint(stdout, c.Usage())
	return 0
}

// cmdCompletion prints a shell's script, or what that script offers: completion -- WORD...
func cmdCompletion(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == "--" {
		list := []completion.Command{{Flags: newFlags().set}}
		for _, c := range commands() {
			list = append(list, c.Command)
		}
		completion.Offer(stdout, list, args[1:])
		return 0
	}
	if len(args) != 1 {
		return command.Misuse(stderr, fmt.Errorf("completion wants one of %s", strings.Join(completion.Shells(), ", ")))
	}
	if err := completion.Write(stdout, args[0], "sluice"); err != nil {
		return command.Misuse(stderr, fmt.Errorf("completion: %w", err))
	}
	return 0
}
