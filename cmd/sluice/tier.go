package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter"
	"sluice/edge"
	"sluice/mitigation"
	"sluice/pop"
)

// shared is what this edge counts in, and what shares it with the PoP. Everything that differs between an edge that counts
// alone and one with a tier is decided in share.
type shared struct {
	table   *counter.Table
	bits    *mitigation.Table
	tier    edge.Tier
	metrics prometheus.Collector // nil: none beside the edge's own
	// sync works until ctx is done, then reports what is left and returns when all that it started has ended.
	sync func(ctx context.Context) error
}

func share(c *edge.Config, _ pop.Secret, _ *slog.Logger) (*shared, error) {
	if len(c.PoP.Memcached) > 0 {
		return nil, errors.New("memcached is not supported yet: leave --memcached and pop.memcached out")
	}
	s := &shared{table: counter.New(counter.Options{Counters: c.Counters}), bits: mitigation.New(0, nil)}
	s.sync = s.alone
	return s, nil
}

// alone keeps the tables of an edge without a tier tidy.
func (s *shared) alone(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s.table.Sweep(now, true)
		}
	}
}
