package mitigation

import (
	"testing"
	"time"
)

// TestTerms: a verdict holds for as long as its rule allows no more than the one that it was reached under, wherever it comes from and however
// late. What operators say holds whatever rules are in force.
func TestTerms(t *testing.T) {
	now := start
	of := func(n uint32) Key { return Key{Rule: 1, Source: key(n).Source} }
	end := now.Add(time.Hour)
	under := func(limit uint32, timeouts ...time.Duration) RuleVersion {
		return VersionOf(limit, timeouts[0], Repeat{Timeouts: timeouts[1:]})
	}
	reached := under(10, time.Hour, 2*time.Hour)
	for _, test := range []struct {
		name  string
		rules map[uint32]RuleVersion
		stays bool
	}{
		{"the same", map[uint32]RuleVersion{1: reached}, true},
		{"a lower limit", map[uint32]RuleVersion{1: under(9, time.Hour, 2*time.Hour)}, true},
		{"a higher limit", map[uint32]RuleVersion{1: under(11, time.Hour, 2*time.Hour)}, false},
		{"a longer timeout", map[uint32]RuleVersion{1: under(10, 3*time.Hour)}, true},
		{"a shorter one", map[uint32]RuleVersion{1: under(10, 59*time.Minute, 2*time.Hour)}, false},
		{"a shorter one for repeaters", map[uint32]RuleVersion{1: under(10, time.Hour, 90*time.Minute)}, false},
		{"none", map[uint32]RuleVersion{1: under(10, 0)}, false},
		{"gone", map[uint32]RuleVersion{2: reached}, false},
	} {
		for _, by := range []By{ByEdge, ByPoP, ByPeer, ByAdmin} {
			before, after := New(10_000, func() {}), New(10_000, func() {})
			bit, stays := Bit{Start: now, End: end, By: by, Version: reached}, test.stays
			if by == ByAdmin {
				bit.Version, stays = RuleVersion{}, true
			}
			before.SetVersions(map[uint32]RuleVersion{1: reached})
			before.Start(of(1), bit, now)
			before.Start(of(2), Bit{Start: now, End: end, By: ByAdmin}, now)
			void := before.SetVersions(test.rules)
			if _, reported := void[of(1)]; reported == stays || len(void) > 1 {
				t.Errorf("%s, by %v: void are %v", test.name, by, void)
			}
			if before.Until(of(1), now).IsZero() == stays || before.Until(of(2), now).IsZero() {
				t.Errorf("%s, by %v: in force is %v", test.name, by, before.Until(of(1), now))
			}
			after.SetVersions(test.rules)
			if started := after.Start(of(1), bit, now); started != stays || after.Until(of(1), now).IsZero() == stays {
				t.Errorf("%s, by %v: one that comes later starts: %t", test.name, by, started)
			}
			if unsent := after.TakeUnsent(nil); len(unsent) > 0 && !stays {
				t.Errorf("%s, by %v: %v is unsent", test.name, by, unsent)
			}
			ended := bit
			ended.Start, ended.End, ended.Memory = now.Add(-time.Hour), now, time.Hour
			after.Start(of(3), ended, now)
			if _, remembered := after.Last(of(3), now); remembered != stays {
				t.Errorf("%s, by %v: one that has ended is remembered: %t", test.name, by, remembered)
			}
		}
	}
}
