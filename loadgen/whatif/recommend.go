package whatif

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/report"
)

// Busiest is how much sources send at most: of each counter under a rule, the busiest window, by
// the exact log, nobody refused.
type Busiest struct {
	Sources int    `json:"sources"`
	P50     uint32 `json:"p50"`
	P99     uint32 `json:"p99"`
	P999    uint32 `json:"p99_9"`
	Most    uint32 `json:"most"`
	Good    uint32 `json:"most_of_good"` // the busiest window of a source called good
	Who     string `json:"most_of_good_source,omitempty"`
	Knee    uint32 `json:"knee"` // see knee
}

// Recommendation is the limit that a log suggests for a rule.
type Recommendation struct {
	Rule   string         `json:"rule"`
	Limit  uint32         `json:"limit"` // 0: there is none
	Now    uint32         `json:"now"`   // the rule's
	Keep   bool           `json:"keep"`  // both are exceeded by the same sources
	Over   int            `json:"over"`  // sources that exceed the limit
	Window report.Seconds `json:"window"`
	Reason string         `json:"reason"`
}

// NextSource is one of those that would be next if a limit were lower.
type NextSource struct {
	Source   string `json:"source"`
	Rule     string `json:"rule"`
	Most     uint32 `json:"most"` // in any window: refused by a limit below this
	Requests uint64 `json:"requests"`
	Good     bool   `json:"good"`
}

// nexts is how many of them are shown of a rule.
const nexts = 5

// fewest is how many sources a recommendation needs.
const fewest = 20

// busiest sums up the busiest windows of a rule's counters, in order.
func busiest(most []uint32) Busiest {
	if len(most) == 0 {
		return Busiest{}
	}
	at := func(share float64) uint32 { return most[int(math.Ceil(share*float64(len(most))))-1] }
	return Busiest{Sources: len(most), P50: at(0.5), P99: at(0.99), P999: at(0.999),
		Most: most[len(most)-1], Knee: knee(most)}
}

// knee is the limit beyond which raising it spares few more. Of the busiest hundredth of the
// sources, the number that is over a limit falls as the limit grows: drawn with both axes
// logarithmic, steeply as far as people go, and then hardly, for the few that are far above. The
// knee is where that curve is farthest below the straight line between its ends (Satopää, Albrecht,
// Irwin, Raghavan: "Finding a 'kneedle' in a haystack", 2011). Where it is hardly below, nobody
// stands out, and the knee is its end.
func knee(most []uint32) uint32 {
	const hardly = 0.1
	busy := most[len(most)-min(len(most), max(fewest, len(most)/100)):]
	first, last := busy[0], busy[len(busy)-1]
	best, at, all := hardly, last, 0
	for i, v := range busy {
		if i+1 < len(busy) && busy[i+1] == v {
			continue
		}
		if v == first {
			all = len(busy) - i
		}
		x := math.Log(float64(v)/float64(first)) / math.Log(float64(last)/float64(first))
		y := math.Log(float64(len(busy)-i)) / math.Log(float64(all))
		if below := 1 - x - y; below > best {
			best, at = below, v
		}
	}
	return at
}

// headroom is what is left above the busiest window of a good source: next week's is another.
const headroom = 1.25

// far is how much more than half of the sources the busiest one may make where nobody is said to
// stand out: a log of an attack by more than a hundredth of the sources has its knee at the end,
// too, and a limit above that would let all of it pass.
const far = 50

