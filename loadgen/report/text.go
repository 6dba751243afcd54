package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/trace"
)

// Names of the table's rows that other code needs.
const (
	rowRequests       = "requests"
	rowSources        = "sources"
	rowWrong          = "wrong decisions"
	rowGap            = "mean gap between estimate and truth"
	rowFalseNegatives = "sources never blocked that were over"
	rowFalsePositives = "sources blocked that never were over"
)

// row is one line of the table. Its value is empty where a run has nothing to say.
type row struct {
	name  string
	value func(*judge.Figures) string
}

func rows() []row {
	count := func(of func(*judge.Figures) uint64) func(*judge.Figures) string {
		return func(f *judge.Figures) string { return page.Thousands(of(f)) }
	}
	// Nothing to say where there were none
	some := func(of func(*judge.Figures) uint64) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if of(f) == 0 {
				return ""
			}
			return page.Thousands(of(f))
		}
	}
	deployed := func(value func(*judge.Figures) string) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if f.FreeRunningIdeal == nil {
				return ""
			}
			return value(f)
		}
	}
	waits := func(of func(*judge.Waits) string) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if f.Waits == nil {
				return ""
			}
			return of(f.Waits)
		}
	}
	ended := func(of func(*judge.Ends) (uint64, *judge.Quantiles)) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if f.Ends == nil {
				return ""
			}
			n, by := of(f.Ends)
			if n == 0 {
				return "0"
			}
			return page.Thousands(n) + ", " + quantiles(by, page.Duration)
		}
	}
	type clock = func(*judge.Figures) *judge.TimeToBlock
	formula := func(f *judge.Figures) *judge.TimeToBlock { return f.TimeToBlock }
	exact := func(f *judge.Figures) *judge.TimeToBlock { return f.TimeToBlockExact }
	firstEdge := func(by clock) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if t := by(f); t != nil {
				return quantiles(&t.FirstEdge, page.Duration)
			}
			return ""
		}
	}
	everyEdge := func(by clock) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if t := by(f); t != nil {
				return quantiles(&t.EveryEdge, page.Duration)
			}
			return ""
		}
	}
	kernel := func(by clock) func(*judge.Figures) string {
		return func(f *judge.Figures) string {
			if t := by(f); t != nil {
				return quantiles(&t.Kernel, page.Duration)
			}
			return ""
		}
	}
	return []row{
		{rowRequests, count(func(f *judge.Figures) uint64 { return f.Requests })},
		{rowSources, count(func(f *judge.Figures) uint64 { return uint64(f.Sources) })},
		{rowWrong, func(f *judge.Figures) string { return page.Percent(f.WrongRatio) }},
		{"  of decisions (no refusals under a block)",
			deployed(func(f *judge.Figures) string { return page.Percent(f.WrongPerDecision) })},
		{"  let pass above the limit",
			count(func(f *judge.Figures) uint64 { return f.WronglyAllowed })},
		{"  limited at or under it",
			count(func(f *judge.Figures) uint64 { return f.WronglyLimited })},
		{"  refusals that followed from those",
			deployed(count(func(f *judge.Figures) uint64 { return f.WronglyMitigated }))},
		{"  wrong answers, those included",
			deployed(func(f *judge.Figures) string { return page.Percent(f.WrongAnswersRatio) })},
		{"  per block",
			deployed(func(f *judge.Figures) string { return page.Significant(f.WrongPerBlock) })},
		{rowGap, func(f *judge.Figures) string { return page.Percent(f.MeanGap) }},
		{"  from half the limit on",
			func(f *judge.Figures) string { return page.Percent(f.MeanGapHot) }},
		{rowFalseNegatives, func(f *judge.Figures) string {
			return margin(f.FalseNegativeSources, f.FalseNegativeMargin, "over")
		}},
		{rowFalsePositives, func(f *judge.Figures) string {
			return margin(f.FalsePositiveSources, f.FalsePositiveMargin, "under")
		}},
		{"requests refused of such sources",
			count(func(f *judge.Figures) uint64 { return f.RefusedOfInnocent })},
		{"requests refused of good clients",
			some(func(f *judge.Figures) uint64 { return f.RefusedGood })},
		{"  who share a source with an abuser",
			some(func(f *judge.Figures) uint64 { return f.Collateral })},
		{"admitted", count(func(f *judge.Figures) uint64 { return f.Admitted })},
		{"refused", count(func(f *judge.Figures) uint64 { return f.Refused })},
		{"  by a mitigation in force",
			deployed(count(func(f *judge.Figures) uint64 { return f.Mitigated }))},
		{"    with its connection, by an edge",
			some(func(f *judge.Figures) uint64 { return f.Shed })},
		{"    with its connection, by the kernel",
			some(func(f *judge.Figures) uint64 { return f.Walled })},
		{"  because the tier was gone", some(func(f *judge.Figures) uint64 { return f.Closed })},
		{"without a verdict", some(func(f *judge.Figures) uint64 { return f.Failed })},
		{"blocks", deployed(count(func(f *judge.Figures) uint64 { return f.Blocks }))},
		{"  that ended early, by",
			ended(func(e *judge.Ends) (uint64, *judge.Quantiles) { return e.Early, &e.EarlyBy })},
		{"  that ended late, by",
			ended(func(e *judge.Ends) (uint64, *judge.Quantiles) { return e.Late, &e.LateBy })},
		{"admitted above the limit, per block", deployed(func(f *judge.Figures) string {
			return quantiles(&f.Overshoot, page.Significant)
		})},
		{"admitted in the worst window", deployed(func(f *judge.Figures) string {
			if f.WorstWindow == 0 {
				return ""
			}
			return fmt.Sprintf("%s, %s over", page.Thousands(uint64(f.WorstWindow)),
				page.Thousands(uint64(f.WorstExcess)))
		})},
		{"  the design allows that source",
			some(func(f *judge.Figures) uint64 { return uint64(f.Bound) })},
		{"  sources beyond what it allows", func(f *judge.Figures) string {
			if f.Bound == 0 {
				return ""
			}
			return page.Thousands(uint64(f.BeyondBound))
		}},
		{"requests that waited for their turn",
			waits(func(w *judge.Waits) string { return page.Thousands(w.Requests) })},
		{"  for so long",
			waits(func(w *judge.Waits) string { return quantiles(&w.Delay, page.Duration) })},
		{"  the last of a full queue waits",
			waits(func(w *judge.Waits) string { return page.Duration(w.Queue) })},
		{"  requests that waited longer",
			waits(func(w *judge.Waits) string { return page.Thousands(w.Beyond) })},
		{"  let go before their turn by",
			waits(func(w *judge.Waits) string { return quantiles(&w.Early, page.Duration) })},
		{"time to block, first edge", firstEdge(formula)},
		{"time to block, every edge", everyEdge(formula)},
		{"time to block, kernel", kernel(formula)},
		{"by the exact log, first edge", firstEdge(exact)},
		{"by the exact log, every edge", everyEdge(exact)},
		{"by the exact log, kernel", kernel(exact)},
		{"tier commands per 1,000 requests", func(f *judge.Figures) string {
			if f.TierOpsPer1000 == nil {
				return ""
			}
			return page.Significant(*f.TierOpsPer1000)
		}},
		{"  bytes in them, per request", func(f *judge.Figures) string {
			if f.TierBytesPer1000 == 0 {
				return ""
			}
			return page.Significant(f.TierBytesPer1000 / 1000)
		}},
		{"tier commands while all are mitigated", func(f *judge.Figures) string {
			if f.TierOpsMitigated == nil {
				return ""
			}
			return page.Thousands(*f.TierOpsMitigated)
		}},
		{"sent late by", func(f *judge.Figures) string {
			if f.SendError == nil {
				return ""
			}
			return quantiles(f.SendError, page.Duration)
		}},
		{"an exact limiter would have admitted",
			deployed(count(func(f *judge.Figures) uint64 { return f.FreeRunningIdeal.Admitted }))},
		{"  and blocked so many times",
			deployed(count(func(f *judge.Figures) uint64 { return f.FreeRunningIdeal.Blocks }))},
		{"decisions per second", func(f *judge.Figures) string {
			if f.DecisionsASecond == 0 {
				return ""
			}
			return page.Thousands(uint64(f.DecisionsASecond))
		}},
	}
}

