package main

import (
	"time"

	"sluice/loadgen/trace"
	"sluice/pop"
)

// reach tells which edges the sources of a trace meet at a time, as a set of bits: those of their PoP. Edges is how many each PoP has;
// they are numbered through, those of the first PoP first.
func reach(t *trace.Trace, affinity *pop.Affinity, edges []int) func(source int32, at time.Duration) uint64 {
	sets, first := make([]uint64, len(edges)), 0
	for i, n := range edges {
		sets[i] = (1<<n - 1) << first
		first += n
	}
	return func(source int32, at time.Duration) uint64 { return sets[affinity.PoP(t.Sources[source].Addr, at)] }
}

// parseFlaps reads changes of routes as --flap gives them.
func parseFlaps(flaps []string, pops int) ([]pop.Route, error) {
	var routes []pop.Route
	for _, text := range flaps {
		r, err := pop.ParseRoute(text)
		if err != nil {
			return nil, usagef("--flap: %v", err)
		}
		routes = append(routes, r)
	}
	if _, err := pop.NewAffinity(pops, routes); err != nil {
		return nil, usagef("--flap: %v", err)
	}
	return routes, nil
}

// flapLines is how reports show them.
func flapLines(flaps []string) (lines []string) {
	for _, f := range flaps {
		lines = append(lines, "route changes: "+f)
	}
	return lines
}
