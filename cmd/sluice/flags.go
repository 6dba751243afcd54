package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/settings"
	"sluice/counter/algorithm"
	"sluice/edge/config"
	"sluice/edge/config/compose"
	"sluice/edge/operator"
	"sluice/edge/rules"
	"sluice/edge/upstream"
)

// flags are the command line's. They win over the configuration file, at the start and at every
// reload.
type flags struct {
	set *pflag.FlagSet

	config, listen, admin, pop string
	origins, memcached         []string
	limit                      int64
	window, timeout            time.Duration
	estimate                   string
	shadow, verdictHeader      bool
	logLevel, logFormat        string
	notice, grace              time.Duration

	files atomic.Pointer[compose.Files] // that load has read; nil: none
}

func newFlags() *flags {
	f := &flags{set: operator.NewFlagSet("sluice")}
	s := f.set
	s.StringVar(&f.config, "config", "", "configuration `FILE` (YAML); flags win over it")
	s.StringVar(&f.listen, "listen", ":8080", "address to serve on")
	s.StringVar(&f.admin, "admin", "127.0.0.1:8081", "address for metrics, health and API")
	s.StringArrayVar(&f.origins, "origin", nil, "`URL` of a server to protect; may be repeated")
	s.StringVar(&f.pop, "pop", "local", "name of the point of presence")
	s.StringSliceVar(&f.memcached, "memcached", nil,
		"`HOST:PORT,...` of the nodes that edges share; without, this edge counts alone")
	s.Int64Var(&f.limit, "limit", 100,
		"requests a source may make in a window, where no file gives rules")
	s.DurationVar(&f.window, "window", time.Minute, "the window, where no file gives rules")
	s.DurationVar(&f.timeout, "mitigation-timeout", time.Minute,
		"how long a source is blocked that was over; 0 throttles; where no file gives rules")
	s.StringVar(&f.estimate, "estimate", "", "`nearest|lower`, for rules that do not say")
	s.BoolVar(&f.shadow, "shadow", false, "every rule only reports what it would do")
	s.BoolVar(&f.verdictHeader, "verdict-header", false,
		"answers carry how they were decided (Sluice-Verdict)")
	s.DurationVar(&f.notice, "notice", 0,
		"how long after SIGTERM new connections are still taken, while /readyz answers 503: longer than a balancer takes to notice")
	s.DurationVar(&f.grace, "grace", 20*time.Second,
		"how long requests in flight may take once no more are taken")
	s.StringVar(&f.logLevel, "log-level", "info", "`debug|info|warn|error`")
	s.StringVar(&f.logFormat, "log-format", "text", "`text|json`")
	return f
}

func parseFlags(args []string) (*flags, error) {
	f := newFlags()
	if err := operator.Parse(f.set, args); err != nil {
		return f, err
	}
	if f.set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", f.set.Arg(0))
	}
	var level slog.Level
	if level.UnmarshalText([]byte(f.logLevel)) != nil {
		return f, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	if f.notice < 0 || f.grace < 0 {
		return f, fmt.Errorf("--notice %v, --grace %v: want durations that are not negative",
			f.notice, f.grace)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return f, fmt.Errorf("--log-format %q: want text or json", f.logFormat)
	}
	return f, nil
}

func usage(f *flags) string {
	var list strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&list, "  sluice %-30s %s\n", strings.TrimSpace(c.Name+" "+c.Args), c.Does)
	}
	return "Usage:\n  sluice [flags]                        serve\n" + list.String() +
		"\nsluice -t FILE is sluice check FILE, sluice --version is sluice version; sluice help COMMAND lists a command's flags.\n\nFlags that serve:\n" +
		f.set.FlagUsages()
}

// load puts file and flags together.
func (f *flags) load() (*config.Config, error) {
	c := reader().Default()
	if f.config != "" {
		found, files, err := reader().Files(f.config)
		if f.files.Store(files); err != nil {
			return nil, err
		}
		c = found
	}
	if err := f.over(c); err != nil {
		return nil, err
	}
	return c, c.Check()
}

// over lays the flags that were given over a file's configuration.
func (f *flags) over(c *config.Config) error {
	given := f.set.Changed
	if given("listen") {
		if err := config.CheckAddress(f.listen); err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		c.Listen = config.At(f.listen)
	}
	if given("admin") {
		if err := config.CheckAddress(f.admin); err != nil {
			return fmt.Errorf("--admin: %w", err)
		}
		c.Admin = f.admin
	}
	if given("pop") {
		if err := config.CheckPoPName(f.pop); err != nil {
			return fmt.Errorf("--pop: %w", err)
		}
		c.PoP.Name = f.pop
	}
	if given("memcached") {
		if len(f.memcached) == 0 {
			return errors.New("--memcached names no node: leave it out to count alone")
		}
		if err := settings.CheckNodes(f.memcached); err != nil {
			return fmt.Errorf("--memcached: %w", err)
		}
		c.PoP.Memcached = f.memcached
	}
	if given("origin") {
		o := upstream.Default()
		o.Hosts = []string{"*"}
		for _, text := range f.origins {
			u, err := upstream.ParseOrigin(text)
			if err != nil {
				return fmt.Errorf("--origin: %w", err)
			}
			o.Servers = append(o.Servers, u)
		}
		c.Origins = []upstream.Config{o}
	}
	if given("estimate") {
		e, err := algorithm.ParseEstimate(f.estimate)
		if err != nil {
			return fmt.Errorf("--estimate %q: want nearest or lower", f.estimate)
		}
		c.Estimate = e
	}
	c.Shadow = c.Shadow || f.shadow
	c.VerdictHeader = c.VerdictHeader || f.verdictHeader
	return f.defaultRule(c)
}

// defaultRule is the rule that holds where no file gives any.
func (f *flags) defaultRule(c *config.Config) error {
	var given []string
	for _, name := range []string{"limit", "window", "mitigation-timeout"} {
		if f.set.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(c.Rules) > 0 {
		if len(given) > 0 {
			return fmt.Errorf("%s: %s gives rules, so there is no default rule to set: remove the flag or the rules",
				strings.Join(given, ", "), f.config)
		}
		return nil
	}
	switch {
	case f.limit < 1 || f.limit > algorithm.MaxLimit:
		return fmt.Errorf("--limit %d is out of range: want 1 to %d", f.limit, algorithm.MaxLimit)
	case f.window < algorithm.MinWindow || f.window > algorithm.MaxWindow:
		return fmt.Errorf("--window %v is out of range: want 1s to 24h", f.window)
	case f.timeout < 0 || f.timeout > 24*time.Hour:
		return errors.New("--mitigation-timeout " + f.timeout.String() +
			" is out of range: want 0 to 24h")
	}
	r := rules.Default("default", uint32(f.limit))
	r.Window, r.MitigationTimeout = rules.Duration(f.window), rules.Duration(f.timeout)
	c.Rules = []rules.Config{r}
	return nil
}
