package try

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/honest"
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

// A source is what is known of one. The shard's mu guards requests and start.
type source struct {
	requests      uint32
	refused       atomic.Uint32
	answers, well atomic.Uint32 // before the first refusal
	start         key.Start
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

// decided counts a request that the try was asked about, and returns what is told how the origin
// answers it; nil: nothing is.
func (r *Run) decided(t *rules.TrialResult) edge.Told {
	if t.Moot {
		r.moot.Add(1)
		return nil
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
			s.refused.Add(1)
		}
	}
	h.mu.Unlock()
	switch {
	case t.Refuses:
		r.refused.Add(1)
		r.heavy.Hit(t.Source)
		if s == nil {
			r.unlisted.Add(1)
		}
		return refusal{r}
	case s == nil:
		return nil
	}
	return s
}

// A refusal is a request that the try would have refused. It is one pointer, so telling it
// allocates nothing.
type refusal struct{ of *Run }

// Answered notes that the origin has answered it.
func (r refusal) Answered(status int) {
	r.of.known.Add(1)
	if honest.IsWell(status) {
		r.of.well.Add(1)
	}
}

// Answered notes the origin's answer to a request of the source that the try would have let pass.
func (s *source) Answered(status int) {
	if s.refused.Load() > 0 {
		return
	}
	s.answers.Add(1)
	if honest.IsWell(status) {
		s.well.Add(1)
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
		if s.refused.Load() == 0 {
			delete(h.sources, of)
			return new(source)
		}
		if n++; n == looked {
			break
		}
	}
	return nil
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

// Runs are the tries that requests are told to. It is immutable.
type Runs []*Run

// trials are their rules.
func (all Runs) trials() []rules.Trial {
	list := make([]rules.Trial, len(all))
	for i, r := range all {
		list[i] = rules.Trial{Config: r.Rule, Tally: r.tally}
	}
	return list
}

// Decided counts a request by what the tries say of it that are not over, and appends what is told
// how the origin answers it.
func (all Runs) Decided(d *rules.Decision, now time.Time, to []edge.Told) []edge.Told {
	for t := range d.Trials {
		for _, r := range all {
			if r.tally != t.Tally {
				continue
			}
			if !now.Before(r.End()) {
				break
			}
			if told := r.decided(&t); told != nil {
				to = append(to, told)
			}
			break
		}
	}
	return to
}

// Registry has the tries of an edge: those that run, and the last of those that have ended. The
// zero Registry has none. It is safe for concurrent use.
type Registry struct {
	mu    sync.Mutex
	runs  Runs
	ended []*Run // the latest first
}

// next is what will run of some orders: those that run already go on.
func (b *Registry) next(list []Order, now time.Time) Runs {
	running := b.running()
	next := make(Runs, len(list))
	for i := range list {
		if at := slices.IndexFunc(running,
			func(r *Run) bool { return r.Is(&list[i]) }); at >= 0 {
			next[i] = running[at]
		} else {
			next[i] = newRun(list[i], now)
		}
	}
	return next
}

// set has these run from now on. Those that did and are not among them have ended.
func (b *Registry) set(next Runs, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, run := range b.runs {
		if slices.Contains(next, run) {
			continue
		}
		if now.Before(run.Until) {
			run.ended.Store(now.UnixNano()) // it was stopped
		}
		b.ended = append([]*Run{run}, b.ended...)
	}
	b.ended = b.ended[:min(len(b.ended), MaxRuns)]
	b.runs = next
}

// All are the tries that run, the first that began first, and then those that have ended, the
// latest first.
func (b *Registry) All() (running, ended []*Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs, slices.Clone(b.ended)
}

// running are the tries that run, the first that began first.
func (b *Registry) running() []*Run {
	running, _ := b.All()
	return running
}

// Run is the latest try of a name; nil: there is none.
func (b *Registry) Run(name string) *Run {
	for _, r := range slices.Concat(b.All()) {
		if r.Name == name {
			return r
		}
	}
	return nil
}
