package report

import (
	"fmt"
	"slices"
	"strings"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// Rival is a limiter that got the trace of a run beside others, one after the other, and what came
// of it. All are judged alike, by what clients see.
type Rival struct {
	Limiter    string        `json:"limiter"`
	Configured string        `json:"configured"` // what it was told, in a sentence
	Costs      []Cost        `json:"costs"`      // of its programs
	CPU        float64       `json:"cpu_per_request"`
	AtRest     float64       `json:"cpu_at_rest"`
	Errors     int           `json:"client_errors"`
	Disturbed  bool          `json:"disturbed,omitempty"` // as Run.Disturbed
	Figures    judge.Figures `json:"figures"`
}

// Cost is the processor time that a request took of one of a limiter's programs, in seconds, and a
// second at rest.
type Cost struct {
	Name    string  `json:"name"`
	Version string  `json:"version,omitempty"`
	CPU     float64 `json:"cpu_per_request"`
	AtRest  float64 `json:"cpu_at_rest"`
}

// rivals is the table of all, a row each.
func (r *Report) rivals() page.Table {
	t := page.Table{Rows: [][]string{{"limiter", "requests", "wrong", "let pass over",
		"refused under", "most in a window", "never over, refused", "over, never refused",
		"blocks ended early", "ended late",
		"first edge p50 ms", "first edge p99 ms", "every edge p50 ms", "every edge p99 ms",
		"µs of CPU", "at rest ms/s", "sent late p99 ms"}}}
	for i := range r.Rivals {
		v := &r.Rivals[i]
		f := &v.Figures
		cells := []string{v.Limiter, page.Thousands(f.Requests), page.Thousands(f.Wrong),
			page.Thousands(f.WronglyAllowed), page.Thousands(f.WronglyLimited),
			page.Thousands(uint64(f.WorstWindow)), page.Thousands(uint64(f.FalsePositiveSources)),
			page.Thousands(uint64(f.FalseNegativeSources))}
		if f.Ends == nil {
			cells = append(cells, "–", "–")
		} else {
			cells = append(cells, page.Thousands(f.Ends.Early), page.Thousands(f.Ends.Late))
		}
		for _, q := range []judge.Quantiles{f.TimeToBlockExact.FirstEdge,
			f.TimeToBlockExact.EveryEdge} {
			if q.N == 0 {
				cells = append(cells, "–", "–")
				continue
			}
			cells = append(cells, page.Significant(q.P50*1000), page.Significant(q.P99*1000))
		}
		t.Rows = append(t.Rows, append(cells, fmt.Sprintf("%.0f", v.CPU*1e6),
			page.Significant(v.AtRest*1e3), page.Significant(f.SendError.P99*1e3)))
		t.Terms = append(t.Terms, [2]string{v.Limiter, v.about()})
	}
	t.Notes = []string{
		"wrong: requests let pass above the limit (let pass over) and refused at or under it (refused under; of a block, only its start)",
		"  by an exact log of what the limiter counts, over all its instances; most in a window: of one source, let pass in any",
		"blocks ended early, late: before or after the time for which the limiter blocks; –: it blocks for no time",
		"first edge, every edge: from the request that is over by that log to the first refusal, and until each instance has refused the source",
		"µs of CPU: processor time a request of all the limiter's processes, on a machine that also sent the load",
		"at rest: what they take in a second without a request, which is in the other figure, too",
		"sent late: by the load, which disturbs a run where it is above a fiftieth of the window",
	}
	return t
}

// about says what a limiter is made of and was told.
func (v *Rival) about() string {
	var programs, times []string
	for _, c := range v.Costs {
		programs = append(programs, strings.TrimSpace(c.Name+" "+c.Version))
		times = append(times, fmt.Sprintf("%.0f", c.CPU*1e6))
	}
	out := strings.Join(programs, ", ") + "; " + strings.Join(times, ", ") + " µs; " + v.Configured
	if v.Errors > 0 {
		out += "; " + page.Plural(v.Errors, "client error")
	}
	if v.Disturbed {
		out += "; DISTURBED: the machine was too busy"
	}
	return out
}

// rivalsAnswer says in a sentence how often each was wrong.
func (r *Report) rivalsAnswer() string {
	var of []string
	for i := range r.Rivals {
		f := &r.Rivals[i].Figures
		of = append(of, fmt.Sprintf("%s %s times (%s)", r.Rivals[i].Limiter,
			page.Thousands(f.Wrong), page.Percent(f.WrongRatio)))
	}
	answer := fmt.Sprintf("About the same %s requests limiters decided wrongly: %s.",
		page.Thousands(r.Rivals[0].Figures.Requests), strings.Join(of, ", "))
	if slices.ContainsFunc(r.Rivals, func(v Rival) bool { return v.Disturbed }) {
		answer += " Disturbed: the machine was too busy to send in time, so this is no measurement."
	}
	return answer
}