// WriteText writes reports as text, the answer first.
func WriteText(w io.Writer, reports ...*Report) error {
	var out []page.Document
	for _, r := range reports {
		out = append(out, r.document())
	}
	return page.WriteText(w, out...)
}

// document is the report without its pictures.
func (r *Report) document() page.Document {
	if len(r.Rivals) > 0 {
		return page.Document{Title: r.title(), Answer: r.rivalsAnswer(), Warning: r.Run.Disturbed,
			How: r.Run.lines(), Tables: []page.Table{r.rivals()}, Details: r.Run.Details}
	}
	d := page.Document{Title: r.title(), Answer: r.answer(), Warning: r.Run.Disturbed,
		How: r.Run.lines(), Details: r.Run.Details}
	if r.Run.Command != compareCommand { // where the table of designs has all
		d.Tables = append(d.Tables, page.Table{Rows: r.table(), Notes: r.notes()})
	}
	if r.Split != nil {
		d.Tables = append(d.Tables, page.Table{Rows: splitTable(r.Split)})
	}
	if len(r.Designs) > 0 {
		d.Tables = append(d.Tables, page.Table{Rows: r.designs(), Notes: append(r.floorNotes(),
			r.legend()...), Terms: r.abouts()})
	}
	return d
}

// title distinguishes a report from others beside it.
func (r *Report) title() string {
	title := fmt.Sprintf("%s, limit %s in %v", r.Run.name(), page.Thousands(uint64(r.Run.Limit)),
		r.Run.Window)
	if r.Run.Command == compareCommand { // which has all estimates in one
		return title
	}
	return title + ", " + cmp.Or(r.Run.Algorithm, r.Run.Estimate)
}

