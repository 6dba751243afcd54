// Package residential is the subcommand that holds limits by what many clients share against a
// scraper from many homes.
package residential

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/loadgen/judge"
	"sluice/loadgen/residential"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
	"sluice/mitigation"
)

// command is what its flags say.
type command struct {
	workload  workload.ResidentialOptions
	size      virtual.Size
	window    time.Duration
	timeout   time.Duration
	passFor   time.Duration
	passLimit uint
	limits    map[string]int
	scrapers  []string
	keys      []string
	json      string
}

func newCommand() *command { return &command{workload: workload.DefaultResidential()} }

// Command runs every rule beside every scraper and prints a table.
func Command(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("residential", pflag.ContinueOnError)
	c := newCommand()
	c.addFlags(flags)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	report, err := c.run(ctx)
	if err != nil {
		return err
	}
	if err := report.WriteText(os.Stdout); err != nil {
		return err
	}
	return cli.ToFile(c.json, report.WriteJSON)
}

func (c *command) addFlags(flags *pflag.FlagSet) {
	o := &c.workload
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "of who comes when")
	flags.DurationVar(&o.Duration, "duration", o.Duration, "of the whole")
	flags.Float64Var(&o.Visitors, "visitors", o.Visitors, "who come in an hour")
	flags.IntVar(&o.MostVisits, "visits", o.MostVisits,
		"requests of a visitor at most, each number as likely")
	flags.DurationVar(&o.Gap, "gap", o.Gap, "between two requests of a visitor, on average")
	flags.Float64Var(&o.Heavy, "heavy", o.Heavy, "share of visitors' requests that are for heavy pages")
	flags.Float64Var(&o.Script, "javascript", o.Script,
		"share of visitors with JavaScript and cookies")
	flags.IntVar(&o.Networks, "networks", o.Networks, "of visitors")
	flags.Float64Var(&o.NetworkSkew, "network-skew", o.NetworkSkew,
		"exponent of Zipf's law for visitors' networks")
	flags.IntVar(&o.JA4s, "ja4s", o.JA4s, "TLS libraries of visitors")
	flags.Float64Var(&o.JA4Skew, "ja4-skew", o.JA4Skew, "exponent of Zipf's law for these")
	flags.DurationVar(&o.ScraperFrom, "scraper-from", o.ScraperFrom, "when the scraper begins")
	flags.IntVar(&o.ScraperNetworks, "scraper-networks", o.ScraperNetworks,
		"of the scraper, those of visitors among them")
	flags.Float64Var(&o.Shared, "scraper-shared", o.Shared,
		"share of the scraper's addresses that are in networks of visitors")
	flags.Float64Var(&o.Solvers, "solvers", o.Solvers,
		"share of the scraper's addresses that run the script of a challenge")
	flags.StringSliceVar(&c.scrapers, "scraper", []string{"own:20", "common:20", "common:2"},
		"`TLS:RATE` of a scraper: a TLS library of its own, or that of the commonest browser, and requests a second; several for a table each")
	flags.StringToIntVar(&c.limits, "limit",
		map[string]int{"source": 60, "/24": 60, "network": 60, "path": 120, "ja4": 60},
		"`KEY=LIMIT,...` of a window: by source, /24, network, path and ja4")
	// As the help shows it: the library would in the order of a map, another each time
	flags.Lookup("limit").DefValue = "[source=60,/24=60,network=60,path=120,ja4=60]"
	flags.StringSliceVar(&c.keys, "key", nil, "judge only the rules by these keys; none: all")
	flags.DurationVar(&c.window, "window", time.Minute, "of every limit")
	flags.DurationVar(&c.timeout, "mitigation-timeout", 5*time.Minute,
		"how long a key that went over is refused, or challenged")
	flags.UintVar(&c.passLimit, "pass-limit", 30, "requests of a pass in a window")
	flags.DurationVar(&c.passFor, "pass-for", time.Hour, "how long a pass is good")
	flags.IntVar(&c.size.Edges, "edges", 1, "that count together")
	flags.IntVar(&c.size.Nodes, "memcached", 0, "nodes; 0: one for every two edges")
	flags.DurationVar(&c.size.RTT, "rtt", time.Millisecond, "`TIME` from an edge to a node and back")
	flags.StringVar(&c.json, "json", "", "write the report to this `FILE` as JSON, too")
}

