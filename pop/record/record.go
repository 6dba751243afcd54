// Package record is what edges send each other through the tier: that a source is mitigated, the
// state of a counter that has come near its limit, or when hits of it came. Records are the items
// of a node's mitigation log, and a mitigation's is at its source's key, too. Each carries a MAC
// under the PoP's secret, so that an outsider that reaches the tier can block no source; a record
// that does not check counts as missing.
package record

import (
	"encoding/binary"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// Record is one of a kind, which decides which fields are used.
type Record struct {
	Kind   Kind
	Rule   uint64 // Secret.RuleDigest
	Source counter.Source
	Epoch  uint64    // of the source, as the writer knew it: the generation of its last lift
	Start  time.Time // on the wall clock, as End
	End    time.Time // Block
	Limit  uint32    // Block: that was passed
	By     mitigation.By
	Newest uint32   // State, RequestTimes, OtherPoPs: the group of Groups[0]
	Groups []uint64 // likewise: lanes, the newest group first
	// RequestTimes, Times: the edge that counted them; OtherPoPs: stands for the PoP
	Edge  uint64
	Times []counter.Times // RequestTimes, Times: the edge's own
}

// Kind is the kind of a record.
type Kind uint8

const (
	Block Kind = iota
	State      // how a counter stands
	// That, when the writer's hits of the window came, and a request for the others'
	RequestTimes
	Times     // the answer
	OtherPoPs // what another PoP has counted
	kinds
)

func (k Kind) String() string {
	return [...]string{"block", "standing", "ask", "times", "elsewhere"}[k]
}

const maxRecord = 2048 // bytes

// Seal encodes r.
func (r *Record) Seal(s secret.Secret) []byte {
	b := make([]byte, 0, 160) // most are shorter
	b = append(b, byte(r.Kind))
	b = binary.BigEndian.AppendUint64(b, r.Rule)
	b = r.Source.AppendBinary(b)
	b = secret.AppendTime(b, r.Start)
	b = binary.AppendUvarint(b, r.Epoch)
	switch r.Kind {
	case Block:
		b = secret.AppendTime(b, r.End)
		b = binary.AppendUvarint(b, uint64(r.Limit))
		b = append(b, byte(r.By))
	case State:
		b = r.appendGroups(b)
	case RequestTimes:
		b = r.appendTimes(r.appendGroups(b))
	case Times:
		b = r.appendTimes(b)
	case OtherPoPs:
		b = r.appendGroups(binary.BigEndian.AppendUint64(b, r.Edge))
	}
	return s.Seal(secret.Records, b)
}

func (r *Record) appendGroups(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint32(b, r.Newest), byte(len(r.Groups)))
	for _, g := range r.Groups {
		b = binary.BigEndian.AppendUint64(b, g)
	}
	return b
}

// appendTimes encodes hits that are few in many bins: of each sub-window its number, how many bins
// are not empty, and those.
func (r *Record) appendTimes(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint64(b, r.Edge), byte(len(r.Times)))
	for i := range r.Times {
		b = binary.BigEndian.AppendUint32(b, r.Times[i].SubWindow)
		at := len(b)
		b = append(b, 0)
		for bin, hits := range r.Times[i].Hits {
			if hits > 0 {
				b[at]++
				b = binary.AppendUvarint(append(b, byte(bin)), uint64(hits))
			}
		}
	}
	return b
}

// Open decodes what seal made and reports whether it is authentic.
func Open(s secret.Secret, b []byte) (r Record, ok bool) {
	if len(b) > maxRecord {
		return r, false
	}
	in, authentic := s.Open(secret.Records, b)
	if !authentic {
		return r, false
	}
	r.Kind, r.Rule = Kind(in.Number(1)), in.Number(8)
	r.Source, ok = counter.SourceFromBinary(in.Next(counter.SourceSize))
	r.Start, r.Epoch = in.Time(), in.Uvarint()
	switch r.Kind {
	case Block:
		r.End, r.Limit, r.By = in.Time(), uint32(in.Uvarint()), mitigation.By(in.Number(1))
		ok = ok && r.By <= mitigation.ByPeer
	case State:
		r.readGroups(&in)
	case RequestTimes:
		r.readGroups(&in)
		r.readTimes(&in)
	case Times:
		r.readTimes(&in)
	case OtherPoPs:
		r.Edge = in.Number(8)
		r.readGroups(&in)
	}
	return r, ok && r.Kind < kinds && in.Whole()
}

func (r *Record) readGroups(in *secret.Reader) {
	r.Newest = uint32(in.Number(4))
	for range in.Number(1) {
		r.Groups = append(r.Groups, in.Number(8))
	}
}

func (r *Record) readTimes(in *secret.Reader) {
	r.Edge = in.Number(8)
	for range in.Number(1) {
		times := counter.Times{SubWindow: uint32(in.Number(4))}
		for range in.Number(1) {
			bin := int(in.Number(1)) % len(times.Hits)
			times.Hits[bin] = uint16(min(in.Uvarint(), 1<<16-1))
		}
		if r.Times = append(r.Times, times); in.Bad() {
			return
		}
	}
}

// An item of the log is some sealed records, each behind its length in two bytes.

// Append adds a sealed record to an item.
func Append(item, sealed []byte) []byte {
	return append(binary.BigEndian.AppendUint16(item, uint16(len(sealed))), sealed...)
}

// Cut cuts the first record off an item. It is nil if there is no whole one.
func Cut(item []byte) (sealed, rest []byte) {
	if len(item) < 2 {
		return nil, item
	}
	n := 2 + int(binary.BigEndian.Uint16(item))
	if n > len(item) {
		return nil, item
	}
	return item[2:n:n], item[n:]
}

// Count is how many whole records an item has.
func Count(item []byte) (n int) {
	for sealed, rest := Cut(item); sealed != nil; sealed, rest = Cut(rest) {
		n++
	}
	return n
}

// Taken keeps which sub-windows' times have been taken in. That must happen once, though an
// outsider that reaches the tier may write an edge's record a second time.
type Taken struct {
	newest uint32
	before uint16    // a bit for each sub-window, that of the newest the lowest
	Until  time.Time // by then they have left every window
}

// Take notes a sub-window, and reports whether it is to be taken in.
func (t *Taken) Take(subWindow uint32) bool {
	ahead := int32(subWindow - t.newest)
	switch {
	case t.before == 0 || ahead >= 16:
		t.newest, t.before = subWindow, 1
		return true
	case ahead > 0:
		t.newest, t.before = subWindow, t.before<<ahead|1
		return true
	case ahead <= -16 || t.before>>-ahead&1 != 0:
		return false
	}
	t.before |= 1 << -ahead
	return true
}
