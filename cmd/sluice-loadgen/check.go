package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/loadgen"
	"sluice/pop"
)

func checkNames() []string { return []string{"quiet", "shared", "upgrades", "restarts"} }

// runCheck starts the lab and checks one promise.
func (f *labFlags) runCheck(ctx context.Context, rule pop.Rule, send *sendFlags, rate float64) error {
	if !slices.Contains(checkNames(), f.check) {
		return usagef("--check %s: want %s", f.check, strings.Join(checkNames(), " or "))
	}
	if f.check == "upgrades" || f.check == "restarts" {
		return f.checkRestarts(ctx, rate)
	}
	lab, err := f.lab(rule, loadgen.Deployed, send.carrier)
	if err != nil {
		return err
	}
	site, err := lab.Start(ctx)
	if err != nil {
		return err
	}
	defer site.Stop()
	var c *loadgen.Check
	switch f.check {
	case "quiet":
		c, err = site.CheckQuiet(ctx, 5*time.Second)
	case "shared":
		c, err = site.CheckShared(ctx, 500*time.Millisecond)
	}
	if err != nil {
		return err
	}
	if err := told(c); err != nil {
		return err
	}
	return site.Crashed()
}

// checkRestarts restarts edges of its own under load.
func (f *labFlags) checkRestarts(ctx context.Context, rate float64) error {
	if rate == 0 {
		rate = 2000
	}
	if rate < 100 || rate > 100_000 || f.times < 1 {
		return usagef("--check %s: --rate %v, --times %d: want 100 to 100,000 requests a second and at least one restart", f.check, rate, f.times)
	}
	r := loadgen.Restarts{Sluice: f.sluice, Times: f.times, Rate: int(rate), Log: logLine}
	run := r.Upgrades
	if f.check == "restarts" {
		run = r.Rolling
	}
	c, err := run(ctx)
	if err != nil {
		return err
	}
	return told(c)
}

// told prints a check; its error says that it was not kept.
func told(c *loadgen.Check) error {
	if _, err := c.WriteTo(os.Stdout); err != nil {
		return err
	}
	if !c.Kept {
		return fmt.Errorf("check %s: the promise was not kept", c.Name)
	}
	return nil
}

func logLine(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
