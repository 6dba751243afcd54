package suggest

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"sluice/edge/honest"
)

// Part is what one edge says of a rule's sample.
type Part struct {
	Version uint64    `json:"version"`
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"`
	// All sources that were seen there and have this tag at most are in Sample
	Bound  uint64 `json:"bound"`
	Sample []Peak `json:"sample"` // by tag
}

// Peak is one source: its tag, the most hits in a window, whether that is cut, and of the answers
// before: how many, and how many good ones.
type Peak [5]uint64

func (p *Peak) isCut() bool    { return p[2] > 0 }
func (p *Peak) isHonest() bool { return honest.Looks(p[3], p[4]) }

// with is p with what else is known of the same source.
func (p *Peak) with(o *Peak) {
	p[1], p[2], p[3], p[4] = max(p[1], o[1]), max(p[2], o[2]), p[3]+o[3], p[4]+o[4]
}

// Part is what this edge has seen.
func (s *Sample) Part(now time.Time) *Part {
	s.mu.Lock()
	h, before := s.now.Load(), s.before
	s.mu.Unlock()
	p := h.part()
	if before != nil {
		old := before.part()
		p = &Part{Since: old.Since, Bound: min(p.Bound, old.Bound), Sample: join([]*Part{p, old},
			min(p.Bound, old.Bound))}
		p.cut(Kept)
	}
	p.Version, p.At = s.Version, now
	return p
}

func (h *half) part() *Part {
	l := h.list.Load()
	p := &Part{Since: h.from, Bound: l.bound, Sample: make([]Peak, len(l.tags))}
	for i, s := range l.sources {
		p.Sample[i] = Peak{l.tags[i], uint64(s.peak.Load()), 0, uint64(s.answers.Load()),
			uint64(s.well.Load())}
		if s.cut.Load() {
			p.Sample[i][2] = 1
		}
	}
	return p
}

// join is the sources of all parts whose tag is at most bound, each once.
func join(parts []*Part, bound uint64) (all []Peak) {
	for _, p := range parts {
		for _, s := range p.Sample {
			if s[0] <= bound {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b Peak) int { return cmp.Compare(a[0], b[0]) })
	once := all[:0]
	for i := range all {
		if n := len(once); n > 0 && once[n-1][0] == all[i][0] {
			once[n-1].with(&all[i])
		} else {
			once = append(once, all[i])
		}
	}
	return once
}

func (p *Part) cut(sources int) {
	if len(p.Sample) > sources {
		p.Sample = p.Sample[:sources]
		p.Bound = p.Sample[sources-1][0]
	}
}

// Short is the part as JSON with so many sources at most.
func (p *Part) Short(sources int) json.RawMessage {
	short := *p
	short.cut(sources)
	said, _ := json.Marshal(&short) // numbers
	return said
}

// distinct is about how many sources there are, of n with tags up to bound.
func distinct(n int, bound uint64) uint64 {
	if bound == math.MaxUint64 || n < 2 {
		return uint64(n)
	}
	return uint64(math.Round(float64(n-1) / (float64(bound) / math.MaxUint64)))
}
