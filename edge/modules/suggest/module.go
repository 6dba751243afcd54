package suggest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/beat"
	"sluice/edge/config"
	"sluice/edge/limiter"
	"sluice/edge/operator"
	"sluice/edge/rules"
	"sluice/edge/view"
)

// A module is what all configurations have in common.
type module struct {
	registry Registry
	inForce  atomic.Pointer[points]
}

// Module suggests limits.
func Module() edge.Module {
	m := new(module)
	return edge.Module{Name: "suggest", Prepare: m.prepare, Answer: m.answer,
		Run:    func(ctx context.Context) { beat.Every(ctx, time.Second, m.sweep) },
		Routes: m.routes(), Commands: []operator.Command{command()}}
}

// points are the module under one configuration.
type points struct {
	setup   *edge.Setup
	samples []*Sample // by the place of their rules in the set; nil: none is kept
}

func (m *module) prepare(s *edge.Setup) (edge.Points, error) {
	p := &points{setup: s}
	return edge.Points{Observers: []edge.Observer{{Decided: p.decided}},
		InForce: func() { m.putInForce(p) }}, nil
}

// putInForce has a sample of sources kept of each rule that a limit can be suggested for.
func (m *module) putInForce(p *points) {
	set := p.setup.Made
	p.samples = make([]*Sample, len(set.Rules))
	var list []Rule
	var of []int
	for i, r := range set.Rules {
		if hasPeaks(&r.Config) == nil {
			list = append(list, Rule{Name: r.Config.Name, Version: version(&r.Config),
				Window: time.Duration(r.Config.Window)})
			of = append(of, i)
		}
	}
	for i, sample := range m.registry.Set(list, time.Now()) {
		p.samples[of[i]] = sample
	}
	m.inForce.Store(p)
}

// version is the same at all edges that have the rule as it is.
func version(rule *rules.Config) uint64 { return config.Hash([]rules.Config{*rule}) }

// hasPeaks returns why no limit can be suggested for a rule; nil: its sources' peaks say one.
func hasPeaks(c *rules.Config) error {
	switch {
	case c.Limit == 0:
		return errors.New("it counts nothing, so nothing says how much of a limit sources use")
	case c.HasPlans():
		return errors.New("it has a limit for each plan, and which clients are on a plan decides of them: sluice usage shows what one has used")
	case c.Match.Descriptors != nil:
		return errors.New("proxies ask it by descriptors, and the edge sees none of the answers that would say who looks honest")
	case c.Algorithm != rules.Sliding && c.Algorithm != rules.Fixed:
		return errors.New("its algorithm is " + string(c.Algorithm) +
			", and limits are suggested for those that count in windows: sliding and fixed")
	}
	return nil
}

// decided notes how near the request's sources have come to the limits of their rules, and appends
// those that are of a sample.
func (p *points) decided(d *rules.Decision, now time.Time, to []edge.Told) []edge.Told {
	for r, results := range d.EachResult {
		result := &results[0]
		if r.Place < 0 || p.samples[r.Place] == nil || result.Rule != &r.Rule || result.Probe {
			continue
		}
		source := p.samples[r.Place].Of(p.setup.Secret.Tag("", result.Source), &result.Source, now)
		if source == nil {
			continue
		}
		ask := result.Reservation
		if ask != nil {
			source.Hits(ask.Estimate)
		}
		if counted := ask != nil && (ask.Always || !ask.Over && !d.Refused()); !counted ||
			result.Verdict == limiter.Mitigated {
			source.Cut()
		}
		to = append(to, source)
	}
	return to
}

// sweep takes in what the counters have learned since the last requests of sampled sources.
func (m *module) sweep(now time.Time) {
	p := m.inForce.Load()
	for i, r := range p.setup.Made.Rules {
		if p.samples[i] != nil && len(r.Limits) > 0 {
			p.samples[i].Sweep(now, func(source counter.Source) (float64, bool) {
				v, there := p.setup.Limiter.Counters.Peek(r.Limits[0].Counter, source, now)
				return v.Estimate, there
			})
		}
	}
}

// part is what this edge has seen of the sources of a rule; nil: no sample is kept of it.
func (m *module) part(rule string, now time.Time) *Part {
	sample := m.registry.Sample(rule)
	if sample == nil {
		return nil
	}
	return sample.Part(now)
}

// about begins the question what an edge has seen of the sources of a rule.
const about = "peaks "

// answer adds to a part what this edge says of the sources of a rule.
func (m *module) answer(p *view.Part, question string, now time.Time) bool {
	rule, is := strings.CutPrefix(question, about)
	if !is {
		return false
	}
	part := m.part(rule, now)
	if part == nil {
		p.Answer(question, json.RawMessage(`{}`)) // there is no such version
		return true
	}
	short := func(sources int) func() json.RawMessage { return func() json.RawMessage { return part.Short(sources) } }
	p.Answer(question, part.Short(Kept), short(Kept/2), short(Kept/4))
	return true
}
