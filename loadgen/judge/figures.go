package judge

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Figures is what a judge found. Ratios and margins are fractions, durations seconds.
type Figures struct {
	Requests uint64 `json:"requests"`
	Sources  int    `json:"sources"`

	WrongRatio       float64 `json:"wrong_ratio"`        // wrong decisions of all requests
	WrongPerDecision float64 `json:"wrong_per_decision"` // wrong decisions of all decisions
	// Decisions is requests that were judged: all that got a verdict, but for refusals under a
	// block, which ask no counter and are as right or wrong as the block's start.
	Decisions      uint64 `json:"decisions"`
	Wrong          uint64 `json:"wrong"`
	WronglyAllowed uint64 `json:"wrongly_allowed"`
	// Deployed: blocks wrongly started, and refusals after a block's proper end
	WronglyLimited uint64 `json:"wrongly_limited"`

	// Refusals under a block that was wrongly started: no decisions of their own, and not in Wrong.
	// WrongAnswersRatio is what WrongRatio would be with them.
	WronglyMitigated  uint64  `json:"wrongly_mitigated"`
	WrongAnswersRatio float64 `json:"wrong_answers_ratio"`

	// Mean of abs(estimate - exact) / exact, where an estimate is known
	MeanGap    float64 `json:"mean_gap"`
	MeanGapHot float64 `json:"mean_gap_hot"` // the same over requests with exact >= limit/2

	// Never blocked though over the limit
	FalseNegativeSources int `json:"false_negative_sources"`
	// The largest excess among them, of the limit
	FalseNegativeMargin float64 `json:"false_negative_margin"`
	// Blocked though never over the limit
	FalsePositiveSources int `json:"false_positive_sources"`
	// How far under the limit the farthest of them was
	FalsePositiveMargin float64 `json:"false_positive_margin"`

	// Requests refused of sources that never exceeded the limit
	RefusedOfInnocent uint64 `json:"refused_of_innocent"`
	// Requests refused that a trace calls good
	RefusedGood uint64 `json:"refused_good"`
	// Those of them whose source also sent an abuser's
	Collateral uint64 `json:"collateral"`

	Admitted  uint64 `json:"admitted"`
	Refused   uint64 `json:"refused"`
	Mitigated uint64 `json:"mitigated"`       // of the refused: without asking a counter
	Shed      uint64 `json:"shed,omitzero"`   // of these: with their connection, by an edge
	Walled    uint64 `json:"walled,omitzero"` // of these: by the kernel
	Closed    uint64 `json:"closed"`          // of the refused: because the tier was gone
	Failed    uint64 `json:"failed"`          // no verdict
	Blocks    uint64 `json:"blocks"`          // times that a source came to be refused

	WrongPerBlock float64 `json:"wrong_per_block"`
	// Requests admitted above the limit, per block
	Overshoot Quantiles `json:"overshoot"`
	// From the crossing by Options.Ideal
	TimeToBlock *TimeToBlock `json:"time_to_block,omitempty"`
	// From the crossing by the exact log
	TimeToBlockExact *TimeToBlock `json:"time_to_block_exact,omitempty"`

	Ends *Ends `json:"block_ends,omitempty"` // of blocks that last for a time; deployed mode

	Waits *Waits `json:"waits,omitempty"` // of a rule whose requests wait for their turn

	// The most admitted of one source in any window; deployed mode
	WorstWindow uint32 `json:"worst_window,omitempty"`
	WorstExcess uint32 `json:"worst_excess"` // by how much that is above the limit
	// What the design allows of that source in any window
	Bound uint32 `json:"bound,omitempty"`
	// Sources of which more was admitted than it allows: must be 0
	BeyondBound int `json:"beyond_bound"`

	// Tier commands per 1000 requests
	TierOpsPer1000 *float64 `json:"tier_ops_per_1000,omitempty"`
	// Bytes of keys and values in them and their answers, reading of the log apart; in virtual time
	TierBytesPer1000 float64 `json:"tier_bytes_per_1000,omitempty"`
	// Commands while only mitigated sources sent
	TierOpsMitigated *uint64 `json:"tier_ops_mitigated,omitempty"`
	// How late the load generator sent
	SendError        *Quantiles `json:"send_error,omitempty"`
	DecisionsASecond float64    `json:"decisions_per_second,omitempty"`
	BytesPerSource   float64    `json:"bytes_per_source,omitempty"`
	// Latency that a decision waits for
	AddedRoundTrips  *float64 `json:"added_round_trips,omitempty"`
	FreeRunningIdeal *Ideal   `json:"ideal,omitempty"`
	// Requests by (estimate - exact) / exact
	ErrorDistribution Bins `json:"error_distribution,omitzero"`
	// Wrong decisions by exact / limit - 1
	WrongByCount Bins `json:"wrong_by_count,omitzero"`
	// Of the sources in Options.Watch
	Series   []Series  `json:"-"`
	Timeline *Timeline `json:"-"`
}

