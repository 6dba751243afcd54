package judge

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Series is what a limiter thought of one source, and what was true, in the stretch of time around
// its worst gap.
type Series struct {
	Source int32
	Points []Point
}

// Point is one request of a Series.
type Point struct {
	At       time.Duration
	Exact    uint32
	Estimate float64
}

// seriesHalf is how many points of a Series lie before the worst gap, and how many after it at
// most.
const seriesHalf = 512

// seriesSet keeps, for some sources, the latest points and those around the worst.
type seriesSet struct {
	half    float64 // gaps count from this exact number on: of few requests, any gap is wide
	watched map[int32]*watch
}

type watch struct {
	latest []Point // a ring, once it is full
	next   int
	kept   []Point // what was latest at the worst gap, and what came then
	after  int     // how many more are to be kept
	worst  float64
}

func newSeriesSet(sources []int32, limit uint32) seriesSet {
	if len(sources) == 0 {
		return seriesSet{}
	}
	w := make(map[int32]*watch, len(sources))
	for _, s := range sources {
		w[s] = new(watch)
	}
	return seriesSet{float64(limit) / 2, w}
}

func (s *seriesSet) add(source int32, at int64, estimate float64, exact uint32) {
	w := s.watched[source]
	if w == nil || math.IsNaN(estimate) {
		return
	}
	p := Point{time.Duration(at), exact, estimate}
	if len(w.latest) < seriesHalf {
		w.latest = append(w.latest, p)
	} else {
		w.latest[w.next] = p
		w.next = (w.next + 1) % seriesHalf
	}
	if gap := math.Abs(estimate - float64(exact)); float64(exact) >= s.half && gap > w.worst {
		w.worst = gap
		w.kept = append(append(w.kept[:0], w.latest[w.next:]...), w.latest[:w.next]...)
		w.after = seriesHalf
	} else if w.after > 0 {
		w.after--
		w.kept = append(w.kept, p)
	}
}

// list is the series in the order of their sources. One without any gap shows its latest points.
func (s *seriesSet) list() []Series {
	var out []Series
	for source, w := range s.watched {
		points := w.kept
		if len(points) == 0 {
			points = append(slices.Clone(w.latest[w.next:]), w.latest[:w.next]...)
		}
		if len(points) > 0 {
			out = append(out, Series{source, points})
		}
	}
	slices.SortFunc(out, func(a, b Series) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

// Timeline counts what happened in each step of a run. When the run outgrows its number of steps,
// they become twice as long.
type Timeline struct {
	Step                             time.Duration
	Admitted, Refused, Failed, Wrong []uint32
}

const (
	timelineStep  = 10 * time.Millisecond
	timelineSteps = 512
)

// Index is the step of a time, made if it is not there yet.
func (t *Timeline) Index(at int64) int {
	if t.Step == 0 {
		t.Step = timelineStep
	}
	for at/int64(t.Step) >= timelineSteps {
		for _, s := range []*[]uint32{&t.Admitted, &t.Refused, &t.Failed, &t.Wrong} {
			for i := range *s {
				if n := (*s)[i]; i%2 == 0 {
					(*s)[i/2] = n
				} else {
					(*s)[i/2] += n
				}
			}
			*s = (*s)[:(len(*s)+1)/2]
		}
		t.Step *= 2
	}
	i := int(max(0, at) / int64(t.Step))
	for len(t.Admitted) <= i {
		t.Admitted, t.Refused = append(t.Admitted, 0), append(t.Refused, 0)
		t.Failed, t.Wrong = append(t.Failed, 0), append(t.Wrong, 0)
	}
	return i
}
