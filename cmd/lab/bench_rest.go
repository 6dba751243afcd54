package main

import (
	"context"
	"io"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdRest measures what an edge costs that hardly anybody asks.
func cmdRest(ctx context.Context, args []string) error {
	r := bench.Rest{Say: say}
	t := newTrial("rest", "one round of three seconds, soon after the start or a block")
	t.rounds(&r.Rounds, &r.For, 3, 10*time.Second, "of a measurement")
	t.some(&r.Cases, "case", bench.RestCases(), bench.RestCases(), "what is measured")
	t.DurationVar(&r.After, "after", time.Minute, "from the start, or a block, until an edge with nodes is measured")
	t.StringVar(&r.Before, "before", "",
		"`PATH` of another edge's executable, measured beside this one")
	t.choices = append(t.choices, func() error {
		if r.After < 0 || r.After > time.Hour {
			return cli.Usagef("--after %v: want at most an hour", r.After)
		}
		return nil
	})
	t.sluice(&r.Sluice)
	if err := t.parse(args); err != nil {
		return err
	}
	r.Self = t.self
	if t.short {
		r.Rounds, r.For, r.After = 1, 3*time.Second, 5*time.Second
	}
	figures, err := r.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(map[string]any{"rest": figures},
		func(w io.Writer) error { return bench.WriteRest(w, figures) })
}