// recommend suggests a limit: the knee, or where a good source is above it, that with some
// headroom.
func recommend(o *RuleOutcome, truth *judge.Truth, most []uint32) Recommendation {
	b := &o.Busiest
	r := Recommendation{Rule: o.Name, Now: o.Limit, Window: o.Window}
	if o.Lacks != "" {
		r.Reason = "it asks for " + o.Lacks + ", which the log does not have"
		return r
	}
	if truth.Interval > 0 {
		r.Reason = "a bucket has a rate and a size, and one number does not give both: the curve shows other rates"
		return r
	}
	if b.Sources < fewest {
		r.Reason = page.Plural(b.Sources, "source") + " under it " + map[bool]string{true: "is",
			false: "are"}[b.Sources == 1] + " too few to suggest a limit"
		return r
	}
	over := func(limit uint32) int {
		i, _ := slices.BinarySearch(most, limit+1)
		return len(most) - i
	}
	good := headroom * float64(b.Good)
	r.Limit = round(max(float64(b.Knee), good))
	r.Over = over(r.Limit)
	if r.Keep = r.Over == over(o.Limit); r.Keep {
		r.Limit = o.Limit
	}
	above := fmt.Sprintf("%s of %s sources (%s) made more", page.Thousands(uint64(r.Over)),
		page.Thousands(uint64(b.Sources)), page.Percent(judge.Ratio(float64(r.Over),
			uint64(b.Sources))))
	if r.Over == 0 {
		above = "nobody made more"
	}
	theirs := fmt.Sprintf("the busiest source called good, %s, made %s", b.Who,
		page.Thousands(uint64(b.Good)))
	switch {
	case r.Over == 0 && good <= float64(b.Knee) && b.Most >= far*b.P50:
		if good > float64(o.Limit) {
			r.Limit = round(good)
			r.Over = over(r.Limit)
			r.Reason = theirs + ", which leaves it some room"
			break
		}
		r.Limit, r.Keep = 0, false
		r.Reason = fmt.Sprintf("the busiest source made %s, %s times what half of them make, and no gap parts the busy ones: this may be an attack",
			page.Thousands(uint64(b.Most)), page.Thousands(uint64(b.Most/max(b.P50, 1))))
		if b.Good > 0 {
			r.Reason += "; " + theirs
		} else {
			r.Reason += "; say with --good who must not be refused"
		}
	case good > float64(b.Knee):
		r.Reason = theirs + ", which leaves it some room, and " + above
	case r.Over == 0:
		r.Reason = fmt.Sprintf("nobody stands out, and the busiest source made %s",
			page.Thousands(uint64(b.Most)))
	default:
		r.Reason = above + ", and a higher limit would spare few of them"
		if b.Good > 0 {
			r.Reason += "; " + theirs
		}
	}
	return r
}

// round is the least number that is no less and has two digits that matter.
func round(v float64) uint32 {
	step := math.Pow(10, max(math.Floor(math.Log10(max(v, 1)))-1, 0))
	return uint32(min(math.Ceil(v/step-1e-9)*step, 1e9))
}

// String is the recommendation in a sentence.
func (r *Recommendation) String() string {
	window := r.Window.String()
	switch {
	case r.Limit == 0:
		return fmt.Sprintf("No limit to recommend for %s: %s.", r.Rule, r.Reason)
	case r.Keep:
		return fmt.Sprintf("Keep %s's limit of %s in %s: %s.", r.Rule,
			page.Thousands(uint64(r.Limit)), window, r.Reason)
	}
	verb := "Raise"
	if r.Limit < r.Now {
		verb = "Lower"
	}
	return fmt.Sprintf("%s %s's limit from %s to %s in %s: %s.", verb, r.Rule,
		page.Thousands(uint64(r.Now)), page.Thousands(uint64(r.Limit)), window, r.Reason)
}

// recommendation is the answer to which limit it should be, in a sentence: of one rule its own, of
// several which should change.
func (r *Report) recommendation() string {
	if len(r.Recommended) == 1 {
		return r.Recommended[0].String()
	}
	var change, keep, none []string
	var one *Recommendation
	for i := range r.Recommended {
		switch c := &r.Recommended[i]; {
		case c.Limit == 0:
			none = append(none, c.Rule)
		case c.Keep:
			keep = append(keep, c.Rule)
		default:
			change, one = append(change, fmt.Sprintf("%s from %s to %s", c.Rule,
				page.Thousands(uint64(c.Now)), page.Thousands(uint64(c.Limit)))), c
		}
	}
	switch {
	case len(change) == 1:
		return one.String()
	case len(change) > 1:
		return "Change the limits of " + join(change) +
			": there each rule's sources part, or whoever is called good has some room."
	case len(keep) == 0:
		return "No limit to recommend for " + join(none) + ": " + r.Recommended[0].Rule +
			", because " + r.Recommended[0].Reason + "; --json has the other reasons."
	case len(none) > 0:
		return "Keep the limits of " + join(keep) +
			": those that the traffic of each rule suggests are exceeded by the same sources. None to recommend for " + join(none) + "."
	}
	return "Keep all limits: those that the traffic of each rule suggests are exceeded by the same sources."
}

