package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/loadgen/trace"
)

// cmdGenerate writes a trace from a named workload and a seed, or rewrites a trace in another
// format.
func cmdGenerate(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("generate", pflag.ContinueOnError)
	traffic := cli.AddTrace(flags)
	limit := flags.Uint32("limit", 100,
		"requests per window of the rule that the workload plays against")
	window := flags.Duration("window", time.Minute, "of that rule")
	edges := flags.Int("edges", 8, "how many edges the workload may meet")
	speed := flags.Float64("speed", 1, "write the trace so many times as fast")
	out := flags.StringP("out", "o", "",
		"`FILE` to write: .jsonl, .csv or .log, and .gz after any of them; none: .jsonl to standard output")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	switch {
	case *limit == 0:
		return cli.Usagef("--limit 0: want at least 1")
	case *window <= 0:
		return cli.Usagef("--window %v: must be positive", *window)
	case *edges < 1:
		return cli.Usagef("--edges %d: want at least 1", *edges)
	case !(*speed > 0):
		return cli.Usagef("--speed %v: must be positive", *speed)
	}
	format, err := formatOf(*out)
	if err != nil {
		return err
	}
	t, err := traffic.Load(*limit, *window, *edges)
	if err != nil {
		return err
	}
	t = t.Speed(*speed)
	if *out == "" {
		return trace.Write(os.Stdout, t, format)
	}
	err = cli.ToFile(*out, func(w io.Writer) error {
		if !strings.HasSuffix(strings.ToLower(*out), ".gz") {
			return trace.Write(w, t, format)
		}
		b := bufio.NewWriter(w)
		z := gzip.NewWriter(b)
		if err := trace.Write(z, t, format); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		return b.Flush()
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d requests of %d sources over %v\n", *out, len(t.Requests),
		len(t.Sources), t.Duration().Round(time.Second/10))
	return nil
}

// formatOf is the format for a file's ending.
func formatOf(name string) (trace.Format, error) {
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".gz")
	switch ext := filepath.Ext(base); {
	case name == "", ext == ".jsonl", ext == ".ndjson":
		return trace.JSONL, nil
	case ext == ".csv":
		return trace.CSV, nil
	case ext == ".log":
		return trace.CLF, nil
	}
	return 0,
		cli.Usagef("--out %s: want a name that ends in .jsonl, .csv or .log, and .gz after it to compress", name)
}
