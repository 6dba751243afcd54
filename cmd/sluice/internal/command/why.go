package command

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/why"
	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/operator"
	"sluice/edge/view"
)

const whyUsage = `Usage: sluice why SOURCE|REQUEST-ID|--key PART=VALUE [--at TIME] [LOG…]

Tells what became of one request, by the X-Request-ID of its answer: of the logs that are given, or of the one that the edge of --admin or
--config writes on this machine. Or what became of a source: an address or a prefix, who is counted by a key, or its # and digest. With access logs in JSON (.gz as well), of one edge or several:
when it came, how much it asked for, which rule blocked it at what estimate, and what happened then. Without: what the edge
that --admin or --config names knows of it now. Logs have digests of keys: with --key that edge is asked for the digest.

Flags:
`

// whyArgs is what the command line of why says.
type whyArgs struct {
	question why.Question
	id       string // of the request that is asked about, in place of a source
	at       string
	address  netip.Addr // of the question; without logs it must be one
	logs     []string
	key      keyFlags
	named    named
	edge     listener
	pop      bool
	json     bool
	flags    *pflag.FlagSet
}

func newWhyArgs(read settings.Reader) *whyArgs {
	a := &whyArgs{flags: operator.NewFlagSet("why"), edge: listener{read: read}}
	a.flags.StringVar(&a.at, "at", "",
		"around this `TIME`: 14:05 (UTC, of the latest day in the logs) or 2026-05-04T14:05:00Z; the latest refusal without")
	operator.DurationFlag(a.flags, &a.question.Around, "around", 10*time.Minute, "so long before and after")
	a.key.add(a.flags)
	a.edge.addFlags(a.flags)
	a.flags.BoolVar(&a.pop, "pop", false, "of an edge: what all edges of the PoP know")
	a.flags.BoolVar(&a.json, "json", false, "print JSON")
	return a
}

func parseWhy(read settings.Reader, args []string) (*whyArgs, error) {
	a := newWhyArgs(read)
	if err := operator.Parse(a.flags, args); err != nil {
		return a, err
	}
	who := a.flags.Args()
	if a.logs = who; a.key.given() {
		who = nil
	} else if len(who) > 0 {
		who, a.logs = who[:1], who[1:]
	}
	var err error
	if a.named, err = a.key.whom(who, a.source); err != nil {
		return a, err
	}
	if a.question.Around <= 0 {
		return a, fmt.Errorf("--around %v: want more than 0", a.question.Around)
	}
	if a.id != "" && (a.pop || a.at != "") {
		return a, fmt.Errorf("%s is one request: leave --pop and --at out", a.id)
	}
	if a.pop && len(a.logs) > 0 {
		return a, errors.New("--pop and logs: give one of them")
	}
	if a.at == "" {
		return a, nil
	}
	if len(a.logs) == 0 {
		return a,
			errors.New("--at wants logs: the edge itself tells what is now, and its latest events")
	}
	for _, form := range []string{"15:04", time.TimeOnly, time.RFC3339} {
		if t, err := time.Parse(form, a.at); err == nil {
			a.question.At, a.question.Clock = t.UTC(), form != time.RFC3339
			return a, nil
		}
	}
	return a, fmt.Errorf("--at %q: want a time such as 14:05 or 2026-05-04T14:05:00Z", a.at)
}

// source reads the source that is asked about.
func (a *whyArgs) source(text string) error {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		a.question.Source, a.address = prefix.Masked(), prefix.Addr()
	} else if a.address, err = netip.ParseAddr(text); err == nil {
		a.address = counter.Plain(a.address)
		a.question.Source = netip.PrefixFrom(a.address, a.address.BitLen())
	} else if operator.CheckSource(text) != nil && why.IsID(text) && !strings.Contains(text, "..") {
		a.id = text
	} else if operator.CheckSource(text) != nil {
		return fmt.Errorf("source %q: want an address or a prefix, the X-Request-ID of an answer, or # and the 32 hexadecimal digits of a key, or --key PART=VALUE", text)
	}
	return nil
}

// Why is the command why. Files are read by read.
func Why(read settings.Reader) operator.Command {
	return operator.Command{Name: "why", Args: "[SOURCE|REQUEST-ID] [LOG…]",
		Does: "what became of a source, of one request, or of who is counted by a key, from access logs or an edge", Flags: newWhyArgs(read).flags,
		Run: func(args []string, stdout, stderr io.Writer) int {
			return explain(read, args, stdout, stderr)
		}}
}

// explain runs it.
func explain(read settings.Reader, args []string, stdout, stderr io.Writer) int {
	a, err := parseWhy(read, args)
	var unread unreadError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, whyUsage+a.flags.FlagUsages())
		return 0
	case errors.As(err, &unread):
		fmt.Fprintln(stderr, "sluice:", err)
		return operator.ExitFailed
	case err != nil:
		return operator.Misuse(stderr, err)
	case a.id != "":
		err = a.ofRequest(stdout)
	case len(a.logs) > 0:
		err = a.fromLogs(stdout)
	default:
		err = a.fromEdge(stdout)
	}
	switch {
	case errors.As(err, new(operator.UsageError)):
		return operator.Misuse(stderr, err)
	case err != nil:
		fmt.Fprintln(stderr, "sluice:", err)
		return operator.ExitFailed
	}
	return 0
}

