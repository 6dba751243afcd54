package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/counter"
	"sluice/loadgen/page"
	"sluice/loadgen/replay"
	"sluice/pop/anycast"
	"sluice/pop/secret"
)

// cmdReplay sends a trace to edges that run already, and judges what they did by the verdicts in their answers.
func cmdReplay(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("replay", pflag.ContinueOnError)
	pops := flags.StringArray("pop", nil, "`HOST:PORT,...` of the edges of a PoP, started with --verdict-header; repeatable, a PoP each")
	secretFile := flags.String("secret", "", "`FILE` with the secret of the edges' PoP, from which follows when the windows of a source begin;\n"+
		"none: the edge counts alone")
	traffic, rule, send, output := cli.AddTrace(flags), cli.AddRule(flags), live.AddSend(flags), cli.AddOutput(flags)
	output.AddDetails(flags)
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if err := rule.OnlySliding("replay"); err != nil {
		return err
	}
	if err := send.Check(); err != nil {
		return err
	}
	mode, rules, err := rule.Rules()
	if err != nil {
		return err
	}
	if len(rules) != 1 {
		return cli.Usagef("--limit and --estimate: one each, those of the running edges")
	}
	l := &live.Run{Command: "replay", Mode: mode, Rule: rules[0], Send: send}
	if *secretFile != "" {
		b, err := os.ReadFile(*secretFile)
		if err != nil {
			return err
		}
		l.Phase = secret.Of(bytes.TrimSpace(b)).Phase
	}
	r := replay.Replay{Carrier: send.Carrier, PerConnection: send.PerConnection, Seed: traffic.Seed}
	if r.PoPs, err = resolve(*pops); err != nil {
		return err
	}
	all := 0
	for _, edges := range r.PoPs {
		l.Edges = append(l.Edges, len(edges))
		all += len(edges)
	}
	if all > counter.MaxEdges {
		return cli.Usagef("--pop: %d edges; want at most %d in all", all, counter.MaxEdges)
	}
	if l.Trace, err = send.Load(traffic, l.Rule, slices.Max(l.Edges)); err != nil {
		return err
	}
	if l.Affinity, err = anycast.New(len(l.Edges), nil); err != nil {
		return err
	}
	r.Affinity = l.Affinity.PoP
	m := live.NewMeter("replay", len(l.Trace.Requests))
	r.Progress = m.Show
	out, err := r.Run(ctx, l.Trace)
	m.Done()
	if err != nil {
		return err
	}
	if out.Answered == 0 {
		return fmt.Errorf("no answer from %s: %s; is an edge listening there?", strings.Join(*pops, ","), out.Trouble())
	}
	report := l.Judge(out, nil)
	d := report.Run.Details
	d.Line = fmt.Sprintf("%s of %s answered, %s", page.Thousands(uint64(out.Answered)), page.Plural(out.Sent, "request"), live.ClientErrors(out))
	d.Lines = append(d.Lines, fmt.Sprintf("client: %.0f requests a second, for %.1f µs of processor time each",
		float64(out.Sent)/out.LastSent.Seconds(), float64(out.CPU.Microseconds())/float64(out.Sent)))
	if err := output.Write(os.Stdout, report); err != nil {
		return err
	}
	if n := out.ClientErrors(); n > 0 {
		return fmt.Errorf("%d client errors: %s", n, out.Trouble())
	}
	return nil
}

// resolve makes addresses of the --pop flags.
func resolve(pops []string) (out [][]netip.AddrPort, err error) {
	if len(pops) == 0 {
		return nil, cli.Usagef("no edge to send to: give --pop HOST:PORT")
	}
	for _, list := range pops {
		var edges []netip.AddrPort
		for _, text := range strings.Split(list, ",") {
			a, err := net.ResolveTCPAddr("tcp4", text)
			if err != nil || a.Port == 0 {
				return nil, cli.Usagef("--pop %s: %q is no address of an edge: want HOST:PORT", list, text)
			}
			addr := a.AddrPort()
			if a.IP == nil {
				addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addr.Port())
			}
			edges = append(edges, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
		}
		out = append(out, edges)
	}
	return out, nil
}
