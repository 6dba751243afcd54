// Sluice-loadgen makes traffic for rate limiters and measures how well they decide: it replays access logs and seeded
// workloads against running edges, starts whole points of presence on one machine, and judges every answer against an
// exact log.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice-loadgen/internal/accuracy"
	"sluice/cmd/sluice-loadgen/internal/cli"
	"sluice/cmd/sluice-loadgen/internal/rehearse"
)

// command is one subcommand. Run gets the arguments behind its name and ends when ctx does.
type command struct {
	name string
	does string
	run  func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"replay", "sends a trace to running edges, open loop", cmdReplay},
		{"lab", "starts points of presence on this machine, replays, reports, stops all", cmdLab},
		{"generate", "writes a trace from a named workload and a seed", cmdGenerate},
		{"origin", "a small HTTP origin to test against", cmdOrigin},
		{"pace", "how many requests a second this load generator sends on one core, and how late", cmdPace},
		{"bench-peers", "what a request costs here, and at nginx and HAProxy", cmdBenchPeers},
		{"bench-rls", "what a call of Envoy's rate limit service costs here, and at envoyproxy/ratelimit", cmdBenchRLS},
		{"simulate", "the same limiter in virtual time; it has no origin, so nothing is shed for one (lab --check shedding)", cmdSimulate},
		{"accuracy", "everything by which accuracy is judged, and one summary", accuracy.Command},
		{"compare", "every design on one stream", cmdCompare},
		{"worst", "searches for what a source can make the tier do at worst, in virtual time", cmdWorst},
		{"what-if", "what rules would have done to a log", rehearse.Command},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it gives the exit code, 0, 1 for what went wrong, 2 for a command line that makes no
// sense.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, help())
		return 2
	}
	if args[0] == "help" && len(args) == 2 {
		args = []string{args[1], "--help"}
	}
	switch args[0] {
	case "help", "-h", "--help":
		fmt.Fprint(stderr, help())
		return 0
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:])
		var wrong cli.UsageError
		switch {
		case err == nil, errors.Is(err, pflag.ErrHelp):
			return 0
		case errors.As(err, &wrong):
			fmt.Fprintf(stderr, "sluice-loadgen %s: %v; see sluice-loadgen %s --help\n", c.name, err, c.name)
			return 2
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			fmt.Fprintf(stderr, "sluice-loadgen %s: interrupted; everything it started is stopped\n", c.name)
			return 1
		default:
			fmt.Fprintf(stderr, "sluice-loadgen %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "sluice-loadgen: no subcommand %q; see sluice-loadgen help\n", args[0])
	return 2
}

func help() string {
	var b strings.Builder
	b.WriteString("Usage: sluice-loadgen SUBCOMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.does)
	}
	b.WriteString("\nsluice-loadgen SUBCOMMAND --help lists its flags.\n")
	return b.String()
}
