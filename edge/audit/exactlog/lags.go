package exactlog

import "time"

// lagBounds are the upper bounds of a histogram of lags, rising. Most are of a round trip or two.
var lagBounds = [...]time.Duration{
	0, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 10 * time.Second, 60 * time.Second,
}

// Lags is a histogram. The zero Lags is empty.
type Lags struct {
	counts [len(lagBounds) + 1]uint64
	sum    time.Duration
}

func (l *Lags) add(d time.Duration) {
	i := 0
	for i < len(lagBounds) && d > lagBounds[i] {
		i++
	}
	l.counts[i]++
	l.sum += d
}

// Snapshot gives the cumulative counts by upper bound in seconds, how many there are and their sum.
func (l *Lags) Snapshot() (buckets map[float64]uint64, n uint64, sum float64) {
	buckets = make(map[float64]uint64, len(lagBounds))
	for i, bound := range lagBounds {
		n += l.counts[i]
		buckets[bound.Seconds()] = n
	}
	return buckets, n + l.counts[len(lagBounds)], l.sum.Seconds()
}
