package log

import "time"

const (
	Behind     = 4096 // numbers; a Reader that is further behind does not read them all
	MaxNumbers = 100  // that are read at once

	patience   = 2 * time.Second // for a number that is missing
	width      = 4               // numbers that are read at once where none is known to be there
	maxWidth   = MaxNumbers / 2
	maxMissing = MaxNumbers / 2 // numbers; more are given up
)

// A Reader knows how far a node's log has been read. Where it reports that something was missed,
// the log could not be read whole: what relies on it is read elsewhere. The zero Reader has no log.
type Reader struct {
	empty bool   // there was no log when last looked
	head  uint64 // the last number that is known to have been given out
	// The first that has been neither read nor missing; 0: nothing is known of the log
	next uint64
	// Up to this one numbers are not read again: their items may have been forgotten
	old       uint64
	missing   []missing
	width     uint64 // numbers to read that may be there
	most      uint64 // numbers to read, so that the answer comes in time
	polled    time.Time
	found     time.Time // when it last had something new
	reading   bool
	requested []uint64 // of the read under way
}

type missing struct {
	number uint64
	since  time.Time
}

// Found is when the log last had something new.
func (r *Reader) Found() time.Time { return r.found }

// NotThere notes that the node has no log.
func (r *Reader) NotThere() { r.empty = true }

// Head takes in the last number given out.
func (r *Reader) Head(number uint64) (missed bool) {
	begun := r.empty || number+Behind < r.next // or anew, by a clock that is behind
	r.head, r.empty = number, false
	switch {
	case begun:
		r.next, r.missing, r.old = number/Behind*Behind, r.missing[:0], 0
	case r.next == 0, number > r.next+Behind: // what is still there of the latest is worth reading
		r.next, r.missing, r.old = number/Behind*Behind, r.missing[:0], number
		return true
	}
	return false
}

// IsCurrent reports whether a Head of this number would change nothing.
func (r *Reader) IsCurrent(number uint64) bool {
	return !r.empty && r.next != 0 && number == r.head && number+Behind >= r.next &&
		number <= r.next+Behind
}

// Settled reports whether all numbers that were given out have been read: a Read that finds nothing
// more changes nothing.
func (r *Reader) Settled() bool { return len(r.missing) == 0 && r.head < r.next }

// Next returns which numbers to read: none if a read is under way, or the last was less than a time
// ago. Read or Failed must follow.
func (r *Reader) Next(now time.Time, every time.Duration) []uint64 {
	if r.reading || r.next == 0 || now.Sub(r.polled) < every {
		return nil
	}
	r.requested = r.requested[:0]
	for _, m := range r.missing {
		r.requested = append(r.requested, m.number)
	}
	wide := max(r.width, width)
	if r.head >= r.next {
		wide = max(wide, r.head-r.next+1)
	}
	if r.most == 0 {
		r.most = maxWidth
	}
	for k := range min(wide, r.most) {
		r.requested = append(r.requested, r.next+k)
	}
	r.reading, r.polled = true, now
	return r.requested
}

// Failed notes that the numbers were not read; perhaps they are too many at once.
func (r *Reader) Failed() {
	r.reading = false
	r.most = max(r.most/2, 1)
}

// Read takes in which of the numbers had an item: values are in the order of Next, nil where there
// is none.
func (r *Reader) Read(values [][]byte, now time.Time) (missed bool) {
	r.reading = false
	r.most = min(2*r.most, maxWidth)
	found := 0
	for i, number := range r.requested {
		if values[i] != nil {
			found++
			r.head = max(r.head, number)
			r.found = now
		}
	}
	still := r.missing[:0]
	for _, m := range r.missing {
		switch {
		case r.has(values, m.number):
		case now.Sub(m.since) < patience:
			still = append(still, m)
		default:
			missed = true
		}
	}
	r.missing = still
	for i, number := range r.requested {
		if number < r.next || number > r.head {
			continue // requested for again, or not given out yet
		}
		switch {
		case values[i] != nil || number <= r.old:
		case len(r.missing) < maxMissing:
			r.missing = append(r.missing, missing{number, now})
		default:
			missed = true
		}
		r.next = number + 1
	}
	r.width = width
	if r.head >= r.next || found > width/2 { // there is more
		r.polled = time.Time{}
		r.width = min(2*uint64(found), maxWidth)
	}
	return missed
}

// has reports whether an item was among the values of a read.
func (r *Reader) has(values [][]byte, number uint64) bool {
	for i, requested := range r.requested {
		if requested == number {
			return values[i] != nil
		}
	}
	return false
}