func (c *command) run(ctx context.Context) (*residential.Report, error) {
	size := cli.PoP{Size: c.size, PerConnection: 1}
	if err := size.Check(); err != nil {
		return nil, err
	}
	c.size = size.Size
	scrapers, err := c.parseScrapers()
	if err != nil {
		return nil, err
	}
	limits := make(map[residential.Key]uint32)
	for key, n := range c.limits {
		if n < 1 {
			return nil, cli.Usagef("--limit %s=%d: want at least 1", key, n)
		}
		limits[residential.Key(key)] = uint32(n)
	}
	for _, key := range c.keys {
		if limits[residential.Key(key)] == 0 {
			return nil, cli.Usagef("--key %s: want some of source, /24, network, path and ja4", key)
		}
	}
	rows := residential.Rows(limits)
	for _, row := range rows {
		if row.Limit == 0 {
			return nil, cli.Usagef("--limit: none by %s", row.Key)
		}
	}
	report := &residential.Report{Workload: c.workload, Edges: c.size.Edges,
		Window: c.window.Seconds(), MitigationTimeout: c.timeout.Seconds(),
		PassLimit: uint32(c.passLimit)}
	for _, o := range scrapers {
		w, err := workload.NewResidential(o)
		if err != nil {
			return nil, cli.Usagef("%v", err)
		}
		for _, row := range rows {
			if len(c.keys) > 0 && !slices.Contains(c.keys, string(row.Key)) {
				continue
			}
			figures, err := c.judge(ctx, w, row)
			if err != nil {
				return nil, err
			}
			report.Cells = append(report.Cells, residential.Cell{Row: row, TLS: o.ScraperTLS,
				Rate: o.ScraperRate, Figures: figures})
		}
	}
	return report, nil
}

// parseScrapers reads --scraper.
func (c *command) parseScrapers() (all []workload.ResidentialOptions, err error) {
	for _, text := range c.scrapers {
		o := c.workload
		tls, rate, _ := strings.Cut(text, ":")
		o.ScraperTLS = workload.TLS(tls)
		if o.ScraperRate, err = strconv.ParseFloat(rate, 64); err != nil {
			return nil, cli.Usagef("--scraper %s: want own or common, a colon, and requests a second",
				text)
		}
		all = append(all, o)
	}
	return all, nil
}

// judge has the limiter decide under one rule.
func (c *command) judge(ctx context.Context, w *workload.Residential,
	row residential.Row) (f residential.Figures, err error) {
	counted, err := residential.CountBy(w, row)
	if err != nil {
		return f, err
	}
	rule, err := c.limiter(counted.Trace, row.Limit)
	if err != nil {
		return f, err
	}
	passes, err := c.limiter(counted.Passes(), uint32(c.passLimit))
	if err != nil {
		return f, err
	}
	return counted.Run(ctx, residential.Options{Edges: c.size.Edges, Window: c.window,
		Timeout: c.timeout, PassFor: c.passFor}, rule, passes)
}

// limiter is the limiter over as many edges as are asked for.
func (c *command) limiter(t *trace.Trace, limit uint32) (l judge.Limiter, err error) {
	flags := &cli.RuleFlags{Limits: []uint{uint(limit)}, Window: c.window, Timeout: c.timeout,
		SubWindows: 12, Estimates: []string{"nearest"}, Mode: judge.Deployed.String()}
	mode, rules, err := flags.Rules()
	if err != nil {
		return l, err
	}
	return newLimiter(t, mode, rules[0], &c.size)
}

func newLimiter(t *trace.Trace, mode judge.Mode, rule mitigation.Rule,
	size *virtual.Size) (judge.Limiter, error) {
	if size.Nodes == 0 {
		return virtual.NewOracle(t, mode, rule).Limiter(), nil
	}
	site, err := virtual.NewSite(t, mode, rule, size, true)
	if err != nil {
		return judge.Limiter{}, err
	}
	return site.Limiter(), nil
}
