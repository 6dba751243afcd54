package pop

import (
	"encoding/binary"
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// record is what edges tell each other in the mitigation log: a bit, how a counter stands that has come near its limit, or when hits
// of it came. A bit stands under its source's key, too. Every record carries a MAC under the PoP's secret, so that whoever else
// reaches the tier can block nobody; one that does not check is as good as missing.
type record struct {
	kind   kind
	rule   uint64 // Secret.ruleDigest
	source counter.Source
	epoch  uint64    // of the source, as the writer knew it: see Machine.epoch
	start  time.Time // on the wall clock, as end
	end    time.Time // aBlock
	limit  uint32    // aBlock: that was passed
	by     mitigation.By
	newest uint32          // aCount, aQuestion: the group of groups[0]
	groups []uint64        // aCount, aQuestion: lanes, the newest group first
	edge   uint64          // aQuestion, aTimes: who counted times
	times  []counter.Times // aQuestion, aTimes: the edge's own
}

type kind uint8

const (
	aBlock    kind = iota
	aCount         // how a counter stands
	aQuestion      // that, when the writer's hits of the window came, and a question when the others' did
	aTimes         // the answer
	kinds
)

const (
	recordFixed = 1 + 8 + counter.SourceSize + 8
	maxRecord   = 2048
)

// seal encodes r.
func (s Secret) seal(r record) []byte {
	b := make([]byte, 0, 160) // most are shorter
	b = append(b, byte(r.kind))
	b = binary.BigEndian.AppendUint64(b, r.rule)
	b = r.source.AppendBinary(b)
	b = binary.BigEndian.AppendUint64(b, uint64(r.start.UnixNano()))
	b = binary.AppendUvarint(b, r.epoch)
	switch r.kind {
	case aBlock:
		b = binary.BigEndian.AppendUint64(b, uint64(r.end.UnixNano()))
		b = binary.AppendUvarint(b, uint64(r.limit))
		b = append(b, byte(r.by))
	case aCount:
		b = r.appendGroups(b)
	case aQuestion:
		b = r.appendTimes(r.appendGroups(b))
	case aTimes:
		b = r.appendTimes(b)
	}
	return s.records.appendMAC(b, forMAC)
}

func (r *record) appendGroups(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint32(b, r.newest), byte(len(r.groups)))
	for _, g := range r.groups {
		b = binary.BigEndian.AppendUint64(b, g)
	}
	return b
}

// appendTimes encodes hits that are few in many bins: of each sub-window its number, how many bins are not empty, and those.
func (r *record) appendTimes(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint64(b, r.edge), byte(len(r.times)))
	for i := range r.times {
		b = binary.BigEndian.AppendUint32(b, r.times[i].SubWindow)
		at := len(b)
		b = append(b, 0)
		for bin, hits := range r.times[i].Hits {
			if hits > 0 {
				b[at]++
				b = binary.AppendUvarint(append(b, byte(bin)), uint64(hits))
			}
		}
	}
	return b
}

// open decodes what seal made and reports whether it is authentic.
func (s Secret) open(b []byte) (r record, ok bool) {
	if len(b) < recordFixed+macSize || len(b) > maxRecord {
		return r, false
	}
	if !s.records.checks(b, forMAC) {
		return r, false
	}
	in := reader{b[:len(b)-macSize], true}
	r.kind, r.rule = kind(in.byte()), in.uint64()
	r.source, ok = counter.SourceFromBinary(in.bytes(counter.SourceSize))
	r.start, r.epoch = in.time(), in.uvarint()
	switch r.kind {
	case aBlock:
		r.end, r.limit, r.by = in.time(), uint32(in.uvarint()), mitigation.By(in.byte())
		ok = ok && r.by <= mitigation.ByAdmin
	case aCount:
		r.readGroups(&in)
	case aQuestion:
		r.readGroups(&in)
		r.readTimes(&in)
	case aTimes:
		r.readTimes(&in)
	}
	return r, ok && r.kind < kinds && in.ok && len(in.rest) == 0
}

func (r *record) readGroups(in *reader) {
	r.newest = in.uint32()
	for range in.byte() {
		r.groups = append(r.groups, in.uint64())
	}
}

func (r *record) readTimes(in *reader) {
	r.edge = in.uint64()
	for range in.byte() {
		times := counter.Times{SubWindow: in.uint32()}
		for range in.byte() {
			bin := int(in.byte()) % len(times.Hits)
			times.Hits[bin] = uint16(min(in.uvarint(), 1<<16-1))
		}
		if r.times = append(r.times, times); !in.ok {
			return
		}
	}
}

// reader reads numbers from bytes; once there are too few, ok is false and all that follows is 0.
type reader struct {
	rest []byte
	ok   bool
}

func (in *reader) bytes(n int) []byte {
	if in.ok = in.ok && len(in.rest) >= n; !in.ok {
		return make([]byte, n)
	}
	b := in.rest[:n]
	in.rest = in.rest[n:]
	return b
}

func (in *reader) byte() byte      { return in.bytes(1)[0] }
func (in *reader) uint32() uint32  { return binary.BigEndian.Uint32(in.bytes(4)) }
func (in *reader) uint64() uint64  { return binary.BigEndian.Uint64(in.bytes(8)) }
func (in *reader) time() time.Time { return time.Unix(0, int64(in.uint64())) }
func (in *reader) uvarint() uint64 {
	x, n := binary.Uvarint(in.rest)
	if in.ok = in.ok && n > 0; !in.ok {
		return 0
	}
	in.rest = in.rest[n:]
	return x
}