// name is what was run, and on what.
func (r *Run) name() string {
	return fmt.Sprintf("%s, %s mode: %s", r.Command, r.Mode, r.Trace+r.Workload)
}

// lines says in a few lines what was run.
func (r *Run) lines() []string {
	out := []string{r.name()}
	about := []string{"seed " + strconv.FormatUint(r.Seed, 10)}
	if r.Start != nil {
		about = append(about, "from "+r.Start.Format(time.RFC3339))
	}
	about = append(about, "over "+r.Duration.Round())
	if r.Speed != 0 && r.Speed != 1 {
		about = append(about, page.Significant(r.Speed)+" times as fast")
	}
	if r.Lines > 0 {
		about = append(about,
			page.Thousands(uint64(r.Lines))+" lines read, "+trace.LinesText(r.Skipped, r.HostNames))
	}
	out = append(out, strings.Join(about, ", "))
	out = append(out, r.ReadLines()...)
	timeout := "block for " + r.MitigationTimeout.String()
	if r.MitigationTimeout == 0 {
		timeout = "throttle"
	}
	counted := "estimate " + r.Estimate
	if r.Algorithm != "" {
		counted = "algorithm " + r.Algorithm
	}
	out = append(out, fmt.Sprintf("limit %s in %v, %d sub-windows, %s, %s",
		page.Thousands(uint64(r.Limit)), r.Window, r.SubWindows, counted, timeout))
	setup := []string{page.Plural(r.Edges, "edge"), page.Plural(r.Nodes, "node")}
	if r.PoPs > 1 {
		setup = append([]string{page.Plural(r.PoPs, "PoP")}, setup...)
	}
	if r.RoundTrip > 0 {
		setup = append(setup, "round trip "+r.RoundTrip.String())
	}
	if r.PerConnection > 0 {
		per := page.Plural(r.PerConnection, "request") + " per connection"
		if r.Streams > 0 {
			per += " of HTTP/2, " + strconv.Itoa(r.Streams) + " at once"
		}
		setup = append(setup, per)
	}
	if r.Skew > 0 {
		setup = append(setup, "clocks up to "+r.Skew.String()+" apart")
	}
	if r.Carrier != "" {
		setup = append(setup, "sources by "+r.Carrier)
	}
	out = append(out, strings.Join(setup, ", "))
	for _, f := range r.Faults {
		out = append(out, "fault: "+f)
	}
	out = append(out, r.Notes...)
	return out
}

// Round writes the duration to a tenth of a second.
func (s Seconds) Round() string { return time.Duration(s).Round(time.Second / 10).String() }

// column is one limiter's figures.
type column struct {
	name string
	of   *judge.Figures
}

