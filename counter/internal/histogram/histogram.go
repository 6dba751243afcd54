// Package histogram keeps when a source's hits came, in bins of a 32nd of a sub-window.
//
// An estimate errs only in the sub-window that the window's beginning cuts, where it takes the hits
// to be spread evenly. Of its own hits a table can know better, at no cost to the tier: those it
// counted after the cut are counted, those before are not, and only what other edges counted is
// spread, until they send theirs. With one edge that is nearly an exact log.
//
// A Set holds the histograms of a shard's counters, each found by the counter's slot. Who is worth
// one is for the table to say.
package histogram

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"sluice/counter/internal/records"
)

const (
	Size       = 32 // bins of a sub-window
	SubWindows = 13 // that a window of 12 touches
)

// A Histogram is that of one counter.
type Histogram struct {
	index      int32 // in the list
	slot       int32 // the counter's, in its store; 0: unused
	next       int32 // of the same chain, and one more than the index in the list; 0: no more
	Rule       uint32
	Last       uint32 // sub-window of the newest hit
	LastRead   uint32 // sub-window in which times were last requested
	ExportedAt uint32 // sub-window in which times were last sent
	closed     uint32 // sub-window of which no hit came after its bin closedAt
	Exported   uint16 // a bit for each lane: its bins have been sent, and others' may be added
	closedAt   uint8
	wide       bool               // which store
	subWindows [SubWindows]uint32 // the number of each lane's
	low        binBytes
}

// binBytes is a byte of each bin. Few sources ever have more than 255 hits in a bin, so the high
// bytes are elsewhere.
type binBytes [SubWindows][Size]uint8

// Bins are those of a sub-window; their zero value is that of one of which nothing is known.
type Bins struct {
	low, high *[Size]uint8 // high is nil where all of it is 0
	// Of hits of which it is not known when they came: in so many bins, from the first
	Within    int
	Exchanged bool // others' hits are in them as well, but for those of which nobody knows
}

// Set is the histograms of a shard, found by their counters' slots, which begin at 1.
type Set struct {
	list records.Slab[Histogram]
	// Of a block of the list, once a bin of one of them has more than 255 hits
	high   []*[records.Block]binBytes
	long   [][]uint32 // rings of more than Stamps, by the index in the list
	most   int
	hand   int     // where Next goes on
	chains []int32 // by the counter's slot: one more than the index of the first, or 0
}

// NewSet makes a Set of so many histograms at most, or a few more.
func NewSet(most int) Set {
	// No part of a block stays unused
	most = (max(most, 1) + records.Block - 1) / records.Block * records.Block
	return Set{most: most, chains: make([]int32, 1<<(bits.Len(uint(most))-1))}
}

// Len is how many histograms there are, with the unused ones, and Cap how many there may be.
func (s *Set) Len() int { return s.list.Len() }
func (s *Set) Cap() int { return s.most }

// Bytes is what they take.
func (s *Set) Bytes() int {
	n := s.list.Bytes() + 4*cap(s.chains) + 8*cap(s.high)
	for _, block := range s.high {
		if block != nil {
			n += int(unsafe.Sizeof(*block))
		}
	}
	n += 24 * cap(s.long)
	for _, ring := range s.long {
		n += 4 * cap(ring)
	}
	return n
}

// chain is where a chain begins.
func (s *Set) chain(slot int) *int32 {
	return &s.chains[uint32(slot)*0x9e3779b1>>16&uint32(len(s.chains)-1)]
}

// of is the histogram of a counter that has one.
func (s *Set) of(slot int, wide bool) *Histogram {
	return s.list.At(int(*s.linkTo(slot, wide)) - 1)
}

// Own is the histogram of a counter that may have one, looked for only when it is needed. The zero
// Own is that of a counter without.
type Own struct {
	set  *Set
	slot int
	wide bool
}

// Own is that of a counter that has one.
func (s *Set) Own(slot int, wide bool) Own { return Own{s, slot, wide} }

// Bins is those of a sub-window.
func (o Own) Bins(n uint32) Bins {
	if o.set == nil {
		return Bins{}
	}
	return o.set.Bins(o.set.of(o.slot, o.wide), n)
}

// Get is the histogram, or nil.
func (o Own) Get() *Histogram {
	if o.set == nil {
		return nil
	}
	return o.set.of(o.slot, o.wide)
}

// linkTo is where the index of a counter's histogram stands, which has one.
func (s *Set) linkTo(slot int, wide bool) *int32 {
	at := s.chain(slot)
	for {
		h := s.list.At(int(*at) - 1)
		if int(h.slot) == slot && h.wide == wide {
			return at
		}
		at = &h.next
	}
}

// Link gives a counter the unused histogram with an index.
func (s *Set) Link(index, slot int, wide bool) {
	h, first := s.list.At(index), s.chain(slot)
	h.slot, h.wide, h.next = int32(slot), wide, *first
	*first = int32(index) + 1
}

// Unlink frees a counter's histogram, and returns its index.
func (s *Set) Unlink(slot int, wide bool) (index int) {
	at := s.linkTo(slot, wide)
	index = int(*at) - 1
	h := s.list.At(index)
	*at, h.slot = h.next, 0
	return index
}

