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

func checkNames() []string { return []string{"quiet", "shared"} }

// runCheck starts the lab and checks one promise.
func (f *labFlags) runCheck(ctx context.Context, rule pop.Rule, send *sendFlags) error {
	if !slices.Contains(checkNames(), f.check) {
		return usagef("--check %s: want %s", f.check, strings.Join(checkNames(), " or "))
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
	if _, err := c.WriteTo(os.Stdout); err != nil {
		return err
	}
	if !c.Kept {
		return fmt.Errorf("check %s: the promise was not kept", c.Name)
	}
	return site.Crashed()
}
