package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/lab/check"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
)

// cmdLab starts a lab and checks a promise.
func cmdLab(ctx context.Context, args []string) error {
	t := newTrial("lab", "a small form, of seconds")
	promise := t.String("check", "", "the promise: shedding")
	var sluice string
	t.choices = append(t.choices, func() error {
		if *promise != "shedding" {
			return cli.Usagef("--check %q: want shedding; without one, sluice-loadgen lab replays a trace", *promise)
		}
		return nil
	})
	t.sluice(&sluice)
	if err := t.parse(args); err != nil {
		return err
	}
	return printCheck(check.Shedding(ctx, lab.Lab{
		PoPs: 1, Edges: 2, Memcached: 1, Sluice: sluice, Origin: []string{t.self,
			"origin"}, Secret: live.LabSecret, Carrier: replay.Loopback, Log: cli.Logf,
		Rule: lab.RuleConfig{Limit: 1_000_000_000, Window: time.Minute,
			MitigationTimeout: time.Minute, OnStoreFailure: "local", Mode: judge.Deployed},
	}, check.SheddingScales(t.short)))
}

// printCheck prints what was seen, or returns why there is nothing; its error says that a promise
// was not kept.
func printCheck(c *check.Result, err error) error {
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(os.Stdout); err != nil {
		return err
	}
	if !c.Kept {
		return fmt.Errorf("check %s: the promise was not kept", c.Name)
	}
	return nil
}
