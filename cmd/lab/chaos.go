package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/cmd/internal/virtual"
	"sluice/cmd/lab/chaos"
	"sluice/loadgen/judge"
)

// cmdChaos tells stories of what breaks, with real edges and in virtual time, and prints a row of each.
func cmdChaos(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	short := flags.Bool("short", false, "the short form: only stories that say so, with real edges, whose times are shown and not held to a bound, and with the fewest in virtual time")
	only := flags.String("only", "", "stories that match this `EXPRESSION`")
	file := flags.String("stories", "", "of a `FILE`, in place of those that are built in")
	where := flags.String("edges", "both", "live, virtual, or both")
	report := flags.Bool("report", false, "end well even if a row is above what is promised, which the table says")
	list := flags.Bool("list", false, "say which stories there are, and run none")
	seed := flags.Uint64("seed", 1, "of the traffic, and of which edges it meets")
	sluice := flags.String("sluice", "", "`PATH` of the edge's executable; none: sluice beside this one")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	like, err := regexp.Compile(*only)
	if err != nil {
		return cli.Usagef("--only %s: %v", *only, err)
	}
	if *where != "live" && *where != "virtual" && *where != "both" {
		return cli.Usagef("--edges %s: want live, virtual or both", *where)
	}
	stories, err := stories(*file)
	if err != nil {
		return err
	}
	var chosen []*chaos.Scenario
	for _, s := range stories {
		if like.MatchString(s.Story) && (s.Short || !*short) {
			s.Untimed = *short
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return cli.Usagef("--only %s: no story is like that; --list says which there are", *only)
	}
	if *list {
		for _, s := range chosen {
			fmt.Printf("%s  %s\n", s.Place, s.Story)
		}
		return nil
	}
	l := chaos.Live{Sluice: *sluice, Secret: live.LabSecret, Seed: *seed, Log: func(string, ...any) {}}
	if *where != "virtual" {
		if err := cli.Beside(&l.Sluice, "sluice"); err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		l.Origin = []string{self, "origin"}
	}
	rows, err := tell(ctx, l, chosen, *where, *short)
	if err := errors.Join(err, chaos.Write(os.Stdout, rows)); err != nil {
		return err
	}
	var over []string
	for _, r := range rows {
		if len(r.Over) > 0 {
			over = append(over, fmt.Sprintf("%s (%d edges): %s", r.Story, r.Edges, strings.Join(r.Over, ", ")))
		}
	}
	if len(over) > 0 && !*report {
		return fmt.Errorf("chaos: above what is promised: %s", strings.Join(over, "; "))
	}
	return nil
}

// stories are those that are built in, or those of a file.
func stories(file string) ([]*chaos.Scenario, error) {
	if file == "" {
		return chaos.All()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return chaos.Parse(file, string(text))
}

// tell runs the stories one after the other, and returns the rows that there are when one could not be run.
func tell(ctx context.Context, l chaos.Live, stories []*chaos.Scenario, where string, short bool) (rows []*chaos.Row, err error) {
	for _, s := range stories {
		if s.Edges > 0 && where != "virtual" {
			cli.Logf("%s: %d edges, for %v", s.Story, s.Edges, s.For)
			row, err := l.Run(ctx, s)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", s.Story, err)
			}
			rows = append(rows, row)
		}
		for i, edges := range s.Virtual {
			if where == "live" || short && i > 0 {
				break
			}
			cli.Logf("%s: %d edges in virtual time", s.Story, edges)
			row, err := inVirtualTime(ctx, s, edges, l.Seed)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", s.Story, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// inVirtualTime runs a story with so many edges of each PoP in virtual time.
func inVirtualTime(ctx context.Context, s *chaos.Scenario, edges int, seed uint64) (*chaos.Row, error) {
	f := &cli.RuleFlags{Limits: []uint{uint(s.Limit)}, Window: s.Window, Timeout: s.Block, SubWindows: 12, Estimates: []string{"nearest"}, Mode: "deployed"}
	mode, rules, err := f.Rules()
	if err != nil {
		return nil, err
	}
	t := s.Traffic(seed)
	size := &virtual.Size{PoPs: s.PoPs, Edges: edges, Nodes: s.Nodes, RTT: time.Millisecond, Peers: s.Peers, Skew: s.Skew, Faults: s.Faults(), Routes: s.Routes()}
	site, err := virtual.NewSite(t, mode, rules[0], size, false)
	if err != nil {
		return nil, err
	}
	o := &chaos.Observed{Virtual: true, Edges: s.PoPs * edges}
	for _, step := range s.Steps {
		o.Over = max(o.Over, step.At)
	}
	limiter, now := site.Limiter(), time.Duration(0)
	advance, decide, inForce := limiter.Advance, limiter.Decide, limiter.InForce
	limiter.Advance = func(at time.Duration) { now = at; advance(at) }
	limiter.Decide = func(edge int, source int32) judge.Decision {
		d := decide(edge, source)
		d.At, d.Source, d.Edge, d.Role = now, source, int16(edge), t.Sources[source].Role
		o.Decisions = append(o.Decisions, d)
		if d.Verdict == judge.Failed {
			o.Failed++
		}
		return d
	}
	limiter.InForce = func() []judge.InForce {
		some := inForce()
		o.InForce = append(o.InForce, some...)
		return some
	}
	v := site.Options(judge.VirtualOptions{Seed: seed})
	if _, err := judge.Simulate(ctx, t, mode, judge.Options{Limit: s.Limit, Window: s.Window, Timeout: s.Block}, v, limiter); err != nil {
		return nil, err
	}
	if site.Err != nil {
		return nil, site.Err
	}
	return s.Judge(o), nil
}
