package edge

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"sluice/counter"
)

const (
	topShards  = 16
	topEntries = 64 // of a shard
	// topHalf is how often counts are halved, so that what is heavy now comes before what was heavy once.
	topHalf = 10 * time.Minute
)

// A top counts the heaviest sources in bounded memory (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and
// top-k elements in data streams", 2005). A source that is not among the entries takes the place of the lightest one, with its
// count for a start: no count is too small, and none is too large by more than the entry says. With n hits in a shard, every
// source with more than n/64 of them is there.
type top struct {
	seed   maphash.Seed
	shards [topShards]topShard
}

type topShard struct {
	mu    sync.Mutex
	index map[counter.Source]int
	heap  []topEntry // the lightest first
	_     [64]byte   // shards do not share a cache line
}

type topEntry struct {
	source counter.Source
	count  uint64
	over   uint64
}

// Heavy is a source that asks a lot, and how much: at least Count - Error, at most Count, of late.
type Heavy struct {
	Source string `json:"source"`
	Count  uint64 `json:"count"`
	Error  uint64 `json:"error"`
}

func newTop() *top {
	t := &top{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].index = make(map[counter.Source]int, topEntries)
	}
	return t
}

func (t *top) hit(s counter.Source) {
	shard := &t.shards[maphash.Comparable(t.seed, s)%topShards]
	shard.mu.Lock()
	shard.hit(s)
	shard.mu.Unlock()
}

func (h *topShard) hit(s counter.Source) {
	i, known := h.index[s]
	switch {
	case known:
	case len(h.heap) < topEntries:
		i = len(h.heap)
		h.heap = append(h.heap, topEntry{source: s})
		h.index[s] = i
		for i > 0 && h.heap[(i-1)/2].count > 0 { // it has no count yet: it belongs at the front
			h.swap(i, (i-1)/2)
			i = (i - 1) / 2
		}
	default:
		lightest := &h.heap[0]
		delete(h.index, lightest.source)
		*lightest = topEntry{source: s, count: lightest.count, over: lightest.count}
		h.index[s], i = 0, 0
	}
	h.heap[i].count++
	for { // heavier than before: further back
		child := 2*i + 1
		if child+1 < len(h.heap) && h.heap[child+1].count < h.heap[child].count {
			child++
		}
		if child >= len(h.heap) || h.heap[i].count <= h.heap[child].count {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *topShard) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.index[h.heap[i].source], h.index[h.heap[j].source] = i, j
}

// fade halves all counts. That keeps their order.
func (t *top) fade() {
	for i := range t.shards {
		h := &t.shards[i]
		h.mu.Lock()
		for j := range h.heap {
			h.heap[j].count /= 2
			h.heap[j].over /= 2
		}
		h.mu.Unlock()
	}
}

// heaviest returns at most n sources, the heaviest first.
func (t *top) heaviest(n int) []Heavy {
	list := []Heavy{}
	for i := range t.shards {
		h := &t.shards[i]
		h.mu.Lock()
		for _, e := range h.heap {
			if e.count > e.over {
				list = append(list, Heavy{e.source.String(), e.count, e.over})
			}
		}
		h.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Source, b.Source))
	})
	return list[:min(n, len(list))]
}

// TopRequests returns at most n of the sources with the most requests, the heaviest first. Counts are halved every ten
// minutes; a thousand sources are counted at most.
func (s *Server) TopRequests(n int) []Heavy { return s.requests.heaviest(n) }

// TopRefused is TopRequests for requests that were refused.
func (s *Server) TopRefused(n int) []Heavy { return s.refusals.heaviest(n) }
