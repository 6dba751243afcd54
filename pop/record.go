package pop

import (
	"encoding/binary"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// record is what edges tell each other in the mitigation log: a bit, how a counter stands that has come near its limit, or when hits
// of it came. A bit stands under its source's key, too. Every record carries a MAC under the PoP's secret, so that whoever else
// reaches the tier can block nobody; one that does not check is as good as missing.
type record struct {
	kind   kind
	rule   uint64 // Secret.RuleDigest
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

const maxRecord = 2048 // bytes

// seal encodes r.
func (r *record) seal(s secret.Secret) []byte {
	b := make([]byte, 0, 160) // most are shorter
	b = append(b, byte(r.kind))
	b = binary.BigEndian.AppendUint64(b, r.rule)
	b = r.source.AppendBinary(b)
	b = secret.AppendTime(b, r.start)
	b = binary.AppendUvarint(b, r.epoch)
	switch r.kind {
	case aBlock:
		b = secret.AppendTime(b, r.end)
		b = binary.AppendUvarint(b, uint64(r.limit))
		b = append(b, byte(r.by))
	case aCount:
		b = r.appendGroups(b)
	case aQuestion:
		b = r.appendTimes(r.appendGroups(b))
	case aTimes:
		b = r.appendTimes(b)
	}
	return s.Seal(secret.Records, b)
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
func open(s secret.Secret, b []byte) (r record, ok bool) {
	if len(b) > maxRecord {
		return r, false
	}
	in, authentic := s.Open(secret.Records, b)
	if !authentic {
		return r, false
	}
	r.kind, r.rule = kind(in.Number(1)), in.Number(8)
	r.source, ok = counter.SourceFromBinary(in.Next(counter.SourceSize))
	r.start, r.epoch = in.Time(), in.Uvarint()
	switch r.kind {
	case aBlock:
		r.end, r.limit, r.by = in.Time(), uint32(in.Uvarint()), mitigation.By(in.Number(1))
		ok = ok && r.by <= mitigation.ByAdmin
	case aCount:
		r.readGroups(&in)
	case aQuestion:
		r.readGroups(&in)
		r.readTimes(&in)
	case aTimes:
		r.readTimes(&in)
	}
	return r, ok && r.kind < kinds && in.Whole()
}

func (r *record) readGroups(in *secret.Reader) {
	r.newest = uint32(in.Number(4))
	for range in.Number(1) {
		r.groups = append(r.groups, in.Number(8))
	}
}

func (r *record) readTimes(in *secret.Reader) {
	r.edge = in.Number(8)
	for range in.Number(1) {
		times := counter.Times{SubWindow: uint32(in.Number(4))}
		for range in.Number(1) {
			bin := int(in.Number(1)) % len(times.Hits)
			times.Hits[bin] = uint16(min(in.Uvarint(), 1<<16-1))
		}
		if r.times = append(r.times, times); in.Bad() {
			return
		}
	}
}
