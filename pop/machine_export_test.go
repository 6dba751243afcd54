package pop

import (
	"encoding/binary"
	"time"

	"sluice/counter"
)

const MaxFlying = maxFlying

func Place(m *Machine, s counter.Source) int { return m.place(s) }

// For tests from outside that play an intruder who reaches the tier.

// Seal makes the value of a bit.
func Seal(s Secret, r Rule, source counter.Source, start, end time.Time) []byte {
	return s.seal(record{rule: s.ruleDigest(r.Counter), source: source, start: start, end: end, limit: r.Counter.Limit})
}

// Item makes an item of the log of sealed records.
func Item(records ...[]byte) (item []byte) {
	for _, r := range records {
		item = append(binary.BigEndian.AppendUint16(item, uint16(len(r))), r...)
	}
	return item
}

func HeadKey(s Secret) string                { return s.headKey() }
func ItemKey(s Secret, number uint64) string { return s.itemKey(number) }

// BitKey is the key of a source's bit.
func BitKey(s Secret, r Rule, source counter.Source) string {
	return s.bitKey(counter.Counter{Rule: r.Counter, Source: source}, 0)
}

// CounterKeys are the keys of a source's groups.
func CounterKeys(s Secret, r Rule, source counter.Source, now time.Time) (keys []string) {
	oldest, newest := counter.New(counter.Options{Counters: 1}).Groups(r.Counter, now, s.Phase(source))
	name := s.counterName(counter.Counter{Rule: r.Counter, Source: source}, 0)
	for g := oldest; g != newest+1; g++ {
		keys = append(keys, name.key(g))
	}
	return keys
}

// TellsTimes reports whether a record of the log tells when hits came.
func TellsTimes(s Secret, sealed []byte) bool {
	r, ok := s.open(sealed)
	return ok && (r.kind == aTimes || r.kind == aQuestion && len(r.times) > 0)
}

func WordsKeys(s Secret) (list, head string) { return s.wordsKeys() }

func SlotKey(s Secret, slot int) string { return s.edgeKey(slot) }
