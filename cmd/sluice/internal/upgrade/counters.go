package upgrade

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

// The counters of an edge that counts alone go to the process that takes its place in this form, numbers in little endian:
//
//	"sluice counters 1\n"
//	how many rules (4 bytes), and of each the length of its identity (4) and the identity
//	counters: number of the rule from 1 (4), source (17), number of the newest group (4), how many groups (4), groups (8 each)
//	0 (4)
//	CRC-32C of all that (4)
//
// They go twice: before the new process serves, and when the old one has answered its last request; then the larger number
// counts, so of a source that made requests to both meanwhile, those are forgotten of which there were fewer. Not in it is when
// within a sub-window a hit came: for the rest of the window the new process takes them to be spread evenly, as it does with
// the hits of other edges. Only what comes whole is taken.
const countersMagic = "sluice counters 1\n"

// inheritTime is how long handing counters over may take.
const inheritTime = 20 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeCounters writes the counters of rules, and returns how many there are.
func writeCounters(w io.Writer, table *counter.Table, rules []*algorithm.Spec, now time.Time) (n int, err error) {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	b := binary.LittleEndian.AppendUint32([]byte(countersMagic), uint32(len(rules)))
	number := make(map[*algorithm.Spec]uint32, len(rules))
	for i, r := range rules {
		number[r] = uint32(i + 1)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(r.Identity()))), r.Identity()...)
	}
	if _, err := out.Write(b); err != nil {
		return 0, err
	}
	for c := range table.All(rules, now) {
		b = binary.LittleEndian.AppendUint32(b[:0], number[c.Rule])
		b = binary.LittleEndian.AppendUint32(c.Source.AppendBinary(b), c.Newest)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.Groups)))
		for _, g := range c.Groups {
			b = binary.LittleEndian.AppendUint64(b, g)
		}
		if _, err := out.Write(b); err != nil {
			return n, err
		}
		n++
	}
	if _, err := out.Write(make([]byte, 4)); err != nil {
		return n, err
	}
	if err := out.Flush(); err != nil {
		return n, err
	}
	_, err = w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return n, err
}

// readCounters reads what writeCounters wrote and has the table learn it: all, or nothing and an error. Counters of rules that are
// no longer there are left out, and so is what is more than most, the table's capacity. Until it is done it takes as much memory again
// as the counters do.
func readCounters(r *bufio.Reader, table *counter.Table, rules []*algorithm.Spec, most int, now time.Time) (taken int, err error) {
	in := &summed{r: r, sum: crc32.New(castagnoli)}
	if magic := string(in.next(len(countersMagic))); magic != countersMagic && in.err == nil {
		return 0, fmt.Errorf("counters come in the form %q, this version reads %q", magic, countersMagic)
	}
	ours := make(map[string]*algorithm.Spec, len(rules))
	for _, r := range rules {
		ours[r.Identity()] = r
	}
	theirs := make([]*algorithm.Spec, in.number(1<<20)) // nil: not a rule of ours
	for i := range theirs {
		theirs[i] = ours[string(in.next(in.number(1<<16)))]
	}
	// Nothing is learned before the sum has been compared.
	type record struct {
		counter.Counter
		newest        uint32
		first, groups uint32 // in lanes
	}
	var records []record
	var lanes []uint64
	for {
		n := in.number(len(theirs))
		if n == 0 {
			break
		}
		source, good := counter.SourceFromBinary(in.next(counter.SourceSize))
		k := record{Counter: counter.Counter{Rule: theirs[n-1], Source: source}, newest: uint32(in.number(math.MaxUint32)), first: uint32(len(lanes))}
		groups := in.next(8 * in.number(16))
		if in.err == nil && !good {
			return 0, errors.New("a counter of nobody")
		}
		if k.Rule == nil || len(records) == most || in.err != nil {
			continue
		}
		for ; len(groups) > 0; groups = groups[8:] {
			lanes = append(lanes, binary.LittleEndian.Uint64(groups))
			k.groups++
		}
		records = append(records, k)
	}
	sum := in.sum.Sum32()
	if got := uint32(in.number(math.MaxUint32)); in.err == nil && got != sum {
		return 0, errors.New("the sum of the counters is wrong")
	}
	if in.err != nil {
		return 0, in.err
	}
	for _, k := range records {
		table.Reports().Learn(k.Counter, k.newest, lanes[k.first:k.first+k.groups], 0, now)
	}
	return len(records), nil
}

// summed reads and sums up. After an error it gives zeros.
type summed struct {
	r   io.Reader
	sum hash.Hash32
	buf []byte
	err error
}

// next returns the next n bytes, good until it is called again.
func (s *summed) next(n int) []byte {
	s.buf = append(s.buf[:0], make([]byte, n)...)
	if s.err == nil {
		if _, s.err = io.ReadFull(s.r, s.buf); s.err == nil {
			_, _ = s.sum.Write(s.buf)
		} else {
			clear(s.buf)
			if s.err == io.EOF {
				s.err = io.ErrUnexpectedEOF
			}
		}
	}
	return s.buf
}

// number returns the next number, which is at most most.
func (s *summed) number(most int) int {
	n := int(binary.LittleEndian.Uint32(s.next(4)))
	if n > most {
		s.err = fmt.Errorf("a number is %d, and at most %d makes sense", n, most)
		return 0
	}
	return n
}
