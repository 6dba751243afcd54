package histogram

import "encoding/binary"

// The bytes of a histogram can hold, in place of bins, the last hits each by itself: a ring of stamps. A stamp is the lowest 8 bits of the
// number of its sub-window, and a 2^24th of it. They are told apart while the oldest is less than 256 sub-windows old: Push drops those that are
// older than a window, and who asks looks at Last first.

// Stamps is how many a ring holds. A row of bins is eight of them.
const (
	Stamps = SubWindows * perRow
	perRow = Size / 4
)

// Stamp is an instant: the sub-window with a number, a share of it gone.
func Stamp(n uint32, gone float64) uint32 {
	return n<<24 | min(uint32(gone*(1<<24)), 1<<24-1)
}

// A ring has the place of its first stamp, and how many there are, where a histogram has the numbers of its first lanes.
func (h *Histogram) first() *uint32  { return &h.subWindows[0] }
func (h *Histogram) stamps() *uint32 { return &h.subWindows[1] }

// Clear makes a histogram a ring in which there is nothing.
func (h *Histogram) Clear() { *h.first(), *h.stamps() = 0, 0 }

// Len is how many stamps there are.
func (h *Histogram) Len() int { return int(*h.stamps()) }

// At is the k-th stamp, the oldest being 0.
func (h *Histogram) At(k int) uint32 {
	at := (int(*h.first()) + k) % Stamps
	return binary.LittleEndian.Uint32(h.low[at/perRow][4*(at%perRow):])
}

// Push adds a stamp in the sub-window n, after dropping those that are more than most sub-windows older. A full ring drops its first.
func (h *Histogram) Push(n uint32, stamp uint32, most int) {
	if h.Len() > 0 && int32(n-h.Last) < 0 { // it read the clock before another that has been counted
		n = h.Last
	}
	if n-h.Last > uint32(most) {
		h.Clear()
	}
	for h.Len() > 0 && (h.Len() == Stamps || int(uint8(n-h.At(0)>>24)) > most) {
		*h.first() = (*h.first() + 1) % Stamps
		*h.stamps()--
	}
	at := (int(*h.first()) + h.Len()) % Stamps
	binary.LittleEndian.PutUint32(h.low[at/perRow][4*(at%perRow):], stamp)
	*h.stamps()++
	h.Last = n
}

// Within appends to buf, of the sub-window n, the shares of stamps (in 2^24ths) that are above a share, the earliest first.
func (h *Histogram) Within(n, above uint32, buf []uint32) []uint32 {
	for k := range h.Len() {
		if s := h.At(k); s>>24 == n&0xff && s&(1<<24-1) > above {
			buf = append(buf, s&(1<<24-1))
		}
	}
	return buf
}
