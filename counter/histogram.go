package counter

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// A histogram is when a source's hits came, in bins of a 32nd of a sub-window. An estimate errs only in the sub-window that the
// window's beginning cuts, where it takes the hits to be spread evenly. Of its own hits a table can know better, at no cost to
// the tier: those it counted after the cut are counted, those before are not, and only what other edges counted is spread, until
// they tell (times.go). With one edge that is nearly an exact log.
//
// Half a kilobyte for each of a million sources would be too much, so there is room for one in 64 of a table's counters. A source
// gets one with its second hit, or what a 64th of its limit is, if there is room, and keeps it against others once it has used an
// eighth.
type histogram struct {
	index      int32                       // in the list
	slot       int32                       // the counter's index in its store; 0: nobody's
	next       int32                       // of the same chain, and one more than the index in the list; 0: no more
	rule       uint32                      // its ID
	last       uint32                      // sub-window of the newest hit
	asked      uint32                      // sub-window in which somebody last asked when hits came
	exportedAt uint32                      // sub-window in which others were last told
	exported   uint16                      // a bit for each lane: others have been told of its bins, and theirs may be added
	wide       bool                        // which store
	subWindows [histogramSubWindows]uint32 // the number of each lane's
	low        binBytes
}

// binBytes is a byte of each bin. Few sources ever have more than 255 hits in a bin, so the high bytes are elsewhere.
type binBytes [histogramSubWindows][histogramBins]uint8

// bins are those of a sub-window; their zero value is that of one of which nothing is known.
type bins struct {
	low, high *[histogramBins]uint8 // high is nil where all of it is 0
}

// histograms are those of a shard, found by their counters' indices.
type histograms struct {
	list   slab[histogram]
	high   []*[slabBlock]binBytes // of a block of the list, once a bin of one of them has more than 255 hits
	most   int
	hand   int     // where histogramRoom tries next
	chains []int32 // by the counter's index: one more than the index of the first, or 0
}

func newHistograms(most int) histograms {
	most = (max(most, 1) + slabBlock - 1) / slabBlock * slabBlock // no part of a block stays unused
	return histograms{most: most, chains: make([]int32, 1<<(bits.Len(uint(most))-1))}
}

func (hs *histograms) bytes() int {
	n := hs.list.bytes() + 4*cap(hs.chains) + 8*cap(hs.high)
	for _, block := range hs.high {
		if block != nil {
			n += int(unsafe.Sizeof(*block))
		}
	}
	return n
}

// chain is where a chain begins.
func (hs *histograms) chain(i int) *int32 {
	return &hs.chains[uint32(i)*0x9e3779b1>>16&uint32(len(hs.chains)-1)]
}

const (
	histogramBins       = 32
	histogramSubWindows = 13 // that a window of 12 touches
	histogramShare      = 64 // counters for each histogram
	histogramFrom       = 64 // a source gets a histogram at this part of its limit, its second hit at the earliest, if there is room then
	histogramNeeds      = 8  // from this part of its limit on it takes the place of a colder one
)

// number is the sub-window of a position, modulo 2^32.
func (r *Rule) number(p position) uint32 { return p.group<<r.shift | uint32(p.lane) }

// own returns the bins of what the table itself counted, and was told of, in the sub-window that a window's beginning cuts, ahead
// sub-windows after p.
func (s *shard) own(r *Rule, i int, p position, ahead int) bins {
	hist := s.histogram(s.store(r), i)
	if hist == nil {
		return bins{}
	}
	return s.histograms.of(hist, r.number(p)+uint32(ahead-r.SubWindows))
}

// of is the bins of a sub-window.
func (hs *histograms) of(hist *histogram, n uint32) (b bins) {
	if lane := n % histogramSubWindows; hist.subWindows[lane] == n {
		b.low = &hist.low[lane]
		if high := hs.highOf(hist); high != nil {
			b.high = &high[lane]
		}
	}
	return b
}

// highOf is the high bytes of a histogram, or nil if there are none.
func (hs *histograms) highOf(hist *histogram) *binBytes {
	if block := hist.index / slabBlock; int(block) < len(hs.high) && hs.high[block] != nil {
		return &hs.high[block][hist.index%slabBlock]
	}
	return nil
}

// add adds hits to a bin, which stops at its maximum.
func (hs *histograms) add(hist *histogram, lane uint32, bin int, hits uint32) {
	high := hs.highOf(hist)
	n := uint32(hist.low[lane][bin])
	if high != nil {
		n |= uint32(high[lane][bin]) << 8
	}
	n = min(n+hits, 1<<16-1)
	if high == nil && n > 1<<8-1 {
		block := int(hist.index / slabBlock)
		for len(hs.high) <= block {
			hs.high = append(hs.high, nil)
		}
		hs.high[block] = new([slabBlock]binBytes)
		high = hs.highOf(hist)
	}
	hist.low[lane][bin] = uint8(n)
	if high != nil {
		high[lane][bin] = uint8(n >> 8)
	}
}