// fromLogs tells what access logs say.
func (a *whyArgs) fromLogs(w io.Writer) error {
	if a.question.Key = a.named.source; a.address.IsValid() {
		a.question.Key = ""
	} else if a.named.key != nil {
		looked, err := a.look("")
		if err != nil {
			return fmt.Errorf("%w (logs have digests of keys, which an edge of the PoP makes: name one with --config or --admin, or give the # and digest)", err)
		}
		a.question.Key = looked.Source
	}
	readers, end, err := openLogs(a.logs)
	defer end()
	if err != nil {
		return err
	}
	story, err := why.Explain(a.question, readers...)
	if err != nil {
		return err
	}
	if a.json {
		return operator.PrintJSON(w, story)
	}
	return story.Text(w)
}

// openLogs opens access logs, packed or not. end closes those that are open, whatever err is.
func openLogs(names []string) (readers []io.Reader, end func(), err error) {
	var files []*os.File
	end = func() {
		for _, f := range files {
			_ = f.Close() // it was read
		}
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, end, err
		}
		files = append(files, f)
		var r io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				return nil, end, fmt.Errorf("%s: %w", name, err)
			}
		}
		readers = append(readers, r)
	}
	return readers, end, nil
}

// ofRequest tells what became of one request.
func (a *whyArgs) ofRequest(w io.Writer) error {
	if len(a.logs) == 0 {
		client, err := a.edge.client()
		if err != nil {
			return err
		}
		var runs struct {
			Log struct{ File, Format string } `json:"access_log"`
		}
		if err := client.Get("/v1/config", &runs); err != nil {
			return err
		}
		if runs.Log.Format != "json" || !strings.Contains(runs.Log.File, "/") {
			return errors.New("the edge writes no access log in JSON to a file (access_log.file, access_log.format: json): give the logs: sluice why REQUEST-ID LOG…")
		}
		a.logs = []string{runs.Log.File}
	}
	readers, end, err := openLogs(a.logs)
	defer end()
	if err != nil {
		return err
	}
	found, err := why.Find(a.id, readers...)
	if err != nil {
		return err
	}
	if a.json {
		return operator.PrintJSON(w, found)
	}
	for i := range found {
		if err := found[i].Text(w); err != nil {
			return err
		}
	}
	return nil
}

// look asks the edge who is named.
func (a *whyArgs) look(source string) (l control.Looked, err error) {
	client, err := a.edge.client()
	if err != nil {
		return l, err
	}
	return client.Look(source, a.named.key)
}

// fromEdge tells what an edge knows now, and what of its latest events is about the source.
func (a *whyArgs) fromEdge(w io.Writer) error {
	var shown struct {
		Source control.Looked `json:"source"`
		Events []events.Event `json:"events"`
		Edge   control.State  `json:"edge"`
	}
	client, err := a.edge.client()
	if err != nil {
		return err
	}
	source := a.named.source
	if a.address.IsValid() {
		source = a.address.String()
	}
	if shown.Source, err = client.Look(source, a.named.key); err != nil {
		return err
	}
	if a.named.key != nil {
		source = shown.Source.Source // its digest
	}
	if a.pop {
		return a.fromPoP(w, client, source)
	}
	if err := client.Get("/v1/events", &shown.Events); err != nil {
		return err
	}
	_ = client.Get("/v1/status", &shown.Edge) // an older edge has none
	shown.Events = slices.DeleteFunc(shown.Events,
		func(e events.Event) bool { return !a.about(e.Source, &shown.Source) })
	slices.Reverse(shown.Events)
	if a.json {
		return operator.PrintJSON(w, shown)
	}
	return printWhy(w, &shown.Source, shown.Events, &shown.Edge)
}

// fromPoP tells what all edges know now.
func (a *whyArgs) fromPoP(w io.Writer, client *operator.Client, source string) error {
	var shown struct {
		Edges  []view.Edge                     `json:"edges"`
		Source control.Looked                  `json:"source"`
		Each   []view.Answered[control.Looked] `json:"each"`
		Events []view.Event                    `json:"events"`
	}
	if err := client.Get("/v1/sources/"+url.PathEscape(source)+"?scope=pop", &shown); err != nil {
		return err
	}
	if a.json {
		return operator.PrintJSON(w, shown)
	}
	var happened []events.Event
	for _, e := range slices.Backward(shown.Events) {
		e.Text += " (" + strings.Join(e.Edges, ", ") + ")"
		happened = append(happened, e.Event)
	}
	if err := printWhy(w, &shown.Source, happened, &control.State{}); err != nil {
		return err
	}
	for _, edge := range shown.Each {
		var parts []string
		for _, r := range edge.Answer.Rules {
			text := fmt.Sprintf("%s %.4g of %d", cmp.Or(r.Policy, r.Rule), r.Estimate, r.Limit)
			if r.Limit == 0 {
				text = cmp.Or(r.Policy, r.Rule)
			}
			if r.Block != nil {
				text += ", blocked by " + r.Block.By + " until " + operator.Clock(r.Block.End)
			}
			parts = append(parts, text)
		}
		if _, err := io.WriteString(w,
			operator.Printable("edge "+edge.Edge+" by itself: "+cmp.Or(strings.Join(parts, "; "),
				"no rule counts it"))+"\n"); err != nil {
			return err
		}
	}
	return operator.EdgesShown(w, shown.Edges)
}

