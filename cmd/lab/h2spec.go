package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/cmd/lab/bench"
)

// cmdH2Spec holds servers to what HTTP/2 demands.
func cmdH2Spec(ctx context.Context, args []string) error {
	h := bench.HTTP2Attacks{Say: say, Patience: 2 * time.Second}
	var path string
	t := newTrial("h2spec", "")
	t.some(&h.Servers, "servers", []string{"sluice"}, bench.AttackServers,
		"of whom: sluice, nginx, haproxy")
	t.sluice(&h.Sluice)
	t.program(&path, "h2spec", "h2spec", "h2spec, which make h2spec builds")
	if err := t.parse(args); err != nil {
		return err
	}
	h.Self = t.self
	all, err := h.H2Spec(ctx, path)
	if err != nil {
		return err
	}
	for _, r := range all {
		fmt.Printf("%s: %d cases, %d passed; after %d of them it answered another client\n",
			r.Server, r.Cases, r.Cases-len(r.Failed), r.Cases-len(r.Mute))
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
