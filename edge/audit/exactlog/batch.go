package exactlog

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Interval is how long an edge gathers entries for a batch. Intervals are numbered by the wall clock, from the Unix epoch.
const Interval = 4 * time.Second

const interval = int64(Interval / time.Microsecond)

// What a batch holds at most, and how long it is then.
const (
	MaxGroups  = 1024
	MaxEntries = 8192
	MaxSize    = 64 + MaxGroups*(8+16) + MaxEntries*(1+4+7) + MaxRules*(64+24)
	MaxRules   = 256
	maxName    = 64
	maxBlock   = uint64(366 * 24 * time.Hour / time.Microsecond)
)

// Kind is what became of a request under a rule.
type Kind uint8

const (
	Counted Kind = iota // within the limit, and counted
	Passed              // within the limit, and not counted, since another rule refused it
	Refused             // over the limit
	Blocked             // refused by a block under which this edge had not refused the source yet
	Lifted              // nothing became of a request: an operator has lifted the source
	kinds
)

// Entry is one request.
type Entry struct {
	At       int64 // µs since 1970
	Kind     Kind
	Estimate float64 // of the hits in the window, the request included, in sixteenths; 0 if there is none
	Start    int64   // of Blocked: when the block began, in µs since 1970
}

// RuleRef is a rule as a batch tells of it.
type RuleRef struct {
	Counter uint64 // stands for its counters: the same on all edges
	Name    string // for operators
	Limit   uint32
	Window  time.Duration
	Sub     time.Duration // a sub-window of its counters: how far off their formula may be at the window's start
}

// Group is what an edge decided about a source under a rule.
type Group struct {
	Rule    RuleRef
	Source  uint64
	Gap     bool // there was no room for all that it counted
	Entries []Entry
}

// Batch is what an edge noted in an interval.
type Batch struct {
	Edge   uint64
	OneIn  uint64 // of so many sources it watches one
	Number int64  // of the interval
	Began  int64  // since when the edge notes everything, in µs since 1970
	Last   bool   // it ends
	Gap    bool   // what it counted in the interval it has not noted in full
	Groups []Group
}

// NumberOf is the number of the interval that an instant is in.
func NumberOf(t time.Time) int64 { return t.UnixMicro() / interval }

// Starts is when a batch's interval starts, and Ends when it ends, in µs since 1970.
func (b *Batch) Starts() int64 { return b.Number * interval }
func (b *Batch) Ends() int64   { return b.Starts() + interval }

const version = 2

// Append appends a batch as ReadBatch reads it. Of more than MaxRules rules those beyond are left out, as are entries far from the interval; the
// batch says that something is missing then.
func (b *Batch) Append(to []byte) []byte {
	rules, index := make([]RuleRef, 0, 16), make(map[RuleRef]int)
	groups, gap := 0, b.Gap
	for i := range b.Groups {
		r := b.Groups[i].Rule
		if _, known := index[r]; !known {
			if len(rules) == MaxRules {
				gap = true
				continue
			}
			index[r] = len(rules)
			rules = append(rules, r)
		}
		groups++
	}
	flags := byte(0)
	if b.Last {
		flags |= 1
	}
	if gap {
		flags |= 2
	}
	to = append(to, version, flags)
	to = binary.BigEndian.AppendUint64(to, b.Edge)
	to = binary.BigEndian.AppendUint64(to, uint64(b.Number))
	to = binary.BigEndian.AppendUint64(to, uint64(b.Began))
	to = binary.AppendUvarint(binary.AppendUvarint(to, b.OneIn), uint64(len(rules)))
	for _, r := range rules {
		to = binary.BigEndian.AppendUint64(to, r.Counter)
		to = binary.AppendUvarint(binary.AppendUvarint(to, uint64(r.Limit)), uint64(r.Window.Milliseconds()))
		to = binary.AppendUvarint(to, uint64((r.Sub + time.Millisecond - 1).Milliseconds()))
		name := r.Name[:min(len(r.Name), maxName)]
		to = append(append(to, byte(len(name))), name...)
	}
	to = binary.AppendUvarint(to, uint64(groups))
	for i := range b.Groups {
		g := &b.Groups[i]
		rule, known := index[g.Rule]
		if !known {
			continue
		}
		to = binary.BigEndian.AppendUint64(binary.AppendUvarint(to, uint64(rule)), g.Source)
		n := uint64(len(g.Entries)) << 1
		if g.Gap {
			n |= 1
		}
		to = binary.AppendUvarint(to, n)
		for _, e := range g.Entries {
			// An entry that came late is from before the interval; the clock may have stepped.
			at := min(max(e.At-b.Starts()+interval, 0), 3*interval)
			to = append(binary.AppendUvarint(to, uint64(at)), byte(e.Kind))
			switch {
			case e.Kind == Blocked:
				to = binary.AppendUvarint(to, uint64(max(e.At-e.Start, 0)))
			case e.Kind <= Refused:
				to = binary.AppendUvarint(to, uint64(math.Round(min(max(e.Estimate, 0), 1<<20)*16)))
			}
		}
	}
	return to
}

