package trace

import "time"

// Peaks is, for each source of a trace, the most requests that it sends in any stretch of so long,
// both ends included.
func (t *Trace) Peaks(within time.Duration) []uint32 {
	peaks := make([]uint32, len(t.Sources))
	now := make([]uint32, len(t.Sources))
	first := 0
	for i := range t.Requests {
		r := &t.Requests[i]
		for ; t.Requests[first].At < r.At-within; first++ {
			now[t.Requests[first].Source]--
		}
		now[r.Source]++
		peaks[r.Source] = max(peaks[r.Source], now[r.Source])
	}
	return peaks
}
