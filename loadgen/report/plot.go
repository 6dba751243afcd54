package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// unitFor is a unit for an axis of that length.
func unitFor(d time.Duration) (time.Duration, string) {
	switch {
	case d > 10*time.Hour:
		return time.Hour, "h"
	case d > 10*time.Minute:
		return time.Minute, "min"
	case d > 10*time.Second:
		return time.Second, "s"
	}
	return time.Millisecond, "ms"
}

// seriesChart is a source's estimate and exact count over time.
func seriesChart(s *judge.Series, limit uint32) *page.Chart {
	from, to := s.Points[0].At, s.Points[len(s.Points)-1].At
	unit, name := unitFor(to - from)
	var exact, estimate []page.XY
	for _, pt := range s.Points {
		x := float64(pt.At-from) / float64(unit)
		exact = append(exact, page.XY{X: x, Y: float64(pt.Exact)})
		estimate = append(estimate, page.XY{X: x, Y: pt.Estimate})
	}
	c := page.NewChart(fmt.Sprintf("from %v into the run, %s", from.Round(time.Second), name),
		"requests in the window")
	c.Line("exact", page.Theirs, true, exact)
	c.Line("estimate", page.Ours, true, estimate)
	c.Mark(page.XY{Y: float64(limit)}, page.XY{X: exact[len(exact)-1].X, Y: float64(limit)})
	c.Keys = append(c.Keys, page.Key{Name: "limit", Shade: page.Alarm})
	c.Y.Min = 0
	return c
}

// binsChart is one or two distributions over the same steps, on a logarithmic scale: as counts, or
// as percentages of all.
func binsChart(x, y string, counts bool, a, b judge.Bins) *page.Chart {
	c := page.NewChart(x, y)
	low, high := math.Inf(1), math.Inf(-1) // of the bins that hold anything
	for _, bins := range []judge.Bins{a, b} {
		for i, n := range bins.N {
			if n > 0 {
				at := bins.From + float64(i)*bins.Width
				low, high = min(low, at), max(high, at)
			}
		}
	}
	least := 0.5 // what stands for none, since the scale has no zero
	if !counts {
		least = 0.0005
	}
	for i, bins := range []judge.Bins{b, a} {
		if bins.IsZero() {
			continue
		}
		per := 1.0
		if !counts {
			sum := uint64(0)
			for _, n := range bins.N {
				sum += n
			}
			per = 100 / float64(sum)
		}
		points := []page.XY{{X: 100 * (low - bins.Width), Y: least}}
		for i, n := range bins.N {
			if at := bins.From + float64(i)*bins.Width; at > low-bins.Width/2 &&
				at < high+bins.Width/2 {
				points = append(points, page.XY{X: 100 * at, Y: max(float64(n)*per, least)})
			}
		}
		points = append(points, page.XY{X: 100 * (high + bins.Width), Y: least},
			page.XY{X: 100 * (high + 2*bins.Width), Y: least})
		name, of := "two counters", page.Theirs
		if i == 1 {
			name, of = "this run", page.Ours
		}
		c.Line(name, of, true, points)
	}
	c.Y.Log = true
	c.Y.Min, c.Y.Max = least, max(c.Y.Max*1.3, 20*least)
	return c
}

// blockChart is the share of blocks that were in force within a time.
func blockChart(t *judge.TimeToBlock) *page.Chart {
	unit, name := unitFor(time.Duration(max(t.FirstEdge.Max,
		t.EveryEdge.Max) * float64(time.Second)))
	c := page.NewChart("since the source crossed its limit, "+name, "% of blocks in force")
	for _, e := range []struct {
		name string
		of   page.Shade
		h    *hdrhistogram.Histogram
	}{{"on every edge", page.Theirs, t.EveryEdgeTimes}, {"on the first edge", page.Ours,
		t.FirstEdgeTimes}} {
		if e.h == nil || e.h.TotalCount() == 0 {
			continue
		}
		points := []page.XY{{X: 0, Y: 0}}
		for _, b := range e.h.CumulativeDistribution() {
			points = append(points, page.XY{X: float64(b.ValueAt) / float64(unit), Y: b.Quantile})
		}
		c.Line(e.name, e.of, true, points)
	}
	c.Y.Min, c.Y.Max = 0, 102
	return c
}

// TimelineChart is what became of requests over time, with a mark at every fault.
func TimelineChart(t *judge.Timeline, faults []string) *page.Chart {
	unit, name := unitFor(time.Duration(len(t.Admitted)) * t.Step)
	c := page.NewChart("into the run, "+name, "requests per second")
	top := 0.0
	for _, l := range []struct {
		name   string
		of     page.Shade
		counts []uint32
	}{{"refused", page.Theirs, t.Refused}, {"admitted", page.Ours, t.Admitted}, {"decided wrongly",
		page.Alarm, t.Wrong}, {"no verdict", page.Ink, t.Failed}} {
		var points []page.XY
		highest := 0.0
		for i, n := range l.counts {
			rate := float64(n) / t.Step.Seconds()
			highest = max(highest, rate)
			points = append(points, page.XY{X: float64(i) * float64(t.Step) / float64(unit),
				Y: rate})
		}
		if highest == 0 {
			continue
		}
		top = max(top, highest)
		c.Line(l.name, l.of, true, points)
	}
	for _, f := range faults {
		at, _, _ := strings.Cut(f, " ")
		if d, err := time.ParseDuration(at); err == nil {
			c.Mark(page.XY{X: float64(d) / float64(unit)}, page.XY{X: float64(d) / float64(unit),
				Y: top})
		}
	}
	c.Y.Min, c.Y.Max = 0, max(top*1.05, 1)
	return c
}
