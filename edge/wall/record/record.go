// Package record is the protocol between an edge and sluice-wall over a Unix socket: records of
// Size bytes, in both directions.
//
// The edge sends Hello first, and the answer is what the helper grants. Add, Delete and Flush are
// gathered, and answered only where they are refused; Commit puts them into the kernel, and its
// answer is the last of theirs. Report is answered with a record for each entry that has refused a
// connection, and a last one with the totals.
//
//	0      1        2   3     4       5     6     8  16  24       40
//	magic  version  op  code  family  bits  zero  A  B   address
//
// Numbers are big-endian. The package holds no state, and does no I/O.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

const (
	// Size is the length of a record.
	Size = 40

	magic   = 'W'
	version = 1
)

// Op is what a record is about, the same in a request and in its answers.
type Op uint8

const (
	// Answered with A, the longest lease in milliseconds, and B, the most entries
	Hello Op = 1 + iota
	// A: a port that the edge listens on; answered if the helper does not guard it
	Port
	// Refuse Prefix for A milliseconds from now on, whether or not it is in the set already
	Add
	Delete // refuse Prefix no more
	Flush  // empty the set
	Commit // answered when everything before it is in force
	// Answered for each Prefix with A, the SYNs refused since it was added; then with A, those of
	// all time, and B, the entries
	Report

	last = Report
)

// Code is what is wrong with a request.
type Code uint8

const (
	OK          Code = iota
	Malformed        // not a record of this version, or not in its place
	WrongUser        // A: the user of the connection; B: the one that is served
	ForeignPort      // A: the port
	LongLease        // A: the lease in the request; B: the longest, both in milliseconds
	Full             // B: the most entries
	Kernel           // the kernel refused the change; the helper's log has the error
	Crowded          // B: the most connections

	lastCode = Crowded
)

// Record is a request or an answer. The zero Prefix is none.
type Record struct {
	Op     Op
	Code   Code
	Prefix netip.Prefix
	A, B   uint64
}

// ErrMalformed is the error of Parse.
var ErrMalformed = errors.New("record: not a record of this version: are the edge and sluice-wall of the same release?")

// Append appends the record's bytes to b. A prefix must be masked and its address plain, as Parse
// returns it.
func (r Record) Append(b []byte) []byte {
	var out [Size]byte
	out[0], out[1], out[2], out[3] = magic, version, byte(r.Op), byte(r.Code)
	if r.Prefix.IsValid() {
		addr := r.Prefix.Addr()
		out[4], out[5] = 6, byte(r.Prefix.Bits())
		if addr.Is4() {
			out[4] = 4
		}
		copy(out[24:], addr.AsSlice())
	}
	binary.BigEndian.PutUint64(out[8:], r.A)
	binary.BigEndian.PutUint64(out[16:], r.B)
	return append(b, out[:]...)
}

// Parse reads a record. What it returns is as Append would write it, so there is one way to say a
// thing.
func Parse(b []byte) (Record, error) {
	if len(b) != Size || b[0] != magic || b[1] != version || b[6] != 0 || b[7] != 0 {
		return Record{}, ErrMalformed
	}
	r := Record{Op: Op(b[2]), Code: Code(b[3]), A: binary.BigEndian.Uint64(b[8:]),
		B: binary.BigEndian.Uint64(b[16:])}
	var addr netip.Addr
	switch b[4] {
	case 0:
	case 4:
		addr = netip.AddrFrom4([4]byte(b[24:]))
	case 6:
		addr = netip.AddrFrom16([16]byte(b[24:]))
	default:
		return Record{}, ErrMalformed
	}
	r.Prefix = netip.PrefixFrom(addr, int(b[5]))
	if r.Op == 0 || r.Op > last || r.Code > lastCode ||
		[Size]byte(r.Append(nil)) != [Size]byte(b) ||
		addr.IsValid() && (!r.Prefix.IsValid() || r.Prefix.Masked() != r.Prefix || addr.Is4In6()) {
		return Record{}, ErrMalformed
	}
	if (r.Op == Add || r.Op == Delete) && !r.Prefix.IsValid() {
		return Record{}, ErrMalformed
	}
	return r, nil
}

// Error is a sentence about what is wrong, and what to do.
func (r Record) Error() string {
	switch r.Code {
	case OK:
		return "nothing is wrong"
	case WrongUser:
		return fmt.Sprintf("sluice-wall serves the user %d only, and this edge runs as %d: start it with --user and the user that the edge runs as", r.B, r.A)
	case ForeignPort:
		return fmt.Sprintf("port %d is none of those that sluice-wall guards: start it with --ports and all ports that the edge listens on", r.A)
	case LongLease:
		return fmt.Sprintf("%v: a lease of %v is longer than sluice-wall grants, which is %v",
			r.Prefix, time.Duration(r.A)*time.Millisecond, time.Duration(r.B)*time.Millisecond)
	case Full:
		return fmt.Sprintf("%v: the set is full with %d entries: start sluice-wall with a larger --max", r.Prefix, r.B)
	case Kernel:
		return "the kernel refused a change: the log of sluice-wall has the error"
	case Crowded:
		return fmt.Sprintf("sluice-wall has %d connections, and takes no more: start another for some of the edges", r.B)
	}
	return "not a record that sluice-wall understands: are the edge and sluice-wall of the same release?"
}
