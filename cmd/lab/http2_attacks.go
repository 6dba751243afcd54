package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdHTTP2Attacks measures what attacks on HTTP/2 cost here, and at nginx and HAProxy.
func cmdHTTP2Attacks(ctx context.Context, args []string) error {
	var (
		h        bench.HTTP2Attacks
		jsonFile string
		short    bool
	)
	flags := pflag.NewFlagSet("http2-attacks", pflag.ContinueOnError)
	flags.IntVar(&h.Rounds, "rounds", 5, "how often each server is attacked in each way")
	flags.DurationVar(&h.For, "time", 3*time.Second, "of an attack; for a third of it the server is watched without one first")
	flags.StringSliceVar(&h.Servers, "servers", bench.AttackServers, "whom to attack")
	flags.StringSliceVar(&h.Attacks, "attacks", bench.AttackNames(), "in which ways; on memory as well: "+strings.Join(bench.MemoryAttackNames(), ", "))
	flags.BoolVar(&short, "short", false, "one round of 300 ms: whether it works, not what it costs")
	flags.StringVar(&h.Sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&h.Before, "before", "", "`PATH` of another edge's executable, which is attacked as well; none: no other")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE`")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := errors.Join(cli.SomeOf("--servers", h.Servers, bench.AttackServers), cli.SomeOf("--attacks", h.Attacks, append(bench.AttackNames(), bench.MemoryAttackNames()...))); err != nil {
		return err
	}
	if h.Rounds < 1 || h.Rounds > 100 || h.For < 100*time.Millisecond || h.For > time.Minute {
		return cli.Usagef("--rounds %d, --time %v: want 1 to 100 rounds of 100ms to 1m", h.Rounds, h.For)
	}
	if short {
		h.Rounds, h.For, h.Idle = 1, 300*time.Millisecond, 100
		h.Patience = 20 * time.Second // so that a machine that stands still for seconds fails no request
	}
	var err error
	if h.Self, err = os.Executable(); err != nil {
		return err
	}
	if err := cli.Beside(&h.Sluice, "sluice"); err != nil {
		return err
	}
	h.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	versions, err := bench.Peers{Edges: h.Servers}.Versions(ctx)
	if err != nil {
		return err
	}
	figures, memory, err := h.Run(ctx)
	if err != nil {
		return err
	}
	if err := cli.ToJSON(jsonFile, bench.AttacksJSON{Versions: versions, Attacks: figures, Connections: memory}); err != nil {
		return err
	}
	return bench.WriteAttacks(os.Stdout, figures, memory, versions)
}
