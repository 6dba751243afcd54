package pop

import (
	"time"

	"sluice/counter"
)

// For tests from outside that play an intruder who reaches the tier.

func Seal(s Secret, r Rule, source counter.Source, start, end time.Time) []byte {
	return s.seal(record{rule: s.ruleDigest(r.Counter), source: source, start: start, end: end, limit: r.Counter.Limit})
}

func LogKey(s Secret, second int64, part int) string { return s.logKey(second, part) }

func BitKey(s Secret, r Rule, source counter.Source) string {
	return s.bitKey(counter.Counter{Rule: r.Counter, Source: source}, 0)
}

func CounterKeys(s Secret, r Rule, source counter.Source, now time.Time) (keys []string) {
	oldest, newest := r.Counter.Groups(now, s.Phase(source))
	name := s.counterName(counter.Counter{Rule: r.Counter, Source: source}, 0)
	for g := oldest; g != newest+1; g++ {
		keys = append(keys, name.key(g))
	}
	return keys
}

// TellsTimes reports whether a line of the log tells when hits came.
func TellsTimes(s Secret, line []byte) bool {
	r, ok := s.open(line)
	return ok && r.kind == aTimes
}

func WordsKeys(s Secret) (list, head string) { return s.wordsKeys() }

func SlotKey(s Secret, slot int) string { return s.edgeKey(slot) }
