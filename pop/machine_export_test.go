package pop

import (
	"encoding/binary"
	"time"

	"sluice/counter"
	"sluice/pop/secret"
)

const MaxFlying = maxFlying

func Place(m *Machine, s counter.Source) int { return m.place(s) }

// For tests from outside that play an intruder who reaches the tier.

// Seal makes the value of a bit.
func Seal(s secret.Secret, r Rule, source counter.Source, start, end time.Time) []byte {
	return (&record{rule: s.RuleDigest(r.Counter), source: source, start: start, end: end, limit: r.Counter.Limit}).seal(s)
}

// Item makes an item of the log of sealed records.
func Item(records ...[]byte) (item []byte) {
	for _, r := range records {
		item = append(binary.BigEndian.AppendUint16(item, uint16(len(r))), r...)
	}
	return item
}

// CounterKeys are the keys of a source's groups.
func CounterKeys(s secret.Secret, r Rule, source counter.Source, now time.Time) (keys []string) {
	oldest, newest := counter.New(counter.Options{Counters: 1}).Groups(r.Counter, now, s.Phase(source))
	name := s.CounterName(counter.Counter{Rule: r.Counter, Source: source}, 0)
	for g := oldest; g != newest+1; g++ {
		keys = append(keys, name.Key(g))
	}
	return keys
}

// TellsTimes reports whether a record of the log tells when hits came.
func TellsTimes(s secret.Secret, sealed []byte) bool {
	r, ok := open(s, sealed)
	return ok && (r.kind == aTimes || r.kind == aQuestion && len(r.times) > 0)
}

// KindOf says in a word what a record of the log is, and whose: "" if it is not authentic.
func KindOf(s secret.Secret, sealed []byte) (kind string, of counter.Source) {
	r, ok := open(s, sealed)
	if !ok {
		return "", of
	}
	return [...]string{"block", "count", "question", "times"}[r.kind], r.source
}

// Sum adds up the lanes of a counter's group.
func Sum(r Rule, group uint64) (sum uint64) {
	width := uint(16)
	if r.Counter.Wide() {
		width = 32
	}
	for at := uint(0); at < 64; at += width {
		sum += group >> at & (1<<width - 1)
	}
	return sum
}
