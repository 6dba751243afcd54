package edge

import (
	"encoding/json"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/peaks"
	"sluice/edge/rules"
	"sluice/edge/view"
)

// samplePeaks has a sample of sources kept of each rule that a limit can be suggested for.
func (s *Server) samplePeaks(set *rules.Set) {
	var list []peaks.Rule
	var of []*rules.Rule
	for _, r := range set.Rules {
		if r.Config.HasPeaks() == nil {
			list = append(list, peaks.Rule{Name: r.Config.Name, Version: peaksVersion(&r.Config),
				Window: time.Duration(r.Config.Window)})
			of = append(of, r)
		}
	}
	for i, sample := range s.peaks.Set(list, time.Now()) {
		of[i].Peaks = sample
	}
}

// sweepPeaks takes in what the counters have learned since the last requests of sampled sources.
func (s *Server) sweepPeaks(now time.Time) {
	for _, r := range s.snap.Load().rules.Rules {
		if r.Peaks != nil && len(r.Limits) > 0 {
			r.Peaks.Sweep(now, func(source counter.Source) (float64, bool) {
				v, there := s.limiter.Counters.Peek(r.Limits[0].Counter, source, now)
				return v.Estimate, there
			})
		}
	}
}

// peaksVersion is the same at all edges that have the rule as it is.
func peaksVersion(rule *rules.Config) uint64 { return config.Hash([]rules.Config{*rule}) }

// Peaks is what this edge has seen of the sources of a rule; nil: no sample is kept of it.
func (s *Server) Peaks(rule string, now time.Time) *peaks.Part {
	sample := s.peaks.Sample(rule)
	if sample == nil {
		return nil
	}
	return sample.Part(now)
}

// AnswerPeaks adds to a part what this edge says of the sources of a rule.
func (s *Server) AnswerPeaks(p *view.Part, question, rule string, now time.Time) {
	part := s.Peaks(rule, now)
	if part == nil {
		p.Answer(question, json.RawMessage(`{}`)) // there is no such version
		return
	}
	short := func(sources int) func() json.RawMessage { return func() json.RawMessage { return part.Short(sources) } }
	p.Answer(question, part.Short(peaks.Kept), short(peaks.Kept/2), short(peaks.Kept/4))
}
