// Package suggest suggests a limit for a rule: from how near sources come to the one in force, of a
// sample of them.
//
//	every request   Sample.Of: is its source of the sample?    Source.Hits, Source.Cut, Source.Answered   (module.go)
//	every edge      Sample.Part  (edge/view carries it)
//	the asked       Suggest: from the parts of all edges
//
// A sample has the sources with the smallest hashes (Bar-Yossef et al., "Counting distinct elements
// in a data stream", 2002). The hashes are under the PoP's secret, so all edges choose the same
// sources, nobody outside can, and what several edges have seen of one is joined. Of each it has
// the most hits that the rule's counter, which knows the PoP's, has met in one window.
//
// A counter counts no hits that are refused, nor do shadows count those that they would have
// refused: of a source that was over the limit the peak is cut there, and all that is known is that
// it would have been higher.
//
// A sample is of one to two periods: it begins a new half after each, and forgets the half before
// the last. It begins anew when the rule changes.
package suggest

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/edge/honest"
)

const (
	// Kept is how many sources a half of a rule's sample has at most, and Room how many all samples
	// of an edge have together. Each takes 64 bytes, so all take 4 MB.
	Kept = 1024
	Room = 60 << 10
	// Period is how long one half of a sample is, of a rule whose window is not longer than half of
	// it; else it is two windows.
	Period = 24 * time.Hour
)

// Registry has the samples of all rules of an edge. The zero Registry is ready. It is safe for
// concurrent use.
type Registry struct {
	mu      sync.Mutex
	samples map[string]*Sample
	used    atomic.Int64 // of Room
}

// Rule is what a sample is of.
type Rule struct {
	Name    string
	Version uint64 // of what the rule says, the same at all edges
	Window  time.Duration
}

// Set has these rules sampled from now on, and no others, and returns their samples: those of rules
// that have not changed go on.
func (b *Registry) Set(rules []Rule, now time.Time) []*Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, list := make(map[string]*Sample, len(rules)), make([]*Sample, len(rules))
	for i, r := range rules {
		s := b.samples[r.Name]
		if s == nil || s.Rule != r {
			s = &Sample{Rule: r, used: &b.used}
			s.now.Store(newHalf(r.Window, now))
		}
		next[r.Name], list[i] = s, s
	}
	for name, s := range b.samples {
		if next[name] != s {
			s.end()
		}
	}
	b.samples = next
	return list
}

// Sample returns that of a rule; nil: it has none.
func (b *Registry) Sample(rule string) *Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.samples[rule]
}

// Sample is of one rule. It is safe for concurrent use; finding a source in it takes no lock.
type Sample struct {
	Rule
	used *atomic.Int64
	now  atomic.Pointer[half]

	swept atomic.Int64 // Unix nanoseconds

	mu     sync.Mutex
	before *half
	over   bool
}

type half struct {
	from, until time.Time
	list        atomic.Pointer[list]
}

// A list has the sources of a half by their tags, ascending. It is immutable. All that were seen
// and whose tag is at most bound are in it.
type list struct {
	bound   uint64
	tags    []uint64
	sources []*Source
}

func newHalf(window time.Duration, now time.Time) *half {
	h := &half{from: now, until: now.Add(max(Period, 2*window))}
	h.list.Store(&list{bound: math.MaxUint64})
	return h
}

// Of is a source that is there, by its tag; nil: it is not of the sample.
func (s *Sample) Of(tag uint64, of *counter.Source, now time.Time) *Source {
	h := s.now.Load()
	if !now.Before(h.until) {
		h = s.turn(now)
	}
	l := h.list.Load()
	if tag > l.bound {
		return nil
	}
	if i, found := slices.BinarySearch(l.tags, tag); found {
		return l.sources[i].here()
	}
	return s.add(h, tag, of)
}

