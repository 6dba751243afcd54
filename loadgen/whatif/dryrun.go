package whatif

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// pair is a source under one of a rule's counters.
type pair struct{ source, counter int32 }

type sourceTally struct {
	requests, refused uint64 // that rules were asked about
	challenged        uint64
	good, goodRefused uint64 // those that the trace calls good
	known, answered   uint64 // whose answer is known; with 2xx or 3xx
	called, over      bool
}

type dryRun struct {
	*Report
	o       Options
	t       *trace.Trace
	demands []judge.PerSource[demand] // by rule and counter
	pairs   []map[pair]int32          // by rule: index of all
	all     []RefusedSource
	sent    []sourceTally             // by source
	delays  []*hdrhistogram.Histogram // by rule: of requests that waited; nil: none can

	storySource int32    // the source of Story
	passed      []uint64 // by rule: its requests since they were last refused
}

func (g *dryRun) request(i int) {
	q := &g.t.Requests[i]
	outcome := g.o.DryRun(i)
	f := &g.Figures
	f.Requests++
	step := g.timeline.Index(int64(q.At))
	switch {
	case outcome.Denied:
		f.Denied++
		g.timeline.Refused[step]++
		return
	case outcome.Malformed:
		f.Malformed++
		g.timeline.Refused[step]++
		return
	case outcome.Allowed:
		f.Allowed++
	}
	s := &g.sent[q.Source]
	s.requests++
	good := g.t.Role(i) == trace.Good
	if good {
		s.good++
	}
	answered := q.Status >= 200 && q.Status < 400
	if q.Status != 0 {
		g.Good.Known++
		s.known++
	}
	if answered {
		g.Good.Answered++
		s.answered++
	}
	if outcome.Challenged {
		f.Challenged++
		s.challenged++
	}
	if outcome.Refused {
		f.Refused++
		s.refused++
		g.timeline.Refused[step]++
		if good {
			s.goodRefused++
		}
		if q.Status != 0 {
			g.Good.RefusedKnown++
		}
		if answered {
			g.Good.RefusedAnswered++
		}
	} else {
		g.timeline.Admitted[step]++
	}
	for _, c := range outcome.Results {
		g.ruled(q, &c, answered)
	}
	if g.Story != nil && q.Source == g.storySource {
		g.addRequest(q, &outcome)
	}
}

// ruled takes in what one rule said.
func (g *dryRun) ruled(q *trace.Request, c *RuleResult, answered bool) {
	rule, out := &g.o.Rules[c.Rule], &g.Rules[c.Rule]
	out.Requests++
	d := g.demands[c.Rule].Of(c.Counter)
	n := d.account.Drop(&rule.Truth, int64(q.At), int64(rule.Window))
	if c.Counts {
		d.account.Push(&rule.Truth, int64(q.At))
		n++
	}
	d.now = uint32(min(uint64(n)*uint64(max(1, rule.Units)), math.MaxUint32))
	d.most = max(d.most, d.now)
	if c.Delay > 0 && g.delays[c.Rule] != nil {
		judge.Record(g.delays[c.Rule], int64(c.Delay))
	}
	key := pair{q.Source, c.Counter}
	i, there := g.pairs[c.Rule][key]
	if !there {
		i = int32(len(g.all))
		g.pairs[c.Rule][key] = i
		g.all = append(g.all, RefusedSource{rule: c.Rule, source: q.Source, counter: c.Counter})
	}
	p := &g.all[i]
	p.Requests++
	begins := c.Begins
	if rule.Timeout == 0 {
		// A throttled source is refused now and then; a run of refusals counts as one block
		begins = !p.refuses
	}
	p.refuses = c.Refuses
	if !c.Refuses {
		return
	}
	at := Moment{q.At, g.start}
	if p.Refused == 0 {
		p.First = at
	}
	if out.Refused == 0 {
		out.First = at
	}
	p.Last, out.Last = at, at
	p.Refused++
	out.Refused++
	if begins {
		p.Blocks++
		out.Blocks++
	}
	if answered {
		p.Answered++
	}
}

func (g *dryRun) finish() {
	for i := range g.all {
		p := &g.all[i]
		rule := &g.o.Rules[p.rule]
		p.Most = g.demands[p.rule].Of(p.counter).most
		p.Innocent = p.Most <= rule.Limit
		if !rule.Shadow && !rule.Challenges && !p.Innocent {
			g.sent[p.source].over = true
		}
	}
	for i := range g.sent {
		g.source(i)
	}
	for i := range g.all {
		p := &g.all[i]
		p.Good = g.sent[p.source].called || g.t.Sources[p.source].Role == trace.Good
	}
	g.suggest()
	for r := range g.Rules {
		if h := g.delays[r]; h != nil {
			g.Rules[r].Delay = judge.SecondsOf(h)
		}
		for i := range g.demands[r] {
			if g.demands[r][i].most > g.o.Rules[r].Limit {
				g.Rules[r].Over++
			}
		}
		if !g.o.Rules[r].Shadow && !g.o.Rules[r].Challenges {
			g.Figures.Blocks += g.Rules[r].Blocks
		}
	}
	for i := range g.all {
		p := &g.all[i]
		if p.Refused == 0 {
			continue
		}
		g.Rules[p.rule].RefusedSources++
		rule := &g.o.Rules[p.rule]
		p.Source, p.Rule = g.t.Sources[p.source].Name, rule.Name
		p.Shadow, p.Challenged = rule.Shadow, rule.Challenges
		p.Mean = judge.Ratio(float64(p.Refused), p.Blocks)
		g.Refused = append(g.Refused, *p)
	}
	slices.SortStableFunc(g.Refused, func(a, b RefusedSource) int {
		// What would have been refused, before what would have been asked, and what might
		return cmp.Or(cmp.Compare(btoi(a.Shadow), btoi(b.Shadow)),
			cmp.Compare(btoi(a.Challenged), btoi(b.Challenged)),
			cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.First.Since, b.First.Since))
	})
	g.characterize()
	f := &g.Figures
	f.RefusedRatio = judge.Ratio(float64(f.Refused), f.Requests)
	g.Good.AnsweredRatio = judge.Ratio(float64(g.Good.RefusedAnswered), g.Good.RefusedKnown)
}

// source sums up what became of one source.
func (g *dryRun) source(i int) {
	s, f := &g.sent[i], &g.Figures
	if s.requests == 0 {
		return
	}
	f.Sources++
	if s.refused > 0 {
		f.RefusedSources++
	}
	if s.challenged > 0 {
		f.ChallengedSources++
	}
	if !s.over {
		g.Good.Within.add(s.requests, s.refused)
	}
	addr := g.t.Sources[i].Addr
	if s.called = slices.ContainsFunc(g.o.Good,
		func(p netip.Prefix) bool { return p.Contains(addr) }) || g.o.Answered > 0 && s.known > 0 &&
		float64(s.answered) >= g.o.Answered*float64(s.known); s.called {
		called(&g.Good.Called).add(s.requests, s.refused)
	}
	if s.good > 0 {
		called(&g.Good.Meant).add(s.good, s.goodRefused)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func called(c **Caught) *Caught {
	if *c == nil {
		*c = new(Caught)
	}
	return *c
}