// Next returns a new histogram while there may be more, and then all of them in turn.
func (s *Set) Next() (index int, h *Histogram) {
	if s.list.Len() < s.most {
		index = s.list.Add()
	} else {
		s.hand = (s.hand + 1) % s.list.Len()
		index = s.hand
	}
	return index, s.list.At(index)
}

// Owner is the counter that has a histogram; 0: none.
func (h *Histogram) Owner() (slot int, wide bool) { return int(h.slot), h.wide }

// Begin begins the histogram with an index anew, of a rule and in a sub-window.
func (s *Set) Begin(index int, rule, now uint32) *Histogram {
	h := s.list.At(index)
	h.index, h.Rule, h.Last, h.LastRead, h.ExportedAt, h.Exported = int32(index), rule, now,
		now-SubWindows, now-SubWindows, 0
	h.closed = now - SubWindows
	for j := range h.subWindows { // no lane is that of a sub-window to come
		h.subWindows[j] = now - SubWindows
	}
	s.begin(h, now)
	return h
}

// begin gives a sub-window its lane.
func (s *Set) begin(h *Histogram, n uint32) {
	lane := n % SubWindows
	h.subWindows[lane] = n
	clear(h.low[lane][:])
	if high := s.highOf(h); high != nil {
		clear(high[lane][:])
	}
	h.Exported &^= 1 << lane
}

// Enter has a sub-window in the histogram, and reports whether it was not.
func (s *Set) Enter(h *Histogram, n uint32) (begins bool) {
	if begins = h.subWindows[n%SubWindows] != n; begins {
		s.begin(h, n)
	}
	return begins
}

// Bins is those of a sub-window.
func (s *Set) Bins(h *Histogram, n uint32) (b Bins) {
	if lane := n % SubWindows; h.subWindows[lane] == n {
		b.low, b.Within, b.Exchanged = &h.low[lane], Size, h.Exported>>lane&1 != 0
		if h.closed == n {
			b.Within = int(h.closedAt) + 1
		}
		if high := s.highOf(h); high != nil {
			b.high = &high[lane]
		}
	}
	return b
}

// highOf is the high bytes of a histogram, or nil if there are none.
func (s *Set) highOf(h *Histogram) *binBytes {
	if block := h.index / records.Block; int(block) < len(s.high) && s.high[block] != nil {
		return &s.high[block][h.index%records.Block]
	}
	return nil
}

// Add adds hits to a bin of a sub-window that is in the histogram. A bin stops at its maximum.
func (s *Set) Add(h *Histogram, n uint32, bin int, hits uint32) {
	s.set(h, n, bin, min(s.at(h, n, bin)+hits, 1<<16-1))
}

// Bin is the bin of an instant at which so much of its sub-window is gone.
func Bin(gone float64) int { return min(int(gone*Size), Size-1) }

func (s *Set) at(h *Histogram, n uint32, bin int) uint32 {
	lane := n % SubWindows
	have := uint32(h.low[lane][bin])
	if high := s.highOf(h); high != nil {
		have |= uint32(high[lane][bin]) << 8
	}
	return have
}

func (s *Set) set(h *Histogram, n uint32, bin int, have uint32) {
	lane, high := n%SubWindows, s.highOf(h)
	if high == nil && have > 1<<8-1 {
		block := int(h.index / records.Block)
		for len(s.high) <= block {
			s.high = append(s.high, nil)
		}
		s.high[block] = new([records.Block]binBytes)
		high = s.highOf(h)
	}
	h.low[lane][bin] = uint8(have)
	if high != nil {
		high[lane][bin] = uint8(have >> 8)
	}
}

// Close takes in that no hit of a sub-window, of those of which no bin is known, came after a bin.
func (h *Histogram) Close(n uint32, bin int) {
	if h.closed == n {
		bin = min(bin, int(h.closedAt)) // it was told before when some of them came at the latest
	}
	h.closed, h.closedAt = n, uint8(bin)
}

// Known reports whether anything is known of the sub-window.
func (b Bins) Known() bool { return b.low != nil }

// At is the hits of a bin.
func (b Bins) At(bin int) (n uint16) {
	if b.high != nil {
		n = uint16(b.high[bin]) << 8
	}
	return n | uint16(b.low[bin])
}

// Sum adds up the hits of bins from one on.
func (b Bins) Sum(from int) (n uint64) {
	if b.high != nil {
		n = sumBytes(b.high, from) << 8
	}
	return n + sumBytes(b.low, from)
}

// sumBytes adds up bytes from b on, eight at once: it is most of what a refusal costs.
func sumBytes(o *[Size]uint8, b int) uint64 {
	const even = 0x00ff00ff00ff00ff
	var sums uint64 // four, of 16 bits each
	skip := uint(b%8) * 8
	for w := b &^ 7; w < Size; w += 8 {
		x := binary.LittleEndian.Uint64(o[w:w+8]) >> skip
		sums += x&even + x>>8&even
		skip = 0
	}
	return sums * 0x0001000100010001 >> 48
}

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
