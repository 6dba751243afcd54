package tryout

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"sluice/counter"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/top"
)

const (
	// MaxSources is how many sources of a try are remembered.
	MaxSources = shards * perShard
	shards     = 64
	perShard   = 512
	looked     = 8 // entries, for one that may go
)

// Run is a try on this edge. It is safe for concurrent use.
type Run struct {
	Order
	Since time.Time // it has been observed here
	tally *rules.Tally
	ended atomic.Int64 // when it was stopped, Unix nanoseconds; 0: it was not

	requests, refused, moot atomic.Uint64
	// Of the refused: those that an origin has answered, and with 2xx or 3xx
	known, well atomic.Uint64
	forgotten   atomic.Uint64 // sources that made room, or found none
	unlisted    atomic.Uint64 // refusals of sources for which there was no room
	heavy       *top.Top
	hasher      counter.Hasher
	table       [shards]shard
}

type shard struct {
	mu      sync.Mutex
	sources map[counter.Source]*source
}

// A source is what is known of one.
type source struct {
	requests, refused uint32
	answers, well     uint32 // before the first refusal
	start             key.Start
}

func newRun(o Order, now time.Time) *Run {
	r := &Run{Order: o, Since: now, tally: rules.NewTally(), heavy: top.New(),
		hasher: counter.NewHasher(0)}
	for i := range r.table {
		r.table[i].sources = make(map[counter.Source]*source)
	}
	return r
}

func (r *Run) shard(s *counter.Source) *shard { return &r.table[r.hasher.Of(s)%shards] }

// decided counts a request that the try was asked about.
func (r *Run) decided(t *rules.TriedResult) {
	if t.Moot {
		r.moot.Add(1)
		return
	}
	r.requests.Add(1)
	h := r.shard(&t.Source)
	h.mu.Lock()
	s := h.sources[t.Source]
	if s == nil {
		if s = h.room(&r.forgotten); s != nil {
			s.start = t.Start
			h.sources[t.Source] = s
		}
	}
	if s != nil {
		s.requests++
		if t.Refuses {
			s.refused++
		}
	}
	h.mu.Unlock()
	if t.Refuses {
		r.refused.Add(1)
		r.heavy.Hit(t.Source)
		if s == nil {
			r.unlisted.Add(1)
		}
	}
}

// room is a new entry, perhaps in place of one that nothing was to be refused of; nil: there is
// none of these. mu is locked.
func (h *shard) room(forgotten *atomic.Uint64) *source {
	if len(h.sources) < perShard {
		return new(source)
	}
	forgotten.Add(1)
	n := 0
	for of, s := range h.sources { // in no order
		if s.refused == 0 {
			delete(h.sources, of)
			return new(source)
		}
		if n++; n == looked {
			break
		}
	}
	return nil
}

// answered notes the origin's answer to a request that the try was asked about.
func (r *Run) answered(t *rules.TriedResult, status int) {
	if t.Moot {
		return
	}
	well := IsWell(status)
	if t.Refuses {
		r.known.Add(1)
		if well {
			r.well.Add(1)
		}
		return
	}
	h := r.shard(&t.Source)
	h.mu.Lock()
	if s := h.sources[t.Source]; s != nil && s.refused == 0 {
		s.answers++
		if well {
			s.well++
		}
	}
	h.mu.Unlock()
}

// bytes is about how much memory the run takes.
func (r *Run) bytes() int {
	n := int(unsafe.Sizeof(*r)) + int(unsafe.Sizeof(*r.heavy))
	for i := range r.table {
		h := &r.table[i]
		h.mu.Lock()
		// A map has room for up to as many again
		n += 2 * len(h.sources) * int(unsafe.Sizeof(counter.Source{})+8)
		n += len(h.sources) * int(unsafe.Sizeof(source{}))
		h.mu.Unlock()
	}
	return n
}

// Runs are the tries that requests are told to. It is immutable; nil: there are none.
type Runs struct{ list []*Run }

// Rules are the rules that are tried.
func (r *Runs) Rules() (list []rules.Config) {
	if r == nil {
		return nil
	}
	for _, run := range r.list {
		list = append(list, run.Rule)
	}
	return list
}

// Tally is of the rule of a name.
func (r *Runs) Tally(name string) *rules.Tally {
	for _, run := range r.list {
		if run.Rule.Name == name {
			return run.tally
		}
	}
	return rules.NewTally() // of none: nobody reads it
}

func (r *Runs) of(t *rules.TriedResult) *Run {
	for _, run := range r.list {
		if run.tally == t.Tally {
			return run
		}
	}
	return nil
}

// Decided counts a request by what the tries say of it.
func (r *Runs) Decided(list []rules.TriedResult) {
	for i := range list {
		if run := r.of(&list[i]); run != nil {
			run.decided(&list[i])
		}
	}
}

// Answered notes the status of the origin's answer to it.
func (r *Runs) Answered(list []rules.TriedResult, status int) {
	for i := range list {
		if run := r.of(&list[i]); run != nil {
			run.answered(&list[i], status)
		}
	}
}

// Registry has the tries of an edge: those that run, and the last of those that have ended. The
// zero Registry has none. It is safe for concurrent use.
type Registry struct {
	mu    sync.Mutex
	runs  *Runs
	ended []*Run // the latest first
}

// Set has these run from now on: those that did go on, and others have ended.
func (b *Registry) Set(list []Order, now time.Time) *Runs {
	b.mu.Lock()
	defer b.mu.Unlock()
	var before []*Run
	if b.runs != nil {
		before = b.runs.list
	}
	var next *Runs
	for i := range list {
		at := slices.IndexFunc(before, func(r *Run) bool { return r.Is(&list[i]) })
		run := (*Run)(nil)
		if at >= 0 {
			run = before[at]
			before = slices.Delete(slices.Clone(before), at, at+1)
		} else {
			run = newRun(list[i], now)
		}
		if next == nil {
			next = new(Runs)
		}
		next.list = append(next.list, run)
	}
	for _, run := range before {
		if now.Before(run.Until) {
			run.ended.Store(now.UnixNano()) // it was stopped
		}
		b.ended = append([]*Run{run}, b.ended...)
	}
	b.ended = b.ended[:min(len(b.ended), MaxRuns)]
	b.runs = next
	return next
}

// All are the tries that run, the first that began first, and then those that have ended, the
// latest first.
func (b *Registry) All() (running, ended []*Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs != nil {
		running = slices.Clone(b.runs.list)
	}
	return running, slices.Clone(b.ended)
}

// Run is the latest try of a name, and whether it runs; nil: there is none.
func (b *Registry) Run(name string) (*Run, bool) {
	running, ended := b.All()
	for _, r := range running {
		if r.Name == name {
			return r, true
		}
	}
	for _, r := range ended {
		if r.Name == name {
			return r, false
		}
	}
	return nil, false
}
