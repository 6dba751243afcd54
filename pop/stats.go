package pop

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations by powers of two of a microsecond. It is safe for one writer and many readers.
type Histogram struct {
	buckets [32]atomic.Uint64
	sum     atomic.Int64
}

// Observe counts d; below 0 counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	us := uint64(max(d, 0) / time.Microsecond)
	h.buckets[min(bits.Len64(us), len(h.buckets)-1)].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot gives the cumulative counts by upper bound in seconds, the number of observations and their sum in seconds.
func (h *Histogram) Snapshot() (buckets map[float64]uint64, count uint64, sum float64) {
	buckets = make(map[float64]uint64, len(h.buckets))
	for i := range h.buckets {
		count += h.buckets[i].Load()
		buckets[float64(uint64(1)<<i)/1e6] = count
	}
	return buckets, count, time.Duration(h.sum.Load()).Seconds()
}

// machineStats is what a Machine has seen.
type machineStats struct {
	propagation Histogram
	forged      atomic.Uint64
	logRecords  atomic.Uint64
	logLost     atomic.Uint64
	edges       atomic.Int64
	full        atomic.Bool
}

// MachineStats is what a Machine has seen since it was made.
type MachineStats struct {
	Propagation *Histogram // from a verdict on another edge until it was in force on this one
	Forged      uint64     // values in the tier that were not of the form, or not authentic
	LogRecords  uint64     // that this edge wrote to the mitigation log
	LogLost     uint64     // that it could not write
	Edges       int        // that share the tier
	Full        bool       // the PoP has as many edges as can share it, and this one counts alone until one leaves
	Words       int        // of operators that the list holds: blocks, lifts that must be kept, changes of rules
}

// Stats may be called from anywhere.
func (m *Machine) Stats() MachineStats {
	m.operators.mu.Lock()
	words := m.operators.list.Len()
	m.operators.mu.Unlock()
	return MachineStats{
		Full: m.stats.full.Load(), Words: words,
		Propagation: &m.stats.propagation, Forged: m.stats.forged.Load(), LogRecords: m.stats.logRecords.Load(), LogLost: m.stats.logLost.Load(),
		Edges: int(max(m.stats.edges.Load(), 1)),
	}
}