// TimeToBlock is how long after a source crossed its limit the verdict was in force, over all
// blocks, in seconds.
type TimeToBlock struct {
	FirstEdge Quantiles `json:"first_edge"`
	EveryEdge Quantiles `json:"every_edge"`
	// Until the first connection that the kernel refused
	Kernel Quantiles `json:"kernel,omitzero"`
	// Blocks that ended before every running edge knew of them
	Partly int `json:"partly"`

	FirstEdgeTimes *hdrhistogram.Histogram `json:"-"`
	EveryEdgeTimes *hdrhistogram.Histogram `json:"-"`
}

// Quantiles sums up N values. All are zero if there were none.
type Quantiles struct {
	N   int64   `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Ideal is what a limiter with an exact log and no delay would have done with the same requests:
// for the eye only, since its blocks drift out of phase with any other's after the first decision
// that differs.
type Ideal struct {
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	Blocks   uint64 `json:"blocks"`
}

// Bins counts values in steps of one width from From on; the first and last bin also hold what lies
// beyond.
type Bins struct {
	From  float64  `json:"from"`
	Width float64  `json:"width"`
	N     []uint64 `json:"n"`
}

// IsZero reports whether nothing was counted.
func (b Bins) IsZero() bool {
	for _, n := range b.N {
		if n > 0 {
			return false
		}
	}
	return true
}

func (b *Bins) add(v float64) {
	i := int((v - b.From) / b.Width)
	b.N[max(0, min(i, len(b.N)-1))]++
}

// quantilesOf reads a histogram whose values are unit-ths of what is reported.
func quantilesOf(h *hdrhistogram.Histogram, most int64, unit float64) Quantiles {
	if h == nil || h.TotalCount() == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return float64(min(h.ValueAtPercentile(q), most)) / unit }
	return Quantiles{N: h.TotalCount(), P50: at(50), P99: at(99), Max: float64(most) / unit}
}

// Record adds a value to a histogram. One beyond its bounds counts as its bound.
func Record(h *hdrhistogram.Histogram, v int64) {
	_ = h.RecordValue(min(max(v, 0), h.HighestTrackableValue())) // cannot fail within the bounds
}

// SecondsOf reads a histogram of nanoseconds.
func SecondsOf(h *hdrhistogram.Histogram) Quantiles { return quantilesOf(h, h.Max(), 1e9) }

// Split says where wrong decisions come from: the same stream judged with perfect knowledge, then
// with edges and their delay, then with the faults as well. Each part is what its step added.
type Split struct {
	Formula SplitPart `json:"formula"`
	Delay   SplitPart `json:"delay"`
	Faults  SplitPart `json:"faults"`
}

// SplitPart is a share of the error. It can be negative: two errors may cancel out.
type SplitPart struct {
	Wrong      int64   `json:"wrong"`
	WrongRatio float64 `json:"wrong_ratio"`
	MeanGap    float64 `json:"mean_gap"`
}

// NewSplit compares three runs of one stream: one edge without delay, the edges with their delay,
// and the faults added. Nil stands for a run that was not made, and its part is zero.
func NewSplit(formula, delay, faults *Figures) Split {
	if delay == nil {
		delay = formula
	}
	if faults == nil {
		faults = delay
	}
	part := func(before, after *Figures) SplitPart {
		if before == nil {
			before = &Figures{}
		}
		return SplitPart{int64(after.Wrong) - int64(before.Wrong),
			after.WrongRatio - before.WrongRatio, after.MeanGap - before.MeanGap}
	}
	return Split{part(nil, formula), part(formula, delay), part(delay, faults)}
}

// SetTierOps enters the number of commands that the tier was sent.
func (f *Figures) SetTierOps(ops uint64) {
	per := 0.0
	if f.Requests > 0 {
		per = float64(ops) * 1000 / float64(f.Requests)
	}
	f.TierOpsPer1000 = &per
}

// tally sums up decisions.
type tally struct {
	limit                                      uint32
	requests, failed, refused, blocks          uint64
	mitigated, shed, walled, closed            uint64
	wronglyAllowed, wronglyLimited             uint64
	wronglyMitigated                           uint64
	underBlock                                 uint64 // refusals that are no decisions of their own
	gaps, hotGaps                              float64
	gapCount, hotCount                         uint64
	sources, falseNegatives, falsePositives    int
	falseNegativeMost, falsePositiveLeast      uint32 // exact counts
	refusedOfInnocent, refusedGood, collateral uint64
	errors, wrongs                             Bins
}

const (
	errorBins = 100 // -100 % to +100 % in steps of 2 %
	wrongBins = 60  // about 50 % under the limit to 100 % over, in steps of 2.5 % or more
)

// wrongByCount is bins that begin at whole counts, so that as many counts fall into each.
func wrongByCount(limit uint32) Bins {
	width := math.Ceil(0.025*float64(limit)) / float64(limit)
	return Bins{From: -math.Ceil(0.5/width) * width, Width: width, N: make([]uint64, wrongBins)}
}

func newTally(limit uint32) tally {
	return tally{
		limit: limit, falsePositiveLeast: math.MaxUint32,
		errors: Bins{From: -1, Width: 0.02, N: make([]uint64, errorBins)},
		wrongs: wrongByCount(limit),
	}
}

func (t *tally) clone() *tally {
	c := *t
	c.errors.N, c.wrongs.N = slices.Clone(t.errors.N), slices.Clone(t.wrongs.N)
	return &c
}

func (t *tally) gap(estimate float64, exact uint32, hot bool) {
	e := (estimate - float64(exact)) / float64(exact)
	a := math.Abs(e)
	t.gaps += a
	t.gapCount++
	if hot {
		t.hotGaps += a
		t.hotCount++
	}
	// By hand what Bins.add does, for the sake of the millions of these: e is never below -1.
	i := uint((e + 1 + 1e-9) * (errorBins / 2))
	t.errors.N[min(i, errorBins-1)]++
}

// miss counts a wrong decision.
func (t *tally) miss(limited bool, exact uint32) {
	if limited {
		t.wronglyLimited++
	} else {
		t.wronglyAllowed++
	}
	t.wrongs.add(float64(exact)/float64(t.limit) - 1 + 1e-9)
}

// source counts a source whose count was at most that, and of which so many requests were refused.
func (t *tally) source(most, refused uint32) {
	t.sources++
	over := most > t.limit
	switch {
	case over && refused == 0:
		t.falseNegatives++
		t.falseNegativeMost = max(t.falseNegativeMost, most)
	case !over && refused > 0:
		t.falsePositives++
		t.falsePositiveLeast = min(t.falsePositiveLeast, most)
	}
	if !over {
		t.refusedOfInnocent += uint64(refused)
	}
}

func (t *tally) add(o *tally) {
	t.requests += o.requests
	t.failed += o.failed
	t.refused += o.refused
	t.blocks += o.blocks
	t.mitigated += o.mitigated
	t.shed += o.shed
	t.walled += o.walled
	t.closed += o.closed
	t.wronglyAllowed += o.wronglyAllowed
	t.wronglyLimited += o.wronglyLimited
	t.wronglyMitigated += o.wronglyMitigated
	t.underBlock += o.underBlock
	t.gaps += o.gaps
	t.hotGaps += o.hotGaps
	t.gapCount += o.gapCount
	t.hotCount += o.hotCount
	t.sources += o.sources
	t.falseNegatives += o.falseNegatives
	t.falsePositives += o.falsePositives
	t.falseNegativeMost = max(t.falseNegativeMost, o.falseNegativeMost)
	t.falsePositiveLeast = min(t.falsePositiveLeast, o.falsePositiveLeast)
	t.refusedOfInnocent += o.refusedOfInnocent
	t.refusedGood += o.refusedGood
	t.collateral += o.collateral
	for i, n := range o.errors.N {
		t.errors.N[i] += n
	}
	for i, n := range o.wrongs.N {
		t.wrongs.N[i] += n
	}
}

func (t *tally) figures() Figures {
	f := Figures{
		Requests: t.requests, Sources: t.sources,
		Wrong: t.wronglyAllowed + t.wronglyLimited, WronglyAllowed: t.wronglyAllowed,
		WronglyLimited:       t.wronglyLimited,
		FalseNegativeSources: t.falseNegatives, FalsePositiveSources: t.falsePositives,
		RefusedOfInnocent: t.refusedOfInnocent, RefusedGood: t.refusedGood,
		Collateral: t.collateral,
		Refused:    t.refused, Mitigated: t.mitigated, Shed: t.shed, Walled: t.walled,
		Closed: t.closed, Failed: t.failed, Blocks: t.blocks,
		ErrorDistribution: t.errors, WrongByCount: t.wrongs,
	}
	f.WrongRatio = Ratio(float64(f.Wrong), t.requests)
	f.Decisions = t.requests - t.failed - t.underBlock
	f.WrongPerDecision = Ratio(float64(f.Wrong), f.Decisions)
	f.WronglyMitigated = t.wronglyMitigated
	f.WrongAnswersRatio = Ratio(float64(f.Wrong+f.WronglyMitigated), t.requests)
	f.MeanGap = Ratio(t.gaps, t.gapCount)
	f.MeanGapHot = Ratio(t.hotGaps, t.hotCount)
	f.WrongPerBlock = Ratio(float64(f.Wrong), t.blocks)
	if t.falseNegatives > 0 {
		f.FalseNegativeMargin = float64(t.falseNegativeMost)/float64(t.limit) - 1
	}
	if t.falsePositives > 0 {
		f.FalsePositiveMargin = 1 - float64(t.falsePositiveLeast)/float64(t.limit)
	}
	return f
}

// Ratio is a of b, and nothing of nothing.
func Ratio(a float64, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return a / float64(b)
}

func worst(n, of int, wrong func(int32) uint32) []int32 {
	var all []int32
	for i := range int32(of) {
		if wrong(i) > 0 {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int32) int { return cmp.Compare(wrong(b), wrong(a)) })
	return all[:min(n, len(all))]
}

var _ json.Marshaler = Bins{}

// MarshalJSON leaves empty bins at both ends out.
func (b Bins) MarshalJSON() ([]byte, error) {
	type plain Bins
	lo, hi := 0, len(b.N)
	for lo < hi && b.N[lo] == 0 {
		lo++
	}
	for hi > lo && b.N[hi-1] == 0 {
		hi--
	}
	return json.Marshal(plain{b.From + float64(lo)*b.Width, b.Width, b.N[lo:hi]})
}
