package main

import (
	"context"
	"io"
	"time"

	"sluice/cmd/lab/bench"
)

// cmdBenchPeers measures what a request costs here and at nginx, HAProxy, Caddy and a baseline
// proxy.
func cmdBenchPeers(ctx context.Context, args []string) error {
	p := bench.Peers{Say: say}
	t := newTrial("bench-peers",
		"one round of one second with 64 connections and one source: whether it works, not how fast")
	t.rounds(&p.Rounds, &p.For, 5, 2*time.Second, "of a measurement")
	t.IntSliceVar(&p.Conns, "connections", []int{64, 512}, "of the load")
	t.IntSliceVar(&p.Sources, "sources", []int{1, 10_000},
		"of the requests; more than one are named in X-Forwarded-For")
	t.some(&p.Edges, "edges", bench.PeerNames, bench.PeerNames,
		"what to measure; memcached: with a tier, whose processor time is included; 444, reject, shed: they close new connections of refused sources in place of an answer")
	t.some(&p.Works, "work", bench.PeerWorks, bench.PeerWorks,
		"what they do; new: a connection for each request, over TLS with a full handshake; resumed: the same, with the session of another; h2: over HTTP/2, with one request at once on a connection, or 16; rest: none, and µs are of a second; seldom: 20 requests a second, likewise")
	t.sluice(&p.Sluice)
	t.StringVar(&p.Before, "before", "",
		"`PATH` of another executable of the edge, such as one before a change: measured as \"sluice before\" beside sluice, round after round")
	if err := t.parse(args); err != nil {
		return err
	}
	if p.Before != "" {
		if !t.Changed("edges") {
			p.Edges = []string{"sluice"}
		}
		p.Edges = append([]string{bench.Before}, p.Edges...)
	}
	if t.short {
		p.Rounds, p.For, p.Conns, p.Sources = 1, time.Second, []int{64}, []int{1}
	}
	p.Self = t.self
	versions, err := bench.Versions(ctx, p.Edges)
	if err != nil {
		return err
	}
	figures, err := p.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(bench.PeersJSON{Versions: versions, Peers: figures},
		func(w io.Writer) error { return bench.WritePeers(w, figures, versions) })
}
