package exactlog

import (
	"bytes"
	"encoding/gob"
	"errors"
	"math"
	"time"
)

// Interval is how long an edge gathers entries for a batch. Intervals are numbered by the wall clock, from the Unix epoch.
const Interval = 4 * time.Second

const interval = int64(Interval / time.Microsecond)

// What a batch holds at most, and how many bytes it has then.
const (
	MaxGroups  = 1024
	MaxEntries = 8192
	MaxSize    = 512 << 10
	longest    = 48 * time.Hour // a window
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

// RuleRef is how a batch refers to a rule.
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

// Append appends a batch as ReadBatch reads it.
func (b *Batch) Append(to []byte) []byte {
	out := bytes.NewBuffer(to)
	_ = gob.NewEncoder(out).Encode(b) // it always can be
	return out.Bytes()
}

var errForm = errors.New("exactlog: this is no batch")

// ReadBatch reads what Append wrote. That it is an edge's is for the caller to know; what cannot be, because an edge is of another version, is
// no batch.
func ReadBatch(text []byte) (*Batch, error) {
	b, in := new(Batch), bytes.NewReader(text)
	if len(text) > MaxSize || gob.NewDecoder(in).Decode(b) != nil || in.Len() > 0 {
		return nil, errForm
	}
	if b.Number < 0 || b.Number > math.MaxInt64/interval-4 || len(b.Groups) > MaxGroups {
		return nil, errForm
	}
	entries := 0
	for _, g := range b.Groups {
		if entries += len(g.Entries); entries > MaxEntries || min(g.Rule.Window, g.Rule.Sub) < 0 || max(g.Rule.Window, g.Rule.Sub) > longest {
			return nil, errForm
		}
		for i := range g.Entries {
			e := &g.Entries[i]
			if e.Kind >= kinds {
				return nil, errForm
			}
			e.At = min(max(e.At, b.Starts()-interval), b.Ends()+interval) // one that came late is from before the interval; the clock may have stepped
		}
	}
	return b, nil
}
