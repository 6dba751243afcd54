package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
	"sluice/counter"
	"sluice/loadgen/anycast"
	"sluice/loadgen/page"
	"sluice/loadgen/replay"
	"sluice/loadgen/trace"
	"sluice/pop/secret"
)

// cmdReplay sends a trace to edges that run already, and judges what they did by the verdicts in
// their answers.
func cmdReplay(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("replay", pflag.ContinueOnError)
	pops := flags.StringArray("pop", nil,
		"`HOST:PORT,...` of the edges of a PoP, started with --verdict-header; repeatable, a PoP each.\n"+
			"With --http2, https://HOST:PORT is spoken to over TLS, others in cleartext (http2.cleartext, from a trusted address)")
	ca := flags.String("ca", "",
		"`FILE` with the certificates that vouch for https edges, by the name of the first; none: the system's")
	logs := flags.StringArray("edge-log", nil,
		"`FILE`, an edge's access log as JSON, which shows what became of requests that were reset; repeatable,\n"+
			"in the order of --pop")
	secretFile := flags.String("secret", "",
		"`FILE` with the secret of the edges' PoP, from which follows when the windows of a source begin;\n"+
			"none: the edge counts alone")
	names := flags.StringSlice("pop-name", nil,
		"pop.name of the edges' PoPs, with --secret, in the order of --pop; none: local")
	escalate := flags.DurationSlice("escalate", nil,
		"how `LONG` blocks of repeaters last, as the rule's escalate says: such a block does not end late")
	traffic, rule, send, output := cli.AddTrace(flags), cli.AddRule(flags), live.AddSend(flags).
		AddHTTP2(flags), cli.AddOutput(flags)
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
	l := &live.Run{Command: "replay", Mode: mode, Rule: rules[0], Send: send, Escalate: *escalate}
	if *secretFile != "" {
		b, err := os.ReadFile(*secretFile)
		if err != nil {
			return err
		}
		if len(*names) == 0 {
			*names = []string{"local"}
		}
		if len(*names) != max(len(*pops), 1) {
			return cli.Usagef("--pop-name: %d names of %d PoPs: give one for each --pop",
				len(*names), len(*pops))
		}
		// The others are those that it replaces
		first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
		for _, name := range *names {
			l.Secrets = append(l.Secrets, secret.Of([]byte(strings.TrimSpace(first))).At(name))
		}
	}
	r := replay.Replay{Seed: traffic.Seed}
	send.Fill(&r)
	if r.TLS, err = secure(*pops, send.HTTP2, *ca); err != nil {
		return err
	}
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
		return fmt.Errorf("no answer from %s: %s; is an edge listening there?",
			strings.Join(*pops, ","), out.Trouble())
	}
	if err := learn(out, l.Trace, *logs); err != nil {
		return err
	}
	report := l.Judge(out, nil, nil)
	d := report.Run.Details
	d.Line = fmt.Sprintf("%s of %s answered, %s", page.Thousands(uint64(out.Answered)),
		page.Plural(out.Sent, "request"), live.ClientErrors(out))
	d.Lines = append(d.Lines,
		fmt.Sprintf("client: %.0f requests a second, for %.1f µs of processor time each",
			float64(out.Sent)/out.LastSent.Seconds(),
			float64(out.CPU.Microseconds())/float64(out.Sent)))
	if err := output.Write(os.Stdout, report); err != nil {
		return err
	}
	if n := out.ClientErrors(); n > 0 {
		return fmt.Errorf("%d client errors: %s", n, out.Trouble())
	}
	return nil
}

// learn reads the outcome of requests that were reset from the edges' logs.
func learn(out *replay.Outcome, t *trace.Trace, names []string) error {
	var logs []io.Reader
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		logs = append(logs, f)
	}
	return out.Learn(t, logs...)
}

// scheme begins an edge that is spoken to over TLS.
const scheme = "https://"

// secure is how the edges of --pop are known; nil: they are spoken to in cleartext.
func secure(pops []string, http2 bool, ca string) (*tls.Config, error) {
	all := strings.Split(strings.Join(pops, ","), ",")
	n := 0
	for _, edge := range all {
		if strings.HasPrefix(edge, scheme) {
			n++
		}
	}
	switch {
	case n > 0 && !http2:
		return nil, cli.Usagef("--pop %s: give --http2, HTTP/1.1 goes in cleartext",
			strings.Join(pops, ","))
	case n > 0 && n < len(all):
		return nil, cli.Usagef("--pop %s: https:// of all edges, or of none",
			strings.Join(pops, ","))
	case n == 0 && ca != "":
		return nil, cli.Usagef("--ca %s: no edge of --pop is https://", ca)
	case n == 0:
		return nil, nil
	}
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(all[0], scheme))
	c := &tls.Config{ServerName: host, ClientSessionCache: tls.NewLRUClientSessionCache(1 << 12)}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("--ca %s: there is no certificate in it", ca)
		}
	}
	return c, nil
}

// resolve makes addresses of the --pop flags.
func resolve(pops []string) (out [][]netip.AddrPort, err error) {
	if len(pops) == 0 {
		return nil, cli.Usagef("no edge to send to: give --pop HOST:PORT")
	}
	for _, list := range pops {
		var edges []netip.AddrPort
		for _, text := range strings.Split(list, ",") {
			a, err := net.ResolveTCPAddr("tcp4", strings.TrimPrefix(text, scheme))
			if err != nil || a.Port == 0 {
				return nil, cli.Usagef("--pop %s: %q is no address of an edge: want HOST:PORT",
					list, text)
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