// columns are those whose figures stand beside each other.
func (r *Report) columns() []column {
	out := []column{{"this run", &r.Figures}}
	if r.Floor != nil {
		out = append(out, column{"exact, one trip late", r.Floor})
	}
	if r.Baseline != nil {
		out = append(out, column{"two counters", r.Baseline})
	}
	return out
}

// table is the figures in columns. Those that were published are of requests that nobody blocked,
// and stand beside such alone.
func (r *Report) table() [][]string {
	head, columns, theirs := []string{""}, r.columns(), published()
	for _, c := range columns {
		head = append(head, c.name)
	}
	estimator := r.Run.Mode == judge.Estimator.String()
	if estimator {
		head = append(head, "Cloudflare 2017")
	}
	out := [][]string{head}
	for _, row := range rows() {
		cells := []string{row.name}
		for _, c := range columns {
			cells = append(cells, row.value(c.of))
		}
		if estimator {
			cells = append(cells, theirs[row.name])
		}
		if strings.Join(cells[1:], "") != "" {
			out = append(out, cells)
		}
	}
	return out
}

// notes is what it takes to read the table.
func (r *Report) notes() []string {
	var out []string
	for _, p := range r.Broken {
		out = append(out, "PROMISE BROKEN: "+p.String())
	}
	out = append(out, r.floorLines()...)
	if r.Figures.FreeRunningIdeal != nil || r.Figures.SendError != nil {
		out = append(out, "Three numbers in a cell: median / 99th percentile / largest.")
	}
	if r.Baseline != nil {
		out = append(out,
			"Two counters: two plain counters per source on one edge, not rounded, on the same requests.")
	}
	if r.Run.Mode == judge.Estimator.String() {
		out = append(out, "Cloudflare 2017: as published, of 400 million requests of theirs.")
	}
	return out
}

// floorNotes are those lines where the table of designs is the only one.
func (r *Report) floorNotes() []string {
	if r.Run.Command == compareCommand {
		return r.floorLines()
	}
	return nil
}

// floorLines holds wrong decisions against the least that there can be over several edges, and says
// where one edge has it easier.
func (r *Report) floorLines() []string {
	if r.Floor == nil {
		return nil
	}
	times := func(wrong uint64) string {
		return ", " + Times(wrong, r.Floor.Wrong) + " the floor's"
	}
	of := times(r.Figures.Wrong)
	if r.Floor.Wrong == 0 { // of none there are no multiples
		of, times = "; the floor", func(uint64) string { return "" }
	}
	line := fmt.Sprintf("Wrong decisions: %s%s %s (an exact log that learns of other edges one round trip late)",
		page.Thousands(r.Figures.Wrong), of, page.Thousands(r.Floor.Wrong))
	if r.Baseline == nil {
		return []string{line + "."}
	}
	line += fmt.Sprintf("; two counters %s%s.", page.Thousands(r.Baseline.Wrong),
		times(r.Baseline.Wrong))
	if r.Floor.Wrong <= r.Baseline.Wrong {
		return []string{line}
	}
	return []string{line, OneEdge}
}

// OneEdge says why two counters may have fewer wrong decisions than the floor.
const OneEdge = "Two counters are on one edge and know of every request at once. Over several edges no limiter that keeps requests from waiting can, so none is better than the floor here."

// Times writes how many times b is in a.
func Times(a, b uint64) string {
	switch {
	case a == b:
		return "1 times"
	case b == 0:
		return "–"
	}
	return page.Significant(float64(a)/float64(b)) + " times"
}

func splitTable(s *judge.Split) [][]string {
	out := [][]string{{"where it comes from", "wrong", "of requests", "mean gap"}}
	for _, p := range []struct {
		name string
		part judge.SplitPart
	}{{"formula", s.Formula}, {"delay", s.Delay}, {"faults", s.Faults}} {
		out = append(out, []string{p.name, strconv.FormatInt(p.part.Wrong, 10),
			page.Percent(p.part.WrongRatio), page.Percent(p.part.MeanGap)})
	}
	return out
}

// quantiles writes p50 / p99 / max, and nothing where there was no value.
func quantiles(q *judge.Quantiles, write func(float64) string) string {
	if q.N == 0 {
		return ""
	}
	return write(q.P50) + " / " + write(q.P99) + " / " + write(q.Max)
}

func margin(n int, by float64, what string) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%s, up to %s %s", page.Thousands(uint64(n)), page.Percent(by), what)
}
