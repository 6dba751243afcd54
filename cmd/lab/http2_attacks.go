package main

import (
	"context"
	"io"
	"strings"
	"time"

	"sluice/cmd/lab/bench"
)

// cmdHTTP2Attacks measures what attacks on HTTP/2 cost here, and at nginx and HAProxy.
func cmdHTTP2Attacks(ctx context.Context, args []string) error {
	h := bench.HTTP2Attacks{Say: say, Idle: 3000, Patience: 2 * time.Second}
	t := newTrial("http2-attacks", "one round of 300 ms: whether it works, not what it costs")
	t.rounds(&h.Rounds, &h.For, 5, 3*time.Second,
		"of an attack; for a third of it the server is watched without one first")
	t.some(&h.Servers, "servers", bench.AttackServers, bench.AttackServers, "whom to attack")
	t.some(&h.Attacks, "attacks", bench.AttackNames(), append(bench.AttackNames(),
		bench.MemoryAttackNames()...),
		"in which ways; on memory as well: "+strings.Join(bench.MemoryAttackNames(), ", "))
	t.sluice(&h.Sluice)
	t.StringVar(&h.Before, "before", "",
		"`PATH` of another edge's executable, which is attacked as well; none: no other")
	if err := t.parse(args); err != nil {
		return err
	}
	if t.short {
		h.Rounds, h.For, h.Idle = 1, 300*time.Millisecond, 100
		// So that a machine that stands still for seconds fails no request
		h.Patience = 20 * time.Second
	}
	h.Self = t.self
	versions, err := bench.Versions(ctx, h.Servers)
	if err != nil {
		return err
	}
	figures, memory, err := h.Run(ctx)
	if err != nil {
		return err
	}
	return t.report(bench.AttacksJSON{Versions: versions, Attacks: figures, Connections: memory},
		func(w io.Writer) error { return bench.WriteAttacks(w, figures, memory, versions) })
}
