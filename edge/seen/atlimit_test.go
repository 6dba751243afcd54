package seen

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
)

// Who sits at a limit for five minutes is one that does, whether it hammers or comes back as told; who has left it, comes now and then, or is
// blocked by an operator, is not.
func TestAtLimit(t *testing.T) {
	who := func(n int) counter.Source {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(n))
		return counter.SourceOf(netip.AddrFrom4(a), 32, 64)
	}
	const minute = time.Minute
	for _, c := range []struct {
		name          string
		every, window time.Duration
		stay          bool
		from          time.Duration // Stay from then on
		until         time.Duration
		look          string // at these minutes it is listed
	}{
		{"hammers", time.Second, minute, false, time.Hour, 10 * minute, "5 6 7 8 9 10"},
		{"comes when told", minute, minute, false, time.Hour, 7 * minute, "5 6 7 8"},
		{"comes now and then", 61 * time.Second, minute, false, time.Hour, 10 * minute, ""},
		{"bursts of a short window", 9 * time.Second, time.Second, false, time.Hour, 6 * minute, "6"},
		{"seldom, in a short window", 11 * time.Second, time.Second, false, time.Hour, 10 * minute, ""},
		{"a day's limit", 5 * minute, 24 * time.Hour, false, time.Hour, 5 * minute, "5 6 7 8 9 10"},
		{"blocked after it met the limit", 10 * time.Second, minute, false, time.Second, 10 * minute, "5 6 7 8 9 10"},
		{"blocked by an operator", time.Second, minute, true, 0, 10 * minute, ""},
		{"left before", time.Second, minute, false, time.Hour, 4 * minute, ""},
	} {
		a, start := NewAtLimit(), time.Unix(1_000_000, 0)
		var looked []string
		next := time.Duration(0)
		for at := time.Duration(0); at <= 12*minute; at += time.Second {
			if at >= next && at <= c.until {
				if next = at + c.every; c.stay || at >= c.from {
					a.Stay(7, who(1), start.Add(at))
				} else {
					a.Meet(7, who(1), c.window, start.Add(at))
				}
			}
			if m := at / minute; at%minute == 0 && m <= 10 {
				for rule, source := range a.Each(start.Add(at)) {
					if rule != 7 || source != who(1) {
						t.Errorf("%s: rule %d, %v", c.name, rule, source)
					}
					looked = append(looked, fmt.Sprint(int(m)))
				}
			}
		}
		if got := strings.Join(looked, " "); got != c.look {
			t.Errorf("%s: at its limit in minute %s, want %s", c.name, got, c.look)
		}
	}

	// A flood of sources that come to their limit does not push out who sits there.
	a, start := NewAtLimit(), time.Unix(1_000_000, 0)
	for second := range 600 {
		now := start.Add(time.Duration(second) * time.Second)
		a.Meet(7, who(1), minute, now)
		for i := range 500 {
			a.Meet(8, who(2+500*second+i), minute, now)
		}
	}
	rules := map[uint32]int{}
	for rule := range a.Each(start.Add(600 * time.Second)) {
		rules[rule]++
	}
	if rules[7] != 1 || rules[8] != 0 {
		t.Errorf("%v", rules)
	}
}

func BenchmarkAtLimit(b *testing.B) {
	a, now := NewAtLimit(), time.Now()
	s := counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)
	b.ReportAllocs()
	for b.Loop() {
		a.Meet(7, s, time.Minute, now)
	}
}