// note adds hits to the bins of a counter that has, or now gets, a histogram.
func (s *shard) note(r *Rule, st *store, i int, p position, hits uint32, estimate float64) {
	hist := s.histogram(st, i)
	if hist == nil {
		needs := estimate*histogramNeeds >= float64(r.Limit)
		from := max(float64(r.Limit)/histogramFrom, 1)
		// Who does not need one asks once, on passing that point: there are many of those.
		if !needs && (estimate <= from || estimate-float64(hits) > from) || r.SubWindows == 1 {
			return
		}
		if hist = s.addHistogram(r, st, i, p, needs); hist == nil {
			return
		}
	}
	n := r.number(p)
	lane := n % histogramSubWindows
	if hist.subWindows[lane] != n {
		s.histograms.begin(hist, n)
	}
	hist.last = n
	s.histograms.add(hist, lane, min(int(p.gone*histogramBins), histogramBins-1), hits)
}

// begin gives a sub-window its lane.
func (hs *histograms) begin(hist *histogram, n uint32) {
	lane := n % histogramSubWindows
	hist.subWindows[lane] = n
	clear(hist.low[lane][:])
	if high := hs.highOf(hist); high != nil {
		clear(high[lane][:])
	}
	hist.exported &^= 1 << lane
}

// histogram is that of a counter, or nil.
func (s *shard) histogram(st *store, i int) *histogram {
	if st.head(i).state&hasHistogram == 0 {
		return nil
	}
	return s.histograms.list.at(int(*s.linkTo(st, i)) - 1)
}

// linkTo is where the index of a counter's histogram stands, which has one.
func (s *shard) linkTo(st *store, i int) *int32 {
	at := s.histograms.chain(i)
	for {
		hist := s.histograms.list.at(int(*at) - 1)
		if int(hist.slot) == i && hist.wide == (st == &s.wide) {
			return at
		}
		at = &hist.next
	}
}

// link puts a histogram that is nobody's where its counter finds it.
func (s *shard) link(k int32, st *store, i int) {
	hist, first := s.histograms.list.at(int(k)), s.histograms.chain(i)
	hist.slot, hist.wide, hist.next = int32(i), st == &s.wide, *first
	*first = k + 1
}

// unlink makes a counter's histogram nobody's, and returns which it was.
func (s *shard) unlink(st *store, i int) (k int32) {
	at := s.linkTo(st, i)
	k = *at - 1
	hist := s.histograms.list.at(int(k))
	*at, hist.slot = hist.next, 0
	return k
}

// addHistogram gives a counter a histogram if there is room, or if it needs one more than another.
func (s *shard) addHistogram(r *Rule, st *store, i int, p position, needs bool) *histogram {
	k, ok := s.histogramRoom(r, p, needs)
	if !ok {
		return nil
	}
	s.link(k, st, i)
	st.head(i).state |= hasHistogram
	hist, now := s.histograms.list.at(int(k)), r.number(p)
	hist.index, hist.rule, hist.last, hist.asked, hist.exportedAt, hist.exported = k, r.ID, now, now-histogramSubWindows, now-histogramSubWindows, 0
	for j := range hist.subWindows { // no lane is that of a sub-window to come
		hist.subWindows[j] = now - histogramSubWindows
	}
	s.histograms.begin(hist, now)
	return hist
}

// histogramRoom finds room for a histogram: a free one, or one of which the source has been silent for a window. Who needs it may also take that
// of a source that is far from its limit, and tries at a few.
func (s *shard) histogramRoom(r *Rule, p position, needs bool) (int32, bool) {
	if s.histograms.list.n < s.histograms.most {
		return int32(s.histograms.list.add()), true
	}
	tries := 1
	if needs {
		tries = 4
	}
	for range min(tries, s.histograms.list.n) {
		s.histograms.hand = (s.histograms.hand + 1) % s.histograms.list.n
		hist := s.histograms.list.at(s.histograms.hand)
		if hist.slot == 0 {
			return int32(s.histograms.hand), true
		}
		silent := hist.rule == r.ID && r.number(p)-hist.last > uint32(r.SubWindows)
		if !needs && !silent {
			continue
		}
		st := &s.narrow
		if hist.wide {
			st = &s.wide
		}
		if h := st.head(int(hist.slot)); silent || h.state&warm == 0 {
			h.state &^= hasHistogram
			return s.unlink(st, int(hist.slot)), true
		}
	}
	return 0, false
}

// known reports whether anything is known of the sub-window.
func (o bins) known() bool { return o.low != nil }

// at is the hits of a bin.
func (o bins) at(bin int) (n uint16) {
	if o.high != nil {
		n = uint16(o.high[bin]) << 8
	}
	return n | uint16(o.low[bin])
}

// sum adds up the hits of bins from b on.
func (o bins) sum(b int) (n uint64) {
	if o.high != nil {
		n = sumBytes(o.high, b) << 8
	}
	return n + sumBytes(o.low, b)
}

// sumBytes adds up bytes from b on, eight at once: it is most of what a refusal costs.
func sumBytes(o *[histogramBins]uint8, b int) uint64 {
	const even = 0x00ff00ff00ff00ff
	var sums uint64 // four, of 16 bits each
	skip := uint(b%8) * 8
	for w := b &^ 7; w < histogramBins; w += 8 {
		x := binary.LittleEndian.Uint64(o[w:w+8]) >> skip
		sums += x&even + x>>8&even
		skip = 0
	}
	return sums * 0x0001000100010001 >> 48
}
