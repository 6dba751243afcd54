package main

import (
	"context"

	"github.com/spf13/pflag"

	"sluice/pop"
)

func checkNames() []string { return []string{"quiet", "shared"} }

func (f *labFlags) runCheck(ctx context.Context, rule pop.Rule, send *sendFlags, flags *pflag.FlagSet) error {
	return usagef("--check %s: want quiet or shared", f.check)
}