// join lists things as people do.
func join(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	all := ""
	for i, s := range list[:len(list)-1] {
		if i > 0 {
			all += ", "
		}
		all += s
	}
	return all + " and " + list[len(list)-1]
}

// suggest fills in what the busiest windows say.
func (g *dryRun) suggest() {
	for i := range g.all {
		if p := &g.all[i]; p.Good {
			b := &g.Rules[p.rule].Busiest
			if p.Most > b.Good {
				b.Good, b.Who = p.Most, g.t.Sources[p.source].Name
			}
		}
	}
	for i := range g.Rules {
		o := &g.Rules[i]
		var most []uint32
		for j := range g.demands[i] {
			if m := g.demands[i][j].most; m > 0 {
				most = append(most, m)
			}
		}
		slices.Sort(most)
		good, who := o.Busiest.Good, o.Busiest.Who
		o.Busiest = busiest(most)
		o.Busiest.Good, o.Busiest.Who = good, who
		g.Recommended = append(g.Recommended, recommend(o, &g.o.Rules[i].Truth, most))
		g.next(i)
	}
}

// next finds who is next below a rule's limit.
func (g *dryRun) next(rule int) {
	var list []*RefusedSource
	for i := range g.all {
		if p := &g.all[i]; p.rule == rule && p.Innocent && p.Most > 0 {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b *RefusedSource) int {
		return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(b.Requests, a.Requests))
	})
	for _, p := range list[:min(nexts, len(list))] {
		g.Next = append(g.Next, NextSource{Source: g.t.Sources[p.source].Name,
			Rule: g.o.Rules[rule].Name, Most: p.Most, Requests: p.Requests, Good: p.Good})
	}
}

func (r *Report) busiestTable() [][]string {
	out := [][]string{{"busiest windows", "sources", "half", "99 %", "99.9 %", "most", "knee",
		"limit", "suggested"}}
	stated := false
	for i := range r.Rules {
		stated = stated || r.Rules[i].Busiest.Good > 0
	}
	if stated {
		out[0] = slices.Insert(out[0], 6, "of the good")
	}
	for i := range r.Rules {
		o, c := &r.Rules[i], &r.Recommended[i]
		suggested := "none"
		switch {
		case c.Keep:
			suggested = "keep"
		case c.Limit > 0:
			suggested = page.Thousands(uint64(c.Limit))
		}
		cells := []string{"of " + o.Name}
		for _, n := range []uint32{uint32(o.Busiest.Sources), o.Busiest.P50, o.Busiest.P99,
			o.Busiest.P999, o.Busiest.Most, o.Busiest.Knee, o.Limit} {
			cells = append(cells, page.Thousands(uint64(n)))
		}
		cells = append(cells, suggested)
		if stated {
			cells = slices.Insert(cells, 6, page.Thousands(uint64(o.Busiest.Good)))
		}
		out = append(out, cells)
	}
	return out
}

func (r *Report) nextTable() [][]string {
	several := len(r.Rules) > 1
	out := [][]string{{"who would be next", "by a limit below", "requests"}}
	if several {
		out[0] = slices.Insert(out[0], 1, "rule")
	}
	for i := range r.Next {
		n := &r.Next[i]
		cells := []string{n.Source, page.Thousands(uint64(n.Most)), page.Thousands(n.Requests)}
		if several {
			cells = slices.Insert(cells, 1, n.Rule)
		}
		if n.Good {
			cells = append(cells, "good")
		}
		out = append(out, cells)
	}
	return out
}
