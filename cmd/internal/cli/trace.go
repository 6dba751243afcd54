package cli

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// Trace says which requests a subcommand works on.
type Trace struct {
	Files    []string
	from, to string
	Fold     bool
	Skip     bool
	Format   string
	Fields   map[string]string
	Trust    []string // proxies, where a log names them
	Agents   bool     // read how clients call themselves; no flag
	Workload string
	Seed     uint64
	Duration time.Duration
	Rate     float64
}

// AddTrace registers the flags that choose a trace.
func AddTrace(flags *pflag.FlagSet) *Trace {
	f := new(Trace)
	flags.StringArrayVar(&f.Files, "trace", nil,
		"`FILE` to replay: an access log, .jsonl or .csv, or .gz of one; repeatable, merged")
	flags.StringVar(&f.from, "from", "",
		"only requests from this `TIME` on (RFC 3339, or 2017-05-04T14Z; 12:00 where the log has one day, UTC, or with --fold)")
	flags.StringVar(&f.to, "to", "", "only requests before this `TIME`")
	flags.BoolVar(&f.Fold, "fold", false,
		"lay all days of the trace onto one (UTC); a source is then file, day and address")
	flags.BoolVar(&f.Skip, "skip", false,
		"read a log although more than 1 % of its lines are no requests")
	flags.StringVar(&f.Format, "format", "",
		"`FORMAT` of the trace's lines, where its first lines do not show it: "+trace.FormatNames())
	flags.StringToStringVar(&f.Fields, "fields", nil,
		"`FIELD=NAME,...`: where lines in JSON have what, as time=NAME,client=NAME,path=NAME,method=NAME,status=NAME,\nor host, request and agent; dots for objects in objects")
	flags.StringSliceVar(&f.Trust, "trust", nil,
		"`PREFIX,...` of proxies: of a list of addresses in a log the last other one is the client; without, the first")
	flags.StringVar(&f.Workload, "workload", "",
		"traffic by `NAME` instead of a trace, or over it:\n"+workloadHelp())
	flags.Uint64Var(&f.Seed, "seed", 1,
		"of the workload, and of where in its second a one-second stamp lies")
	flags.DurationVar(&f.Duration, "duration", 0, "of the workload; 0: what suits it")
	flags.Float64Var(&f.Rate, "rate", 0,
		"requests per second of the workload, in all; 0: what suits it")
	return f
}

func workloadHelp() string {
	var lines []string
	for _, w := range workload.List() {
		lines = append(lines, fmt.Sprintf("%-12s %s", w.Name, w.About))
	}
	return strings.Join(lines, "\n")
}

// Load reads or makes the trace. Limit and window are what a workload plays against, edges how many
// it may meet. With both a trace and a workload, the workload plays over the trace.
func (f *Trace) Load(limit uint32, window time.Duration, edges int) (*trace.Trace, error) {
	if len(f.Files) == 0 && f.Workload == "" {
		return nil, Usagef("no traffic: give --trace FILE or --workload NAME")
	}
	if f.Duration < 0 || f.Rate < 0 {
		return nil, Usagef("--duration %v, --rate %v: must not be negative", f.Duration, f.Rate)
	}
	var traces []*trace.Trace
	if len(f.Files) > 0 {
		o := trace.ReadOptions{Fold: f.Fold, Seed: f.Seed, Agents: f.Agents, Skip: f.Skip,
			Format: f.Format, Fields: f.Fields}
		var err error
		if o.Trust, err = prefixes(f.Trust); err != nil {
			return nil, err
		}
		if o.From, o.FoldFrom, err = f.instant("--from", f.from); err != nil {
			return nil, err
		}
		if o.To, o.FoldTo, err = f.instant("--to", f.to); err != nil {
			return nil, err
		}
		if o.OneDay = !f.Fold && (isClock(f.from) || isClock(f.to)); o.OneDay &&
			(!o.From.IsZero() || !o.To.IsZero()) {
			return nil, Usagef("--from %s, --to %s: give both a date, or neither", f.from, f.to)
		}
		t, err := trace.Read(o, f.Files...)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	} else if f.from != "" || f.to != "" || f.Fold || f.Skip || len(f.Trust)+len(f.Fields) > 0 ||
		f.Format != "" {
		return nil,
			Usagef("--from, --to, --fold, --skip, --format, --fields and --trust are for a trace, and there is none")
	}
	if f.Workload != "" {
		t, err := workload.Generate(f.Workload, workload.Options{
			Seed: f.Seed, Limit: limit, Window: window, Duration: f.Duration, Rate: f.Rate,
			Edges: edges,
		})
		if err != nil {
			return nil, UsageError{err}
		}
		f.differs(os.Stderr, t)
		traces = append(traces, t)
	}
	if len(traces) == 1 {
		return traces[0], nil
	}
	return trace.Merge(traces...), nil
}

// prefixes reads --trust.
func prefixes(texts []string) (list []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil,
					Usagef("--trust %s: want an address such as 10.1.2.3 or a prefix such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		list = append(list, p)
	}
	return list, nil
}

// differs says so where a workload sends less than --rate asks for, or more.
func (f *Trace) differs(w io.Writer, t *trace.Trace) {
	if len(t.Requests) == 0 || f.Rate == 0 {
		return
	}
	sent := float64(len(t.Requests)) / max(t.Requests[len(t.Requests)-1].At, time.Second).Seconds()
	switch {
	case sent > 1.1*f.Rate:
		fmt.Fprintf(w,
			"--rate %g: %s sends %.3g requests a second on average: part of what it sends follows from the limit or comes in bursts, whatever the rate\n", f.Rate, f.Workload, sent)
	case sent < 0.9*f.Rate:
		fmt.Fprintf(w,
			"--rate %g: %s sends %.3g requests a second on average: its good sources stay within their limit, or it does not send all the time\n", f.Rate, f.Workload, sent)
	}
}

// instant reads an instant, or a time of day: of folded days, or of the only one.
func (f *Trace) instant(flag, s string) (time.Time, time.Duration, error) {
	if s == "" {
		return time.Time{}, 0, nil
	}
	if d, ok := clock(s); ok {
		return time.Time{}, d, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00",
		"2006-01-02T15Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, 0, nil
		}
	}
	return time.Time{}, 0,
		Usagef("%s %s: want an instant such as 2017-05-04T14:00:00Z, or a time of day such as 14:00", flag, s)
}

func isClock(s string) bool {
	_, is := clock(s)
	return is
}

// clock reads a time of day.
func clock(s string) (time.Duration, bool) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, strings.TrimSuffix(s, "Z")); err == nil {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
				time.Duration(t.Second())*time.Second, true
		}
	}
	return 0, false
}
