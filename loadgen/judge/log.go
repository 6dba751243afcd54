package judge

// Log is the timestamps of a source that lie in the window, oldest first: a ring that doubles when
// full and holds no more than the busiest window did.
type Log struct {
	ring []int64 // length a power of two
	head uint32
	n    uint32
}

// Drop forgets the stamps that have left the window when the time is now. A stamp exactly one
// window old has left it.
func (l *Log) Drop(now, window int64) {
	mask := uint32(len(l.ring) - 1)
	for l.n > 0 && l.ring[l.head] <= now-window {
		l.head = (l.head + 1) & mask
		l.n--
	}
}

// Push adds a stamp, which is no earlier than those before.
func (l *Log) Push(at int64) {
	if int(l.n) == len(l.ring) {
		ring := make([]int64, max(4, 2*len(l.ring)))
		k := copy(ring, l.ring[l.head:])
		copy(ring[k:], l.ring[:l.head])
		l.ring, l.head = ring, 0
	}
	l.ring[(l.head+l.n)&uint32(len(l.ring)-1)] = at
	l.n++
}

// at is the i-th stamp, the oldest being 0.
func (l *Log) at(i uint32) int64 { return l.ring[(l.head+i)&uint32(len(l.ring)-1)] }

// below is when the log will hold less than n stamps if nothing else comes: the present if it does
// already.
func (l *Log) below(n uint32, now, window int64) int64 {
	if l.n < n {
		return now
	}
	return l.at(l.n-n) + window
}

// Len is how many stamps there are.
func (l *Log) Len() int { return int(l.n) }
