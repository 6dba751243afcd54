package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/lab/chaos"
)

// cmdChaos tells stories of what breaks, with real edges, and prints a row of each.
func cmdChaos(ctx context.Context, args []string) error {
	l := chaos.Live{Secret: live.LabSecret, Log: func(string, ...any) {}}
	t := newTrial("chaos",
		"the short form: only stories that say so, whose times are shown and not held to a bound")
	only := t.String("only", "", "stories that match this `EXPRESSION`")
	file := t.String("stories", "", "of a `FILE`, in place of those that are built in")
	report := t.Bool("report", false,
		"end well even if a row is above what is promised, which the table says")
	list := t.Bool("list", false, "say which stories there are, and run none")
	t.Uint64Var(&l.Seed, "seed", 1, "of the traffic, and of which edges it meets")
	var chosen []*chaos.Scenario
	t.choices = append(t.choices, func() (err error) {
		chosen, err = choose(*file, *only, t.short)
		return err
	})
	t.sluice(&l.Sluice)
	if err := t.parse(args); err != nil {
		return err
	}
	if *list {
		for _, s := range chosen {
			fmt.Printf("%s  %s\n", s.Place, s.Story)
		}
		return nil
	}
	l.Origin = []string{t.self, "origin"}
	var rows []*chaos.Row
	var over []string
	var wrong error
	for _, s := range chosen {
		cli.Logf("%s: %d edges, for %v", s.Story, s.Edges, s.For)
		r, err := l.Run(ctx, s)
		if err != nil {
			wrong = fmt.Errorf("%s: %w", s.Story, err)
			break
		}
		if rows = append(rows, r); len(r.Over) > 0 {
			over = append(over, r.Story+": "+strings.Join(r.Over, ", "))
		}
	}
	if err := errors.Join(wrong, chaos.Write(os.Stdout, rows)); err != nil {
		return err
	}
	if len(over) > 0 && !*report {
		return fmt.Errorf("chaos: above what is promised: %s", strings.Join(over, "; "))
	}
	return nil
}

// choose are stories that are built in, or those of a file, that match an expression.
func choose(file, only string, short bool) (chosen []*chaos.Scenario, err error) {
	like, err := regexp.Compile(only)
	if err != nil {
		return nil, cli.Usagef("--only %s: %v", only, err)
	}
	stories, err := chaos.All()
	if file != "" {
		var text []byte
		if text, err = os.ReadFile(file); err == nil {
			stories, err = chaos.Parse(file, string(text))
		}
	}
	if err != nil {
		return nil, err
	}
	for _, s := range stories {
		if like.MatchString(s.Story) && (s.Short || !short) {
			s.Untimed = short
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, cli.Usagef("--only %s: no story is like that; --list says which there are",
			only)
	}
	return chosen, nil
}
