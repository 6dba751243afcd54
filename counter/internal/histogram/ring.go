package histogram

import "encoding/binary"

// The bytes of a histogram can hold the last hits one by one instead of bins: a ring of stamps. A
// stamp is the lowest 8 bits of the number of its sub-window, and a 2^24th of it. They are
// unambiguous while the oldest is less than 256 sub-windows old: Push drops those that are older
// than a window, and readers check Last first. A ring of more stamps than the bytes have room for
// is elsewhere.

// Stamps is how many a histogram has room for. A row of bins is eight of them.
const (
	Stamps = SubWindows * perRow
	perRow = Size / 4
)

// Stamp is an instant: the sub-window with a number, a share of it gone.
func Stamp(n uint32, gone float64) uint32 {
	return n<<24 | min(uint32(gone*(1<<24)), 1<<24-1)
}

// Ring is a histogram as a ring of stamps. The zero Ring is none.
type Ring struct {
	*Histogram
	long []uint32 // nil: they are in the histogram's bytes
}

// Ring is a counter's, if it has one.
func (o Own) Ring() Ring {
	h := o.Get()
	if h == nil {
		return Ring{}
	}
	return o.set.ring(h)
}

func (s *Set) ring(h *Histogram) Ring {
	r := Ring{Histogram: h}
	if int(h.index) < len(s.long) {
		r.long = s.long[h.index]
	}
	return r
}

// BeginRing makes a histogram a ring of so many stamps in which there is nothing. One of more than
// Stamps takes four bytes more for each.
func (s *Set) BeginRing(h *Histogram, stamps int) Ring {
	if stamps > Stamps {
		for len(s.long) <= int(h.index) {
			s.long = append(s.long, nil)
		}
		if len(s.long[h.index]) != stamps {
			s.long[h.index] = make([]uint32, stamps)
		}
	} else if int(h.index) < len(s.long) {
		s.long[h.index] = nil
	}
	r := s.ring(h)
	r.clear()
	return r
}

// GrowRing gives a ring room for so many stamps, more than it has.
func (s *Set) GrowRing(r Ring, stamps int) Ring {
	n := r.Len()
	room := make([]uint32, stamps)
	for k := range n {
		room[k] = r.at(k)
	}
	grown := s.BeginRing(r.Histogram, stamps)
	copy(grown.long, room)
	*grown.stamps() = uint32(n)
	return grown
}

// A ring keeps the index of its first stamp, and how many there are, where a histogram keeps the
// numbers of its first lanes.
func (r Ring) first() *uint32  { return &r.subWindows[0] }
func (r Ring) stamps() *uint32 { return &r.subWindows[1] }

func (r Ring) clear() { *r.first(), *r.stamps() = 0, 0 }

// Len is how many stamps there are, and Cap how many there may be.
func (r Ring) Len() int { return int(*r.stamps()) }
func (r Ring) Cap() int {
	if r.long != nil {
		return len(r.long)
	}
	return Stamps
}

// index is where the k-th stamp is, the oldest being 0.
func (r Ring) index(k int) int {
	at := int(*r.first()) + k
	if n := r.Cap(); at >= n {
		at -= n
	}
	return at
}

func (r Ring) at(k int) uint32 {
	at := r.index(k)
	if r.long != nil {
		return r.long[at]
	}
	return binary.LittleEndian.Uint32(r.low[at/perRow][4*(at%perRow):])
}

// Push adds a stamp in the sub-window n, after dropping those that are more than most sub-windows
// older. A full ring drops its first.
func (r Ring) Push(n uint32, stamp uint32, most int) {
	// It read the clock before another that has been counted
	if r.Len() > 0 && int32(n-r.Last) < 0 {
		n = r.Last
	}
	if n-r.Last > uint32(most) {
		r.clear()
	}
	for r.Len() > 0 && (r.Len() == r.Cap() || int(uint8(n-r.at(0)>>24)) > most) {
		*r.first() = uint32(r.index(1))
		*r.stamps()--
	}
	at := r.index(r.Len())
	if r.long != nil {
		r.long[at] = stamp
	} else {
		binary.LittleEndian.PutUint32(r.low[at/perRow][4*(at%perRow):], stamp)
	}
	*r.stamps()++
	r.Last = n
}

// Within appends to buf, of the sub-window n, the shares of stamps (in 2^24ths) that are above a
// share, the earliest first.
func (r Ring) Within(n, above uint32, buf []uint32) []uint32 {
	if r.long == nil {
		for k := range r.Len() {
			if s := r.at(k); within(s, n, above) {
				buf = append(buf, s&(1<<24-1))
			}
		}
		return buf
	}
	before, after := r.halves()
	for _, half := range [...][]uint32{before, after} {
		for _, s := range half {
			if within(s, n, above) {
				buf = append(buf, s&(1<<24-1))
			}
		}
	}
	return buf
}

// Count is how many Within would append.
func (r Ring) Count(n, above uint32) (count int) {
	if r.long == nil {
		for k := range r.Len() {
			if within(r.at(k), n, above) {
				count++
			}
		}
		return count
	}
	before, after := r.halves()
	for _, s := range before {
		if within(s, n, above) {
			count++
		}
	}
	for _, s := range after {
		if within(s, n, above) {
			count++
		}
	}
	return count
}

// within reports whether a stamp is of a sub-window, and above a share of it.
func within(stamp, n, above uint32) bool { return stamp>>24 == n&0xff && stamp&(1<<24-1) > above }

// halves are the stamps of a long ring up to the end of its room, and from its beginning on.
func (r Ring) halves() (before, after []uint32) {
	from, n := int(*r.first()), r.Len()
	if from+n <= len(r.long) {
		return r.long[from : from+n], nil
	}
	return r.long[from:], r.long[:from+n-len(r.long)]
}