// turn begins a new half, unless another request has.
func (s *Sample) turn(now time.Time) *half {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.now.Load()
	if now.Before(h.until) || s.over {
		return h
	}
	next := newHalf(s.Window, now)
	s.free(s.before)
	s.before = h
	if now.After(h.until.Add(h.until.Sub(h.from))) { // for so long nobody came
		s.free(h)
		s.before = nil
	}
	s.now.Store(next)
	return next
}

func (s *Sample) free(h *half) {
	if h != nil {
		s.used.Add(-int64(len(h.list.Load().tags)))
	}
}

// end gives the room back. Requests that are under way find those that are there already.
func (s *Sample) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(s.before)
	s.free(s.now.Load())
	s.before, s.over = nil, true
}

// add takes a source into the sample whose tag is not there. With no room for another, that with
// the largest tag makes place.
func (s *Sample) add(h *half, tag uint64, of *counter.Source) *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || h != s.now.Load() {
		return nil
	}
	l := h.list.Load()
	i, found := slices.BinarySearch(l.tags, tag)
	switch {
	case found:
		return l.sources[i].here()
	case tag > l.bound:
		return nil
	}
	n, bound := len(l.tags), l.bound
	full := n == Kept || bound < math.MaxUint64
	if !full && s.used.Add(1) > Room {
		s.used.Add(-1)
		full = true
	}
	if full && i == n { // it would be the largest
		var to uint64
		if n > 0 {
			to = l.tags[n-1]
		}
		h.list.Store(&list{to, l.tags, l.sources})
		return nil
	}
	kept := n
	if full {
		kept = n - 1
	}
	source := &Source{of: *of}
	next := &list{bound: bound, tags: make([]uint64, 0, kept+1), sources: make([]*Source, 0,
		kept+1)}
	next.tags = append(append(append(next.tags, l.tags[:i]...), tag), l.tags[i:kept]...)
	next.sources = append(append(append(next.sources, l.sources[:i]...), source),
		l.sources[i:kept]...)
	if full {
		next.bound = next.tags[kept]
	}
	h.list.Store(next)
	return source
}

// Sweep looks again at the sources that were there in the last window: while they are far below the
// limit, edges tell each other what they have counted only now and then, so their requests meet
// less than they all have. Call it about once a second.
func (s *Sample) Sweep(now time.Time, counted func(counter.Source) (estimate float64, there bool)) {
	if at := s.swept.Load(); now.UnixNano()-at < int64(max(s.Window/looks, time.Second)) {
		return
	}
	s.swept.Store(now.UnixNano())
	for _, source := range s.now.Load().list.Load().sources {
		if source.idle.Load() > looks {
			continue
		}
		source.idle.Add(1)
		if n, there := counted(source.of); there {
			source.Hits(n)
		}
	}
}

// looks is how often in a window sources are looked at again.
const looks = 12

// Source is one of a sample.
type Source struct {
	of            counter.Source
	idle          atomic.Uint32 // looks since it was there
	peak          atomic.Uint32
	answers, well atomic.Uint32 // before it was refused
	cut           atomic.Bool
}

// here notes that a request of it is there.
func (s *Source) here() *Source {
	if s.idle.Load() != 0 {
		s.idle.Store(0)
	}
	return s
}

// Hits notes that the rule's counter has met so many in a window, those of this request included.
func (s *Source) Hits(estimate float64) {
	// A limit is whole: over it is who needs one more
	n := uint32(min(math.Ceil(estimate-1e-6), math.MaxUint32))
	for had := s.peak.Load(); n > had; had = s.peak.Load() {
		if s.peak.CompareAndSwap(had, n) {
			return
		}
	}
}

// Cut notes that a request of it was not counted: it would have had a higher peak.
func (s *Source) Cut() {
	if !s.cut.Load() {
		s.cut.Store(true)
	}
}

// Answered notes the status of an answer of the origin.
func (s *Source) Answered(status int) {
	if s.cut.Load() {
		return
	}
	s.answers.Add(1)
	if honest.IsWell(status) {
		s.well.Add(1)
	}
}
