// Sluice-loadgen makes traffic for rate limiters and measures how well they decide: it replays
// access logs and seeded workloads against running edges, starts whole points of presence on one
// machine, and judges every answer against an exact log.
package main

import (
	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/sluice-loadgen/internal/accuracy"
	"sluice/cmd/sluice-loadgen/internal/residential"
	"sluice/cmd/sluice-loadgen/internal/whatif"
)

var program = cli.Program{Name: "sluice-loadgen", Commands: []cli.Command{
	{Name: "replay", Does: "sends a trace to running edges, open loop", Run: cmdReplay},
	{Name: "lab",
		Does: "starts points of presence on this machine, replays, reports, stops all; ends with 1 where the balance or a promise is broken, with 3 where the machine was too busy to measure", Run: cmdLab},
	{Name: "generate", Does: "writes a trace from a named workload and a seed", Run: cmdGenerate},
	{Name: "origin", Does: "a small HTTP origin to test against", Run: live.Origin},
	{Name: "simulate",
		Does: "the same limiter in virtual time; it has no origin, so nothing is shed for one",
		Run:  cmdSimulate},
	{Name: "accuracy",
		Does: "everything by which accuracy is judged, and one summary; ends with 1 where a promise of docs/design/promises.md is broken", Run: accuracy.Command},
	{Name: "compare", Does: "every design on one stream", Run: cmdCompare},
	{Name: "residential",
		Does: "what limits by network, path and TLS library do to a scraper from many homes, and to visitors; in virtual time",
		Run:  residential.Command},
	{Name: "what-if", Does: "what rules would have done to a log", Run: whatif.Command},
}}

func main() { program.Main() }
