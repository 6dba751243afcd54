package operatorlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"sluice/counter"
	"sluice/pop/secret"
)

// Digest stands for the contents of a list: its MAC.
type Digest [secret.MACSize]byte

// magic is what a list begins with.
const magic = "sluice words 2\n"

// Encode returns the list in the form in which it travels, the same for the same words: magic,
// number of entries, entries by rule and source, and a MAC under the PoP's secret. What is over is
// dropped first.
func (l *List) Encode(s secret.Secret, now time.Time) []byte {
	l.purge(now)
	type named struct {
		*Entry
		source [counter.SourceSize]byte
	}
	list := make([]named, 0, len(l.entries))
	for _, e := range l.entries {
		n := named{Entry: e}
		e.Source.AppendBinary(n.source[:0])
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), bytes.Compare(a.source[:], b.source[:]),
			older(a.Entry, b.Entry))
	})
	b := make([]byte, 0, len(magic)+4+l.bytes+secret.MACSize)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		b = e.append(b)
	}
	return s.Seal(secret.OperatorList, b)
}

func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, e.generation)
	b = binary.BigEndian.AppendUint64(b, e.edge)
	b = secret.AppendTime(b, e.Start)
	b = secret.AppendTime(b, e.End)
	b = binary.BigEndian.AppendUint64(b, e.Epoch)
	b = secret.AppendTime(b, e.kept)
	b = e.Source.AppendBinary(b)
	b = append(append(b, byte(len(e.Rule))), e.Rule...)
	text := e.Reason + e.Text // it has one of them
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	b = append(append(b, byte(len(e.Who))), e.Who...)
	return append(append(b, byte(len(e.From))), e.From...)
}

// Decode reads what encode wrote, under the PoP's secret or the one before: all, or nothing and an
// error.
func Decode(s secret.Secret, b []byte) (list []Entry, id Digest, err error) {
	if len(b) > maxEncoded {
		return nil, id, ErrList
	}
	in, ok := s.OpenAny(secret.OperatorList, b)
	if !ok || string(in.Next(len(magic))) != magic {
		return nil, id, ErrList
	}
	copy(id[:], b[len(b)-secret.MACSize:])
	n := int(in.Number(4))
	if n > MaxEntries {
		return nil, id, fmt.Errorf("%w: %d of them", ErrList, n)
	}
	list = make([]Entry, 0, n)
	for range n {
		var e Entry
		e.Kind = Kind(in.Number(1))
		e.generation, e.edge = in.Number(8), in.Number(8)
		e.Start, e.End = in.Time(), in.Time()
		e.Epoch, e.kept = in.Number(8), in.Time()
		e.Source, _ = counter.SourceFromBinary(in.Next(counter.SourceSize))
		e.Rule = string(in.Next(int(in.Number(1))))
		text := string(in.Next(int(in.Number(2))))
		if e.Kind == Change {
			e.Text = text
		} else {
			e.Reason = text
		}
		e.Who = string(in.Next(int(in.Number(1))))
		e.From = string(in.Next(int(in.Number(1))))
		if in.Bad() || !possible(&e.Order) {
			return nil, id, fmt.Errorf("%w: entry %d", ErrList, len(list))
		}
		list = append(list, e)
	}
	if !in.Whole() {
		return nil, id, fmt.Errorf("%w: more than it should be", ErrList)
	}
	return list, id, nil
}

// A head is the version of a node's list. It is read twice a second, the list when it is another.
func SealHead(s secret.Secret, id Digest) []byte { return s.Seal(secret.Head, id[:]) }

func OpenHead(s secret.Secret, b []byte) (id Digest, ok bool) {
	in, ok := s.Open(secret.Head, b)
	copy(id[:], in.Next(len(id)))
	return id, ok && in.Whole()
}
