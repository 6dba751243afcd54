package design

import (
	"math"
	"slices"

	"sluice/loadgen/judge"
)

// slidingLog keeps the time of every request for a window, so it is exact: what others are measured
// against, at 8 bytes a request. ("Better rate limiting with Redis sorted sets", ClassDojo, 2015.)
type slidingLog struct {
	rule   rule
	stamps judge.PerSource[[]int64] // oldest first
	most   judge.PerSource[int]     // stamps that a source had at once
}

func (l *slidingLog) weigh(source int32, at int64) (float64, bool) {
	s := l.stamps.Of(source)
	for len(*s) > 0 && (*s)[0] <= at-l.rule.window {
		*s = (*s)[1:]
	}
	n := float64(len(*s) + 1)
	return n, n > l.rule.limit
}

func (l *slidingLog) count(source int32, at int64) {
	s, most := l.stamps.Of(source), l.most.Of(source)
	*s = append(*s, at)
	*most = max(*most, len(*s))
}

func (l *slidingLog) bytes(int) uint64 {
	sum := 0
	for _, n := range l.most {
		sum += 8 * n
	}
	return uint64(sum)
}

// fixedWindow is one counter that begins again with each window of the clock: up to twice the limit
// passes around the boundary. (envoyproxy/ratelimit; INCR and EXPIRE in the documentation of
// Redis.)
type fixedWindow struct {
	rule   rule
	counts judge.PerSource[windowCount]
}

type windowCount struct {
	index int64 // of the window, since 1970
	n     uint32
}

func (w *fixedWindow) of(source int32, at int64) *windowCount {
	c := w.counts.Of(source)
	if index := (w.rule.start + at) / w.rule.window; index != c.index {
		*c = windowCount{index: index}
	}
	return c
}

func (w *fixedWindow) weigh(source int32, at int64) (float64, bool) {
	n := float64(w.of(source, at).n + 1)
	return n, n > w.rule.limit
}

func (w *fixedWindow) count(source int32, at int64) { w.of(source, at).n++ }

// bytes: a counter, and 32 bits of the window's number.
func (w *fixedWindow) bytes(sources int) uint64 { return 8 * uint64(sources) }

// subWindows cuts the window into k. It sums up the k newest counters, the one under way included:
//
//	estimate = c[i] + c[i-1] + … + c[i-k+1]                    (Figma, "An alternative approach to rate limiting", 2017: k = 60)
//	estimate = c[i] + c[i-1] + … + c[i-k+1] + c[i-k] * (1 - e)  weighed: a share e of sub-window i is over
//
// With k = 1 the weighed form is the two counters of Cloudflare ("How we built rate limiting
// capable of scaling to millions of domains", 2017). Rounded to the nearest whole number, the
// weighed form is what Sluice computes.
type subWindows struct {
	rule             rule
	k                int
	weighed, rounded bool
	rings            judge.PerSource[ring]
}

// length is that of a sub-window.
func (w *subWindows) length() int64 { return w.rule.window / int64(w.k) }

// position is the sub-window of a time and the share of it that is over.
func (w *subWindows) position(at int64) (index int64, gone float64) {
	length := w.length()
	now := w.rule.start + at
	return now / length, float64(now%length) / float64(length)
}

func (w *subWindows) weigh(source int32, at int64) (float64, bool) {
	n := w.held(w.rings.Of(source), at) + 1
	return n, w.over(n)
}

// held is the requests that are in the window.
func (w *subWindows) held(r *ring, at int64) float64 {
	index, gone := w.position(at)
	whole, oldest := r.sum(index, w.k)
	if w.weighed {
		whole += oldest * (1 - gone)
	}
	return whole
}

func (w *subWindows) over(estimate float64) bool {
	if w.rounded {
		estimate = math.Floor(estimate + 0.5)
	}
	return estimate > w.rule.limit
}

func (w *subWindows) count(source int32, at int64) {
	index, _ := w.position(at)
	w.rings.Of(source).add(index, w.k, 1)
}

// ringBytes is the counters of a source, and 32 bits of the newest one's number.
func (w *subWindows) ringBytes() uint64 {
	if w.weighed {
		return 4 * uint64(w.k+2)
	}
	return 4 * uint64(w.k+1)
}

func (w *subWindows) bytes(sources int) uint64 { return w.ringBytes() * uint64(sources) }

// ring is the requests of one source in each of the k+1 latest sub-windows; sub-window i is at
// counts[i % (k+1)]. The zero ring has none.
type ring struct {
	newest int64
	counts []int32
}

// forward makes index the newest, unless a later one is.
func (r *ring) forward(index int64, k int) {
	if r.counts == nil {
		r.counts = make([]int32, k+1)
		r.newest = index
	}
	for i := max(r.newest+1, index-int64(k)); i <= index; i++ {
		r.counts[i%int64(len(r.counts))] = 0
	}
	r.newest = max(r.newest, index)
}

// add adds n, which may be negative, to a sub-window, if that is still in sight.
func (r *ring) add(index int64, k int, n int32) {
	r.forward(index, k)
	if index > r.newest-int64(len(r.counts)) {
		r.counts[index%int64(len(r.counts))] += n
	}
}

// addRing adds another's counters, times what is given.
func (r *ring) addRing(o *ring, k int, times int32) {
	for i := range int64(len(o.counts)) {
		if index := o.newest - i; index >= 0 && o.counts[index%int64(len(o.counts))] != 0 {
			r.add(index, k, times*o.counts[index%int64(len(o.counts))])
		}
	}
}

func (r *ring) clone() ring { return ring{r.newest, slices.Clone(r.counts)} }

// sum is the k newest counters as of sub-window index together, and the one before those.
func (r *ring) sum(index int64, k int) (whole, oldest float64) {
	if r.counts == nil {
		return 0, 0
	}
	r.forward(index, k)
	sum := int32(0)
	for _, n := range r.counts {
		sum += n
	}
	last := r.counts[(r.newest+1)%int64(len(r.counts))]
	return float64(sum - last), float64(last)
}