var errForm = errors.New("exactlog: this is no batch")

// ReadBatch reads what Append wrote. Whoever reaches the tier can write there, so nothing is taken on trust.
func ReadBatch(b []byte) (*Batch, error) {
	if len(b) > MaxSize {
		return nil, errForm
	}
	r := reader{rest: b}
	if r.byte() != version {
		return nil, errForm
	}
	flags := r.byte()
	out := &Batch{Last: flags&1 != 0, Gap: flags&2 != 0, Edge: r.fixed(), Number: int64(r.fixed()), Began: int64(r.fixed()), OneIn: r.upTo(math.MaxUint64)}
	if out.Number < 0 || out.Number > math.MaxInt64/interval-4 {
		return nil, errForm
	}
	rules := make([]RuleRef, r.count(MaxRules))
	for i := range rules {
		rules[i] = RuleRef{Counter: r.fixed(), Limit: uint32(r.upTo(math.MaxUint32)), Window: r.span(), Sub: r.span()}
		rules[i].Name = string(r.next(int(r.byte())))
	}
	out.Groups = make([]Group, r.count(MaxGroups))
	entries := 0
	for i := range out.Groups {
		rule := r.upTo(MaxRules)
		if r.bad || rule >= uint64(len(rules)) {
			return nil, errForm
		}
		g := &out.Groups[i]
		g.Rule, g.Source = rules[rule], r.fixed()
		n := r.upTo(2*MaxEntries + 1)
		if g.Gap, n = n&1 != 0, n>>1; entries+int(n) > MaxEntries {
			return nil, errForm
		}
		entries += int(n)
		g.Entries = make([]Entry, n)
		for k := range g.Entries {
			e := &g.Entries[k]
			e.At = out.Starts() - interval + int64(r.upTo(uint64(3*interval)))
			if e.Kind = Kind(r.byte()); e.Kind >= kinds {
				return nil, errForm
			}
			switch {
			case e.Kind == Blocked:
				e.Start = e.At - int64(r.upTo(maxBlock))
			case e.Kind <= Refused:
				e.Estimate = float64(r.upTo(1<<24)) / 16
			}
		}
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errForm
	}
	return out, nil
}

// reader reads numbers; beyond the end, and where one is too large, it gives 0 and is bad.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) next(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.bad = nil, true
		return nil
	}
	piece := r.rest[:n]
	r.rest = r.rest[n:]
	return piece
}

func (r *reader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed() uint64 {
	if b := r.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) upTo(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// span is a time of so many milliseconds.
func (r *reader) span() time.Duration {
	return time.Duration(r.upTo(uint64(48*time.Hour/time.Millisecond))) * time.Millisecond
}

// count is how many there are of something that takes a byte at least.
func (r *reader) count(most int) int {
	n := int(r.upTo(uint64(most)))
	if n > len(r.rest) {
		r.bad = true
		return 0
	}
	return n
}
