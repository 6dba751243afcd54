package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/loadgen/report"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// traceFlags say which requests a subcommand works on.
type traceFlags struct {
	files    []string
	from, to string
	fold     bool
	agents   bool // read how clients call themselves; no flag
	workload string
	seed     uint64
	duration time.Duration
	rate     float64
}

// addTrace registers the flags that choose a trace.
func addTrace(flags *pflag.FlagSet) *traceFlags {
	f := new(traceFlags)
	flags.StringArrayVar(&f.files, "trace", nil, "`FILE` to replay: an access log, .jsonl or .csv, or .gz of one; repeatable, merged")
	flags.StringVar(&f.from, "from", "", "only requests from this `TIME` on (RFC 3339, or 2017-05-04T14Z; 12:00 where the log has one day, UTC, or with --fold)")
	flags.StringVar(&f.to, "to", "", "only requests before this `TIME`")
	flags.BoolVar(&f.fold, "fold", false, "lay all days of the trace onto one (UTC); a source is then file, day and address")
	addWorkload(flags, f)
	return f
}

func addWorkload(flags *pflag.FlagSet, f *traceFlags) {
	flags.StringVar(&f.workload, "workload", "", "traffic by `NAME` instead of a trace, or over it:\n"+workloadHelp())
	flags.Uint64Var(&f.seed, "seed", 1, "of the workload, and of where in its second a one-second stamp lies")
	flags.DurationVar(&f.duration, "duration", 0, "of the workload; 0: what suits it")
	flags.Float64Var(&f.rate, "rate", 0, "requests per second of the workload, in all; 0: what suits it")
}

func workloadHelp() string {
	var lines []string
	for _, w := range workload.List() {
		lines = append(lines, fmt.Sprintf("%-12s %s", w.Name, w.About))
	}
	return strings.Join(lines, "\n")
}

// load reads or makes the trace. Limit and window are what a workload plays against, edges how many it may meet. With both
// a trace and a workload, the workload plays over the trace.
func (f *traceFlags) load(limit uint32, window time.Duration, edges int) (*trace.Trace, error) {
	if len(f.files) == 0 && f.workload == "" {
		return nil, usagef("no traffic: give --trace FILE or --workload NAME")
	}
	if f.duration < 0 || f.rate < 0 {
		return nil, usagef("--duration %v, --rate %v: must not be negative", f.duration, f.rate)
	}
	var traces []*trace.Trace
	if len(f.files) > 0 {
		o := trace.ReadOptions{Fold: f.fold, Seed: f.seed, Agents: f.agents}
		var err error
		if o.From, o.FoldFrom, err = f.instant("--from", f.from); err != nil {
			return nil, err
		}
		if o.To, o.FoldTo, err = f.instant("--to", f.to); err != nil {
			return nil, err
		}
		if o.OneDay = !f.fold && (isClock(f.from) || isClock(f.to)); o.OneDay && (!o.From.IsZero() || !o.To.IsZero()) {
			return nil, usagef("--from %s, --to %s: give both a date, or neither", f.from, f.to)
		}
		t, err := trace.Read(o, f.files...)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	} else if f.from != "" || f.to != "" || f.fold {
		return nil, usagef("--from, --to and --fold choose from a trace, and there is none")
	}
	if f.workload != "" {
		t, err := workload.Generate(f.workload, workload.Options{
			Seed: f.seed, Limit: limit, Window: window, Duration: f.duration, Rate: f.rate, Edges: edges,
		})
		if err != nil {
			return nil, usageError{err}
		}
		traces = append(traces, t)
	}
	if len(traces) == 1 {
		return traces[0], nil
	}
	return trace.Merge(traces...), nil
}

// instant reads an instant, or a time of day: of folded days, or of the only one.
func (f *traceFlags) instant(flag, s string) (time.Time, time.Duration, error) {
	if s == "" {
		return time.Time{}, 0, nil
	}
	if d, ok := clock(s); ok {
		return time.Time{}, d, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, 0, nil
		}
	}
	return time.Time{}, 0, usagef("%s %s: want an instant such as 2017-05-04T14:00:00Z, or a time of day such as 14:00", flag, s)
}

func isClock(s string) bool {
	_, is := clock(s)
	return is
}

// clock reads a time of day.
func clock(s string) (time.Duration, bool) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, strings.TrimSuffix(s, "Z")); err == nil {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second, true
		}
	}
	return 0, false
}

// outputFlags say where a report goes, beside the table on standard output.
type outputFlags struct {
	json, html string
	details    bool
}

func addOutput(flags *pflag.FlagSet) *outputFlags {
	f := new(outputFlags)
	flags.StringVar(&f.json, "json", "", "write the report to this `FILE` as JSON, too")
	flags.StringVar(&f.html, "html", "", "write the report to this `FILE` as one HTML page, too")
	return f
}

// addDetails registers the flag of a run whose report has some.
func (f *outputFlags) addDetails(flags *pflag.FlagSet) {
	flags.BoolVar(&f.details, "details", false, "show what client, edges, nodes and origin each counted, though it adds up")
}

// write writes reports to standard output and to the files asked for.
func (f *outputFlags) write(stdout io.Writer, reports ...*report.Report) error {
	for _, r := range reports {
		if f.details {
			r.Run.Details.Open = true
		}
	}
	if err := report.WriteText(stdout, reports...); err != nil {
		return err
	}
	if err := toFile(f.json, func(w io.Writer) error { return report.WriteJSON(w, reports...) }); err != nil {
		return err
	}
	return toFile(f.html, func(w io.Writer) error { return report.WriteHTML(w, reports...) })
}

// toFile writes a file, or nothing where no name is given.
func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}
