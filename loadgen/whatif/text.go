package whatif

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/trace"
)

// String is the instant in UTC, or the time since the trace's start; nothing for the zero Moment.
func (m Moment) String() string {
	if m.start.IsZero() {
		if m.Since == 0 {
			return ""
		}
		return m.Since.Round(time.Millisecond).String()
	}
	return m.start.Add(m.Since).UTC().Format("2006-01-02 15:04:05Z")
}

// MarshalJSON writes the instant, or the seconds since the trace's start.
func (m Moment) MarshalJSON() ([]byte, error) {
	if m.start.IsZero() {
		return json.Marshal(m.Since.Seconds())
	}
	return json.Marshal(m.start.Add(m.Since).UTC())
}

// WriteJSON writes a report as one object.
func WriteJSON(w io.Writer, r *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes a report as text, the answer first.
func WriteText(w io.Writer, r *Report) error {
	d := r.document()
	for i := range r.Curves {
		d.Tables = append(d.Tables, page.Table{Rows: r.Curves[i].table(true), Right: true})
	}
	return page.WriteText(w, d)
}

// document is the report without its curves, which text and page draw each in its own way.
func (r *Report) document() page.Document {
	lines := r.lines()
	if r.Story != nil {
		return page.Document{Title: lines[0], Answer: r.Story.sentence(), How: lines,
			Tables: r.Story.tables()}
	}
	d := page.Document{Title: lines[0], Answer: r.recommendation() + " " + r.sentence(), How: lines,
		Tables: []page.Table{
			{Rows: r.busiestTable(),
				Notes: []string{"Of each source, as the rule counts, the most that it made in a window; half, 99 % and 99.9 % of the sources made no more.",
					"The knee: a higher limit would spare few more sources. What is suggested is the knee, or a quarter above the busiest source called good."}},
			{Rows: r.rulesTable()}, {Rows: r.goodTable()}}}
	for i := range r.Rules {
		if w := r.Rules[i].Window; w > r.Run.Duration {
			d.Answer += fmt.Sprintf(" But the log is of %s only, and the window of %s is %v: in a whole one sources may make more.", r.Run.Duration.Round(), r.Rules[i].Name, w)
			break
		}
	}
	if r.Good.Called == nil && r.Good.Meant == nil {
		d.Tables[2].Notes = []string{"Who is good nobody said: --good takes addresses, or answered=95%, sources to whom the origin answered so much with 2xx or 3xx."}
	}
	if rows := r.refusedTable(); len(rows) > 1 {
		t := page.Table{Rows: rows}
		if more := len(r.Refused) - r.top; more > 0 {
			t.Notes = append(t.Notes,
				fmt.Sprintf("And %s more; --top shows more of them, --json all.",
					page.Thousands(uint64(more))))
		}
		d.Tables = append(d.Tables, t)
		if rows := r.characterTable(); len(rows) > 1 {
			d.Tables = append(d.Tables, page.Table{Rows: rows, Words: true})
		}
	}
	if rows := r.nextTable(); len(rows) > 1 {
		d.Tables = append(d.Tables, page.Table{Rows: rows})
	}
	if rows := r.delayTable(); len(rows) > 1 {
		d.Tables = append(d.Tables, page.Table{Rows: rows})
	}
	last := &d.Tables[len(d.Tables)-1]
	last.Notes = append(last.Notes,
		"Over it, never over, most in a window: by an exact log of all that was sent, as if nobody had been refused.",
		"Nobody knows what clients would have done on being refused.")
	return d
}

// lines says in a few lines what was asked.
func (r *Report) lines() []string {
	run := &r.Run
	out := []string{"what-if: " + run.Trace + run.Workload}
	about := []string{fmt.Sprintf("seed %d", run.Seed)}
	if run.Start != nil {
		about = append(about, "from "+run.Start.Format(time.RFC3339))
	}
	about = append(about, "over "+run.Duration.Round())
	if run.Lines > 0 {
		about = append(about,
			page.Thousands(uint64(run.Lines))+" lines read, "+trace.LinesText(run.Skipped,
				run.HostNames))
	}
	out = append(out, strings.Join(about, ", "))
	out = append(out, r.Run.ReadLines()...)
	for _, o := range r.Rules {
		if o.About != "" {
			out = append(out, "rule "+o.Name+": "+o.About)
		}
	}
	out = append(out, run.Notes...)
	return out
}

// sentence is the answer: how much would have been refused, of whom, and how much of that was good.
func (r *Report) sentence() string {
	f := &r.Figures
	s := fmt.Sprintf("Would have refused %s of %s (%s), of %s of %s (%s)",
		page.Thousands(f.Refused), page.Plural(int(f.Requests),
			"request"), page.Percent(f.RefusedRatio),
		page.Thousands(uint64(f.RefusedSources)), page.Plural(f.Sources,
			"source"), page.Percent(judge.Ratio(float64(f.RefusedSources), uint64(f.Sources))))
	if within := &r.Good.Within; f.Refused > 0 {
		switch within.RefusedSources {
		case 0:
			s += "; by an exact log, none of them came from a source that never was over a limit"
		case 1:
			s += fmt.Sprintf("; by an exact log, %s of them came from a source that never was over a limit", page.Thousands(within.Refused))
		default:
			s += fmt.Sprintf("; by an exact log, %s of them came from %d sources that never were over a limit", page.Thousands(within.Refused), within.RefusedSources)
		}
		if c := r.Good.Called; c != nil {
			s += fmt.Sprintf("; %s came from sources called good", page.Thousands(c.Refused))
		}
	}
	s += "."
	if f.Challenged > 0 {
		s += fmt.Sprintf(" Would have challenged %s of them (%s), of %s (%s): nobody in a log shows a pass, and who does goes on.",
			page.Thousands(f.Challenged),
			page.Percent(judge.Ratio(float64(f.Challenged), f.Requests)),
			page.Plural(f.ChallengedSources, "source"),
			page.Percent(judge.Ratio(float64(f.ChallengedSources), uint64(f.Sources))))
	}
	if f.Denied > 0 {
		s += fmt.Sprintf(" Denied by the list: %s.", page.Thousands(f.Denied))
	}
	if f.Allowed > 0 {
		s += fmt.Sprintf(" Allowed by the list: %s.", page.Thousands(f.Allowed))
	}
	if f.Malformed > 0 {
		s += fmt.Sprintf(" Answered 400 for their form, and asked under no rule: %s.",
			page.Thousands(f.Malformed))
	}
	if a := r.answers(); a != "" {
		s += " " + a
	}
	return s + r.lacks()
}

// lacks says which rules are not judged as an edge would.
func (r *Report) lacks() string {
	var list []string
	names := make(map[string]string) // of rules, by what they lack
	for i := range r.Rules {
		switch o := &r.Rules[i]; {
		case o.Lacks == "":
		case names[o.Lacks] == "":
			list, names[o.Lacks] = append(list, o.Lacks), o.Name
		default:
			names[o.Lacks] += ", " + o.Name
		}
	}
	if len(list) == 0 {
		return ""
	}
	for i, what := range list {
		list[i] = fmt.Sprintf("%s (rule %s)", what, names[what])
	}
	return " The log does not have " + join(list) +
		": figures about that are not what an edge would do; see the notes."
}

// delayTable is who waits for his turn, under rules that have a queue.
func (r *Report) delayTable() [][]string {
	out := [][]string{{"waiting for their turn", "requests", "half", "99 %", "longest",
		"the last of a full queue"}}
	for i := range r.Rules {
		if o := &r.Rules[i]; o.Queue > 0 {
			out = append(out, []string{"under " + o.Name, page.Thousands(uint64(o.Delay.N)),
				page.Duration(o.Delay.P50), page.Duration(o.Delay.P99), page.Duration(o.Delay.Max),
				page.Duration(time.Duration(o.Queue).Seconds())})
		}
	}
	return out
}

// ruleName is a rule's, with what its refusals are in place of such.
func ruleName(name string, shadow, challenges bool) string {
	switch {
	case shadow && challenges:
		return name + " (challenge, shadow)"
	case shadow:
		return name + " (shadow)"
	case challenges:
		return name + " (challenge)"
	}
	return name
}

func (r *Report) rulesTable() [][]string {
	out := [][]string{{"rule", "limit", "window", "block", "requests", "refused", "share",
		"sources", "over it", "blocks", "first", "last"}}
	for i := range r.Rules {
		o := &r.Rules[i]
		name, block := ruleName(o.Name, o.Shadow, o.Challenges), o.Timeout.String()
		if o.Timeout == 0 {
			block = "throttle"
		}
		out = append(out, []string{name, page.Thousands(uint64(o.Limit)), o.Window.String(), block,
			page.Thousands(o.Requests), page.Thousands(o.Refused),
			page.Percent(judge.Ratio(float64(o.Refused), o.Requests)),
			page.Thousands(uint64(o.RefusedSources)), page.Thousands(uint64(o.Over)),
			page.Thousands(o.Blocks), o.First.String(), o.Last.String()})
	}
	return out
}

func (r *Report) refusedTable() [][]string {
	who := "who would be refused"
	if slices.ContainsFunc(r.Rules, func(o RuleOutcome) bool { return o.Challenges }) {
		who += " or challenged"
	}
	several := len(r.Rules) > 1
	head := []string{who, "requests", "refused", "share", "blocks",
		"most in a window", "first", "last"}
	if r.Good.Known > 0 {
		head = append(head, "2xx/3xx")
	}
	if several {
		head = append([]string{head[0], "rule"}, head[1:]...)
	}
	out := [][]string{head}
	for i := range r.Refused[:min(r.top, len(r.Refused))] {
		s := &r.Refused[i]
		remark := ""
		switch {
		case s.Good && s.Innocent:
			remark = "good, never over"
		case s.Good:
			remark = "good"
		case s.Innocent:
			remark = "never over"
		}
		cells := []string{s.Source, page.Thousands(s.Requests), page.Thousands(s.Refused),
			page.Percent(judge.Ratio(float64(s.Refused), s.Requests)),
			page.Thousands(s.Blocks), page.Thousands(uint64(s.Most)), s.First.String(),
			s.Last.String()}
		if r.Good.Known > 0 {
			cells = append(cells, page.Percent(judge.Ratio(float64(s.Answered), s.Refused)))
		}
		if remark != "" {
			cells = append(cells, remark)
		}
		if several {
			cells = append([]string{s.Source, ruleName(s.Rule, s.Shadow, s.Challenged)},
				cells[1:]...)
		}
		out = append(out, cells)
	}
	return out
}

func (r *Report) goodTable() [][]string {
	out := [][]string{{"good traffic caught", "requests", "refused", "share", "sources",
		"sources refused"}}
	add := func(name string, c *Caught) {
		if c != nil {
			out = append(out, []string{name, page.Thousands(c.Requests), page.Thousands(c.Refused),
				page.Percent(c.RefusedRatio),
				page.Thousands(uint64(c.Sources)), page.Thousands(uint64(c.RefusedSources))})
		}
	}
	add("of sources that never were over a limit", &r.Good.Within)
	add("of sources called good (--good)", r.Good.Called)
	add("requests that the workload means well", r.Good.Meant)
	return out
}

// answers says what the origin thought of the requests.
func (r *Report) answers() string {
	g := &r.Good
	if g.Known == 0 {
		return ""
	}
	s := fmt.Sprintf("The origin had answered %s of all requests with 2xx or 3xx",
		page.Percent(judge.Ratio(float64(g.Answered), g.Known)))
	if g.RefusedKnown == 0 {
		return s + "."
	}
	return s + fmt.Sprintf(", and of the refused ones %s: %s of %s.", page.Percent(g.AnsweredRatio),
		page.Thousands(g.RefusedAnswered), page.Thousands(g.RefusedKnown))
}

// table is the curve in rows, with a bar for the share of refused requests where bars are wanted:
// in text, which has no chart.
func (c *Curve) table(bars bool) [][]string {
	known, good, most := false, false, 0.0
	for i := range c.Points {
		p := &c.Points[i]
		known, good, most = known || p.known, good || p.Good != nil, max(most, p.RefusedRatio)
	}
	head := []string{"limit of " + c.Rule, "refused", "of requests", "sources", "of sources",
		"blocks"}
	if good {
		head = append(head, "good lost", "of the good", "good sources")
	}
	if known {
		head = append(head, "2xx/3xx")
	}
	out := [][]string{head}
	for i := range c.Points {
		p := &c.Points[i]
		mark := ""
		if p.Limit == c.Limit {
			mark = "> "
		}
		cells := []string{mark + page.Thousands(uint64(p.Limit)), page.Thousands(p.Refused),
			page.Percent(p.RefusedRatio),
			page.Thousands(uint64(p.RefusedSources)), page.Percent(p.RefusedSourcesRatio),
			page.Thousands(p.Blocks)}
		if p.Good != nil {
			cells = append(cells, page.Thousands(p.GoodRefused), page.Percent(*p.Good),
				page.Thousands(uint64(p.GoodSources)))
		}
		switch {
		case p.known:
			cells = append(cells, page.Percent(p.AnsweredRatio))
		case known:
			cells = append(cells, "")
		}
		if bars && most > 0 {
			cells = append(cells, bar(p.RefusedRatio/most))
		}
		out = append(out, cells)
	}
	return out
}

// bar is a share of 24 blocks, at least a sign of one where there is anything.
func bar(share float64) string {
	const width = 24
	n := int(share*width + 0.5)
	s := strings.Repeat("█", n)
	if n == 0 && share > 0 {
		s, n = "▏", 1
	}
	return s + strings.Repeat(" ", width-n)
}
