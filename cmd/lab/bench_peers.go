package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
)

// cmdBenchPeers measures what a request costs here and at nginx, HAProxy, Caddy and a baseline proxy.
func cmdBenchPeers(ctx context.Context, args []string) error {
	var (
		p                      bench.Peers
		jsonFile, baseline, to string
		short, refuse          bool
	)
	flags := pflag.NewFlagSet("bench-peers", pflag.ContinueOnError)
	flags.IntVar(&p.Rounds, "rounds", 5, "how often each edge is measured in each case")
	flags.DurationVar(&p.For, "time", 2*time.Second, "of a measurement")
	flags.IntSliceVar(&p.Conns, "connections", []int{64, 512}, "of the load")
	flags.IntSliceVar(&p.Sources, "sources", []int{1, 10_000}, "of the requests; more than one are named in X-Forwarded-For")
	flags.StringSliceVar(&p.Edges, "edges", bench.PeerNames, "what to measure; memcached: with a tier, whose processor time is included; 444, reject, shed: they close new connections of refused sources in place of an answer")
	flags.StringSliceVar(&p.Works, "work", bench.PeerWorks, "what they do; new: a connection for each request, over TLS with a full handshake; resumed: the same, with the session of another; h2: over HTTP/2, with one request at once on a connection, or 16")
	flags.BoolVar(&short, "short", false, "one round of one second with 64 connections and one source: whether it works, not how fast")
	flags.StringVar(&p.Sluice, "sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&p.Before, "before", "", "`PATH` of another executable of the edge, such as one before a change: measured as \"sluice before\" beside sluice, round after round")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE`")
	flags.StringVar(&baseline, "bare", "", "serve as the bare proxy at `ADDR`")
	flags.StringVar(&to, "origin", "", "of the bare proxy, `HOST:PORT`")
	flags.BoolVar(&refuse, "refuse", false, "the bare proxy refuses everything")
	for _, name := range []string{"bare", "origin", "refuse"} {
		_ = flags.MarkHidden(name) // how this command calls itself
	}
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if baseline != "" {
		return serveBaselineProxy(ctx, baseline, to, refuse)
	}
	if p.Before != "" && !flags.Changed("edges") {
		p.Edges = []string{"sluice"}
	}
	if err := errors.Join(cli.SomeOf("--edges", p.Edges, bench.PeerNames), cli.SomeOf("--work", p.Works, bench.PeerWorks)); err != nil {
		return err
	}
	if p.Before != "" {
		p.Edges = append([]string{bench.Before}, p.Edges...)
	}
	if short {
		p.Rounds, p.For, p.Conns, p.Sources = 1, time.Second, []int{64}, []int{1}
	}
	var err error
	if p.Self, err = os.Executable(); err != nil {
		return err
	}
	if err := cli.Beside(&p.Sluice, "sluice"); err != nil {
		return err
	}
	p.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	versions, err := p.Versions(ctx)
	if err != nil {
		return err
	}
	figures, err := p.Run(ctx)
	if err != nil {
		return err
	}
	if err := cli.ToJSON(jsonFile, bench.PeersJSON{Versions: versions, Peers: figures}); err != nil {
		return err
	}
	return bench.WritePeers(os.Stdout, figures, versions)
}

func serveBaselineProxy(ctx context.Context, at, origin string, refuse bool) error {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	if err := bench.ServeBaselineProxy(ln, origin, refuse); ctx.Err() == nil {
		return err
	}
	return nil
}
