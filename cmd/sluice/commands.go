package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/cmd/sluice/internal/command"
	"sluice/cmd/sluice/internal/completion"
	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/config"
	"sluice/edge/operator"
)

// commands is all of them, as help shows them.
func commands() []operator.Command {
	return slices.Concat([]operator.Command{
		checkCmd(),
		{Name: "schema",
			Does: "print the JSON Schema of a configuration, for editors", Run: cmdSchema},
	}, command.Operators(reader(), modules(true, nil).Commands()), []operator.Command{
		command.Why(reader()),
		{Name: "help", Args: "[COMMAND]", Does: "show how a command is used", Run: cmdHelp},
		{Name: "completion", Args: strings.Join(completion.Shells(),
			"|"), Does: "print the script by which a shell completes sluice", Run: cmdCompletion},
		{Name: "version", Args: "[--json]", Does: "print version and commit", Run: cmdVersion},
	})
}

// reader reads files with what this program's modules add to them.
func reader() settings.Reader { return settings.Reader{Modules: modules(true, nil).Config()} }

func findCommand(name string) (operator.Command, bool) {
	for _, c := range commands() {
		if c.Name == name {
			return c, true
		}
	}
	return operator.Command{}, false
}

// didYouMean names the command that a word was likely meant to be.
func didYouMean(word string) string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.Name)
	}
	return config.DidYouMean(word, names)
}

func cmdCheck(args []string, stdout, stderr io.Writer) int {
	return checkCmd().Run(args, stdout, stderr)
}

// checkCmd tells what is wrong with a file, and how it differs from what runs.
func checkCmd() operator.Command {
	set := operator.NewFlagSet("check")
	diff := set.Bool("diff", false,
		"say what a reload of FILE would change at the edge that runs, by the admin that the file names, or --admin; exit 1 if anything")
	asJSON := set.Bool("json", false, "print JSON")
	at := command.AddListener(reader(), set)
	return operator.Offline(set, "FILE", "validate a configuration",
		"check wants one file: sluice check FILE", func(args []string, stdout,
			stderr io.Writer) int {
			r := examine(args[0])
			code, where := 0, ""
			if *diff && r.Good {
				client, err := at(r.config)
				if err == nil {
					where = client.Address
					r.Differences, err = client.Differences(r.config)
				}
				if err != nil {
					fmt.Fprintf(stderr, "sluice check: %s\n", settings.Sentence(err))
					return operator.ExitFailed
				}
				r.Warnings = slices.DeleteFunc(r.Warnings, func(w string) bool { return strings.HasSuffix(w, inUse) }) // by the edge that has answered
				if len(r.Differences) > 0 {
					code = operator.ExitFailed
				}
			}
			if *asJSON {
				if !r.Good {
					code = operator.ExitFailed
				}
				_ = operator.PrintJSON(stdout, r) // to the terminal, or to whom it may concern
				return code
			}
			code = r.print(stdout, stderr)
			if *diff && r.Good {
				code = r.printDifferences(where, stdout)
			}
			return code
		})
}

func cmdSchema(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return operator.Misuse(stderr,
			errors.New("schema wants nothing else: sluice schema > sluice.schema.json"))
	}
	_, _ = stdout.Write(config.Schema)
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
		return operator.Misuse(stderr, fmt.Errorf("help: no command %q%s: sluice help lists them",
			strings.Join(args, " "), didYouMean(args[0])))
	}
	fmt.Fprint(stdout, c.Usage())
	return 0
}

// cmdCompletion prints a shell's script, or what that script offers: completion -- WORD...
func cmdCompletion(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == "--" {
		all := append(commands(), operator.Command{Flags: newFlags().set})
		completion.Offer(stdout, all, args[1:])
		return 0
	}
	if len(args) != 1 {
		return operator.Misuse(stderr, fmt.Errorf("completion wants one of %s",
			strings.Join(completion.Shells(), ", ")))
	}
	if err := completion.Write(stdout, args[0], "sluice"); err != nil {
		return operator.Misuse(stderr, fmt.Errorf("completion: %w", err))
	}
	return 0
}
