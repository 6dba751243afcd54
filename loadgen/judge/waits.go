package judge

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Waits is how long admitted requests waited for their turn, under a rule that has a queue
// (Truth.Queue), in seconds.
type Waits struct {
	Requests uint64    `json:"requests"` // that had to wait
	Delay    Quantiles `json:"delay"`    // of those
	Queue    float64   `json:"queue"`    // as long as the last one of a full queue waits
	Beyond   uint64    `json:"beyond"`   // requests that waited longer: must be 0
	// Early is how long before its turn, by the exact truth, a request was let go that should have
	// waited: what edges do before they have learned of each other's requests, so that the origin
	// gets for a moment more than the rule's rate.
	Early Quantiles `json:"early"`
}

// waits gathers them, in ns.
type waits struct {
	delay, early *hdrhistogram.Histogram
	most         [2]int64 // of each
	beyond       uint64
}

// newWaits is for a rule that has a queue; others have no use for it.
func newWaits(t *Truth) (w waits) {
	if t.Queue > 0 {
		w.delay, w.early = hdrhistogram.New(1, int64(24*time.Hour), 3), hdrhistogram.New(1,
			int64(24*time.Hour), 3)
	}
	return w
}

// queueTime is as long as the last one of a full queue waits.
func (t *Truth) queueTime() float64 { return float64(t.Queue) * t.Interval }

// add takes in an admitted request that waited so long, and by the exact truth should have waited
// for its turn.
func (w *waits) add(t *Truth, delay, turn int64) {
	if delay > 0 {
		Record(w.delay, delay)
		w.most[0] = max(w.most[0], delay)
		if float64(delay) > t.queueTime()+bucketSlack*t.Interval+1 {
			w.beyond++
		}
	}
	if turn > 0 {
		early := max(0, turn-delay)
		Record(w.early, early)
		w.most[1] = max(w.most[1], early)
	}
}

func (w *waits) figures(t *Truth) *Waits {
	return &Waits{
		Requests: uint64(w.delay.TotalCount()), Delay: quantilesOf(w.delay, w.most[0], 1e9),
		Queue: t.queueTime() / 1e9, Beyond: w.beyond, Early: quantilesOf(w.early, w.most[1], 1e9),
	}
}
