package whatif

import (
	"math"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// Curve is what a rule alone would have done at other limits than its own.
type Curve struct {
	Rule   string       `json:"rule"`
	Limit  uint32       `json:"limit"` // its own
	Points []CurvePoint `json:"points"`
}

// CurvePoint is what it would have done at one of them.
type CurvePoint struct {
	Limit               uint32  `json:"limit"`
	Refused             uint64  `json:"refused"`
	RefusedRatio        float64 `json:"refused_ratio"`
	RefusedSources      int     `json:"refused_sources"`
	RefusedSourcesRatio float64 `json:"refused_sources_ratio"`
	Blocks              uint64  `json:"blocks"`
	// Requests refused of sources that never exceeded the limit
	Innocent      uint64  `json:"innocent"`
	AnsweredRatio float64 `json:"refused_answered_ratio"` // see GoodTraffic
	// Of the requests called good, or else of those that a workload means well
	Good        *float64 `json:"good_refused_ratio,omitempty"`
	GoodRefused uint64   `json:"good_refused,omitempty"`
	GoodSources int      `json:"good_refused_sources,omitempty"`

	known bool // whether the log has answers
}

// Point is the figures as a point of a curve.
func (r *Report) Point(limit uint32) CurvePoint {
	f := &r.Figures
	p := CurvePoint{
		Limit: limit, Refused: f.Refused, RefusedRatio: f.RefusedRatio,
		RefusedSources:      f.RefusedSources,
		RefusedSourcesRatio: judge.Ratio(float64(f.RefusedSources), uint64(f.Sources)),
		Blocks:              f.Blocks, Innocent: r.Good.Within.Refused,
		AnsweredRatio: r.Good.AnsweredRatio,
		known:         r.Good.RefusedKnown > 0,
	}
	for _, c := range []*Caught{r.Good.Called, r.Good.Meant} {
		if c != nil && p.Good == nil {
			p.Good, p.GoodRefused, p.GoodSources = &c.RefusedRatio, c.Refused, c.RefusedSources
		}
	}
	return p
}

// LimitsAround is a geometric series of limits, two for each doubling, from an eighth of the given
// one to eight times it.
func LimitsAround(limit, most uint32) (limits []uint32) {
	for i := -6; i <= 6; i++ {
		l := uint32(min(math.Round(float64(limit)*math.Pow(2, float64(i)/2)), float64(most)))
		if l > 0 && (len(limits) == 0 || l > limits[len(limits)-1]) {
			limits = append(limits, l)
		}
	}
	return limits
}

// chart draws both shares over the limit.
func (c *Curve) chart() *page.Chart {
	p := page.NewChart("limit", "% refused")
	for _, l := range []struct {
		name string
		of   page.Shade
		y    func(*CurvePoint) float64
	}{
		{"of sources", page.Theirs, func(p *CurvePoint) float64 { return p.RefusedSourcesRatio }},
		{"of requests", page.Ours, func(p *CurvePoint) float64 { return p.RefusedRatio }},
	} {
		var points []page.XY
		for i := range c.Points {
			points = append(points, page.XY{X: float64(c.Points[i].Limit),
				Y: 100 * l.y(&c.Points[i])})
		}
		p.Line(l.name, l.of, false, points)
	}
	p.X.Log, p.X.Ticks = true, limitTicks(c.Points)
	p.Y.Min = 0
	p.Y.Max = max(p.Y.Max, 0.1)
	p.Mark(page.XY{X: float64(c.Limit)}, page.XY{X: float64(c.Limit), Y: p.Y.Max})
	p.Keys = append(p.Keys, page.Key{Name: "the rule's limit", Shade: page.Alarm})
	return p
}

// limitTicks marks the limits of a curve, every other one with its number.
func limitTicks(points []CurvePoint) (out []page.Tick) {
	for i, p := range points {
		t := page.Tick{Value: float64(p.Limit)}
		if i%2 == 0 {
			t.Label = page.Thousands(uint64(p.Limit))
		}
		out = append(out, t)
	}
	return out
}
