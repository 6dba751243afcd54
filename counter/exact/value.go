package exact

import (
	"encoding/binary"
	"slices"
	"time"
)

// A value is what the tier has of a bucket: a form, since when it is complete (µs), and for each
// source its tag, how many instants it has, the first, and how long after the one before each other
// came. An instant of a window of an hour takes four bytes on average where there are a thousand.
type value struct {
	since   int64
	sources []source
}

type source struct {
	tag uint64
	at  []int64
}

const (
	form      = 1
	valueHead = 1 + 8
	// maxValue is the longest value. A bucket with a longer value answers no request until instants
	// have left it.
	maxValue = 256 << 10
)

// Fresh is the value of a bucket that the tier did not have.
func Fresh(wall time.Time) []byte { return (&value{since: wall.UnixMicro()}).append(nil) }

func (v *value) append(b []byte) []byte {
	b = append(b, form)
	b = binary.BigEndian.AppendUint64(b, uint64(v.since))
	for _, s := range v.sources {
		if len(s.at) == 0 {
			continue
		}
		b = binary.BigEndian.AppendUint64(b, s.tag)
		b = binary.AppendUvarint(b, uint64(len(s.at)))
		before := int64(0)
		for _, at := range s.at {
			b = binary.AppendUvarint(b, uint64(at-before))
			before = at
		}
	}
	return b
}

// parse reads what append has written.
func parse(b []byte) (v value, ok bool) {
	if len(b) < valueHead || b[0] != form || len(b) > maxValue {
		return v, false
	}
	v.since, b = int64(binary.BigEndian.Uint64(b[1:])), b[valueHead:]
	number := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if ok = size > 0 && n < 1<<62; ok {
			b = b[size:]
		}
		return n
	}
	for len(b) > 0 {
		if len(b) < 8 {
			return value{}, false
		}
		s := source{tag: binary.BigEndian.Uint64(b)}
		b = b[8:]
		n := number()
		if !ok || n > uint64(len(b)) { // each has a byte at least
			return value{}, false
		}
		s.at = make([]int64, n)
		before := int64(0)
		for i := range s.at {
			before += int64(number())
			if !ok || before < 0 {
				return value{}, false
			}
			s.at[i] = before
		}
		v.sources = append(v.sources, s)
	}
	return v, true
}

// of is a source's instants, for as long as no other source is added.
func (v *value) of(tag uint64) *[]int64 {
	for i := range v.sources {
		if v.sources[i].tag == tag {
			return &v.sources[i].at
		}
	}
	v.sources = append(v.sources, source{tag: tag})
	return &v.sources[len(v.sources)-1].at
}

// prune drops what does not count any more.
func (v *value) prune(r *Spec, now int64) {
	for i := range v.sources {
		s := &v.sources[i]
		s.at = r.live(s.at, now)
	}
	v.sources = slices.DeleteFunc(v.sources, func(s source) bool { return len(s.at) == 0 })
}