// about reports whether an event's source is the one that is asked about: it, its prefix, or one
// within the prefix, or the digest of a key.
func (a *whyArgs) about(source string, asked *control.Looked) bool {
	if !a.address.IsValid() {
		return source == asked.Source || slices.ContainsFunc(asked.Rules,
			func(r control.SourceState) bool { return r.Source == source })
	}
	if p, err := netip.ParsePrefix(source); err == nil {
		return p.Overlaps(a.question.Source)
	}
	addr, err := netip.ParseAddr(source)
	return err == nil && a.question.Source.Contains(addr)
}

// printWhy writes for people what an edge knows. Times are UTC. Reasons and names are written by
// others: each line is made printable.
func printWhy(w io.Writer, l *control.Looked, happened []events.Event, edge *control.State) error {
	var lines []string
	line := func(format string, args ...any) {
		lines = append(lines, operator.Printable(fmt.Sprintf(format, args...))+"\n")
	}
	line("%s", operator.Who(l))
	if len(l.Rules) == 0 && !l.Allowed && !l.Denied && strings.HasPrefix(l.Source, "#") {
		line("%s", operator.NoRules(l))
	}
	switch {
	case l.Denied:
		line("always refused, by the list deny (sluice deny and sluice config show it)")
	case l.Allowed:
		line("never limited, by the list allow (sluice allow and sluice config show it)")
	}
	for _, r := range l.Rules {
		var parts []string
		if r.Limit > 0 {
			parts = append(parts, fmt.Sprintf("%.4g of %d requests, %d left", r.Estimate, r.Limit,
				r.Remaining))
		}
		if p := r.Places; p != nil {
			parts = append(parts, fmt.Sprintf("%d of %d in flight, %d of them here", p.Held,
				p.Limit, p.Here))
		}
		text := "rule " + cmp.Or(r.Policy, r.Rule) + ": " + strings.Join(parts, "; ")
		if r.Plan != "" {
			text += ", plan " + r.Plan
		}
		if r.OutsideShare {
			text += "; not about this source, by its share"
		}
		if b := r.Block; b != nil {
			text += "; blocked by " + b.By
			if b.Rule != r.Rule {
				text += " " + operator.Under(b.Rule)
			}
			if b.Source != r.Source {
				text += " as " + b.Source
			}
			text += fmt.Sprintf(" since %s until %s", operator.Clock(b.Start),
				operator.Clock(b.End))
			if b.Who != "" {
				text += ", ordered by " + b.Who
			}
			if b.Reason != "" {
				text += ": " + b.Reason
			}
			switch {
			case b.Mode == "shadow":
				text += " (shadow: nobody is refused)"
			case b.Action == "tag":
				text += " (tag: nobody is refused)"
			}
			if k := b.Kernel; k != nil {
				text += fmt.Sprintf("; refused by the kernel since %s, %s", operator.Clock(k.Since),
					operator.Counted(int(k.Attempts), "attempt"))
			}
		}
		line("%s", text)
	}
	if edge != nil && !l.Allowed && !l.Denied {
		for i := range edge.Everybody {
			line("%s: this source as well, where it has no pass",
				operator.Everybody(&edge.Everybody[i]))
		}
	}
	for _, k := range l.ByKey {
		text := "counted by " + k.Key + " as well, by "
		if text += operator.Counted(len(k.Rules), "rule"); len(k.Rules) <= 5 {
			text += " (" + strings.Join(k.Rules, ", ") + ")"
		}
		if len(k.Seen) == 0 {
			text += "; this edge remembers none that came from here"
		}
		line("%s", text)
		for _, s := range k.Seen {
			line("  %s  last %s  %s", s.Source, operator.Clock(s.Last), operator.Shown(s.KeyStart,
				""))
		}
	}
	if !l.Asked && len(l.Rules) > 0 {
		line("(as this edge alone knows: it has no memcached nodes, or they have not answered)")
		if edge.LearningUntil != nil {
			line("(it has started lately, and may not know until %s whom others had blocked before)", operator.Clock(*edge.LearningUntil))
		}
	}
	if len(happened) == 0 {
		line("no event about it is among the latest of this edge")
	}
	for _, e := range happened {
		text := operator.Clock(e.Time) + "  " + e.Text
		if e.Rule != "" {
			text += ", rule " + cmp.Or(e.Policy, e.Rule)
		}
		if !e.Until.IsZero() {
			text += ", until " + operator.Clock(e.Until)
		}
		if e.Who != "" || e.From != "" {
			text += ", by " + strings.TrimSpace(e.Who+" from "+e.From)
		}
		if e.Skipped > 0 {
			text += fmt.Sprintf(" (%d such events before it are not kept)", e.Skipped)
		}
		line("%s", text)
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
