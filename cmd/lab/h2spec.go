package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdH2Spec holds servers to what HTTP/2 demands.
func cmdH2Spec(ctx context.Context, args []string) error {
	var h bench.HTTP2Attacks
	var path string
	flags := pflag.NewFlagSet("h2spec", pflag.ContinueOnError)
	flags.StringSliceVar(&h.Servers, "servers", []string{"sluice"}, "of whom: sluice, nginx, haproxy")
	flags.StringVar(&h.Sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&path, "h2spec", "", "`PATH` of h2spec; none: h2spec beside this one, which make h2spec builds")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := cli.SomeOf("--servers", h.Servers, bench.AttackServers); err != nil {
		return err
	}
	var err error
	if h.Self, err = os.Executable(); err != nil {
		return err
	}
	if err := errors.Join(cli.Beside(&h.Sluice, "sluice"), cli.Beside(&path, "h2spec")); err != nil {
		return err
	}
	h.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	all, err := h.H2Spec(ctx, path)
	if err != nil {
		return err
	}
	for _, r := range all {
		fmt.Printf("%s: %d cases, %d passed; after %d of them it answered another client\n", r.Server, r.Cases, r.Cases-len(r.Failed), r.Cases-len(r.Mute))
		for _, name := range r.Failed {
			fmt.Printf("  failed: %s\n", name)
		}
		for _, name := range r.Mute {
			fmt.Printf("  no answer after %s\n", name)
		}
		if r.Server == "sluice" && len(r.Failed)+len(r.Mute) > 0 {
			err = errors.New("h2spec: the edge does not pass every case")
		}
	}
	return err
}
