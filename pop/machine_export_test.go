package pop

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/record"
	"sluice/pop/secret"
)

const MaxFlying = maxFlying

func Place(m *Machine, s counter.Source) int { return m.Nodes.NodeOf(s) }

// For tests from outside that play an intruder who reaches the tier.

// Seal makes the value of a bit.
func Seal(s secret.Secret, r mitigation.Rule, source counter.Source, start, end time.Time) []byte {
	return (&record.Record{Rule: s.RuleDigest(r.Counter), Source: source, Start: start, End: end, Limit: r.Counter.Limit}).Seal(s)
}

// CounterKeys are the keys of a source's groups.
func CounterKeys(s secret.Secret, r mitigation.Rule, source counter.Source, now time.Time) (keys []string) {
	oldest, newest := counter.New(counter.Options{Counters: 1}).Reports().Groups(r.Counter, now, s.Phase(source))
	name := s.CounterName(counter.Counter{Rule: r.Counter, Source: source}, 0)
	for g := oldest; g != newest+1; g++ {
		keys = append(keys, name.Key(g))
	}
	return keys
}

// Sum adds up the lanes of a counter's group.
func Sum(r mitigation.Rule, group uint64) (sum uint64) {
	width := uint(16)
	if r.Counter.Wide() {
		width = 32
	}
	for at := uint(0); at < 64; at += width {
		sum += group >> at & (1<<width - 1)
	}
	return sum
}
