package mitigation

import (
	"sync"
	"sync/atomic"
	"time"
)

// lifted remembers when mitigations were lifted of late, for verdicts that fell before and come
// after.
type lifted struct {
	n  atomic.Int64 // len(at), for readers that only need to know that there are none
	mu sync.Mutex   // taken with a shard locked, never the other way round
	at map[Key]time.Time
}

// verdictTime is longer than any request takes from its verdict to the bit.
const verdictTime = time.Minute

func (l *lifted) note(k Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = make(map[Key]time.Time)
	}
	l.at[k] = now
	l.n.Store(int64(len(l.at)))
}

// voids reports whether a verdict fell before the last lift.
func (l *lifted) voids(k Key, verdict time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !verdict.After(l.at[k])
}

func (l *lifted) sweep(now time.Time) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, at := range l.at {
		if now.Sub(at) > verdictTime {
			delete(l.at, k)
		}
	}
	l.n.Store(int64(len(l.at)))
}
