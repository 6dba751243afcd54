package plans

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/counter"
)

func client(n int) counter.Source {
	return counter.SourceOfDigest([16]byte{byte(n), byte(n >> 8), byte(n >> 16), 7})
}

// Of what stands over another, both say so, and whether the other comes back.
func TestState(t *testing.T) {
	var b Builder
	for _, q := range []Quota{
		{Plan: "free"}, {Plan: "pro", Start: 100_000, End: 900_000}, {Plan: "gold", Start: 200_000, End: 500_000}, {Plan: "team", Start: 700_000},
		{Rule: "api", Limit: 5}, {Rule: "api", Limit: 6, Start: 100_000, End: 300_000},
	} {
		b.Put(client(1), q, false)
	}
	c := b.Snapshot(time.Unix(0, 0)).Of(client(1))
	for at, want := range map[int64][]State{
		50:  {InForce, ToCome, ToCome, ToCome, InForce, ToCome},
		100: {Replaced, InForce, ToCome, ToCome, Suspended, InForce},
		200: {Replaced, Suspended, InForce, ToCome, Suspended, InForce},
		500: {Replaced, InForce, Over, ToCome, InForce, Over},
		700: {Replaced, Replaced, Over, InForce, InForce, Over},
		900: {Replaced, Over, Over, InForce, InForce, Over},
	} {
		for i := range want {
			if got := c.State(i, at*1000); got != want[i] {
				t.Errorf("at %d: %+v is %s, want %s", at, c.Quotas()[i], got, want[i])
			}
		}
	}
}

// What is said of clients, at which second it is asked for, and what holds then.
func TestBook(t *testing.T) {
	var b Builder
	at := func(second int64) *Snapshot { return b.Snapshot(time.Unix(second, 0)) }
	wants := func(s *Snapshot, n int, rule, plan string, limit uint32) {
		t.Helper()
		if p, l := s.Of(client(n)).Under(rule); p != plan || l != limit {
			t.Errorf("client %d under %s: %q %d, want %q %d", n, rule, p, l, plan, limit)
		}
	}
	next := func(s *Snapshot, second int64) {
		t.Helper()
		if want := time.Unix(second, 0); second == 0 && !s.Next().IsZero() || second != 0 && !s.Next().Equal(want) {
			t.Errorf("the next moment is %v, want second %d", s.Next(), second)
		}
	}
	empty := at(100)
	wants(empty, 1, "api", "", 0)
	next(empty, 0)

	b.Put(client(1), Quota{Plan: "pro"}, false)
	b.Put(client(2), Quota{Plan: "pro"}, false)
	b.Put(client(2), Quota{Rule: "api", Limit: 500, Start: 110_000, End: 120_000}, false)
	b.Put(client(2), Quota{Rule: "api", Limit: 900, Start: 115_000}, false)
	b.Put(client(3), Quota{Rule: "api", Plan: "gold"}, false)
	s := at(101)
	wants(empty, 1, "api", "", 0) // is what it was
	wants(s, 1, "api", "pro", 0)
	wants(s, 2, "api", "pro", 0)
	wants(s, 3, "api", "gold", 0)
	wants(s, 3, "other", "", 0)
	next(s, 110)
	if s.Of(client(1)) == nil || s.Clients() != 3 || len(s.Limits("api")) != 0 {
		t.Errorf("%d clients, limits %v", s.Clients(), s.Limits("api"))
	}
	s = at(110)
	wants(s, 2, "api", "pro", 500)
	wants(s, 2, "other", "pro", 0)
	next(s, 115)
	if !slices.Equal(s.Limits("api"), []uint32{500}) {
		t.Errorf("limits %v", s.Limits("api"))
	}
	s = at(115)
	wants(s, 2, "api", "pro", 900) // the one that began last
	next(s, 120)
	s = at(120)
	wants(s, 2, "api", "pro", 900)
	next(s, 0)
	b.Put(client(2), Quota{Rule: "api", Start: 115_000}, true)
	s = at(121)
	wants(s, 2, "api", "pro", 0)
	if len(s.Limits("api")) != 0 {
		t.Errorf("limits %v", s.Limits("api"))
	}
	s = at(112) // the clock was ahead
	wants(s, 1, "api", "pro", 0)
	wants(s, 2, "api", "pro", 500)
	next(s, 120)
	if !slices.Equal(s.Limits("api"), []uint32{500}) {
		t.Errorf("limits %v", s.Limits("api"))
	}
	wants(at(121), 2, "api", "pro", 0)
	for _, q := range []Quota{{}, {Rule: "api", Start: 110_000}} {
		b.Put(client(2), q, true)
	}
	if s = at(122); s.Of(client(2)) != nil || s.Clients() != 2 {
		t.Errorf("%d clients", s.Clients())
	}
}

// A Builder against the obvious: a list of quotas, looked through for each question. Older snapshots stay what they were.
func TestBookIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		type name struct {
			client int
			rule   string
			start  int64
		}
		twin := make(map[name]Quota)
		now := int64(1000)
		says := func(s *Snapshot) string {
			text := fmt.Sprint(s.Clients(), s.Limits("api"), s.Limits("web"))
			for n := range 4 {
				for _, rule := range []string{"api", "web"} {
					plan, limit := s.Of(client(n)).Under(rule)
					text += fmt.Sprint(" ", plan, ":", limit)
				}
			}
			return text
		}
		obvious := func() string {
			limits := make(map[string]map[uint32]bool)
			clients := make(map[int]bool)
			in := func(n int, rule string) (best Quota) {
				last := int64(-1)
				for k, q := range twin {
					if k.client == n && k.rule == rule && q.Start <= now && (q.End == 0 || now < q.End) && k.start > last {
						best, last = q, k.start
					}
				}
				return best
			}
			for k := range twin {
				clients[k.client] = true
			}
			text := ""
			for n := range 4 {
				for _, rule := range []string{"api", "web"} {
					q := in(n, rule)
					plan := q.Plan
					if plan == "" {
						plan = in(n, "").Plan
					}
					if q.Limit != 0 {
						if limits[rule] == nil {
							limits[rule] = make(map[uint32]bool)
						}
						limits[rule][q.Limit] = true
					}
					text += fmt.Sprint(" ", plan, ":", q.Limit)
				}
			}
			sorted := func(rule string) []uint32 { return slices.Sorted(maps.Keys(limits[rule])) }
			return fmt.Sprint(len(clients), sorted("api"), sorted("web")) + text
		}
		var before []*Snapshot
		var said []string
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			q := Quota{Rule: rapid.SampledFrom([]string{"", "api", "web"}).Draw(t, "rule"), Plan: rapid.SampledFrom([]string{"", "pro", "gold"}).Draw(t, "plan")}
			if q.Rule != "" {
				q.Limit = rapid.Uint32Range(0, 2).Draw(t, "limit")
			}
			if rapid.Bool().Draw(t, "later") {
				q.Start = now + rapid.Int64Range(-5, 5).Draw(t, "start")
			}
			if rapid.Bool().Draw(t, "ends") {
				q.End = now + rapid.Int64Range(-5, 9).Draw(t, "end")
			}
			n, removed := rapid.IntRange(0, 3).Draw(t, "client"), rapid.IntRange(0, 3).Draw(t, "removed") == 0
			b.Put(client(n), q, removed)
			if k := (name{n, q.Rule, q.Start}); removed {
				delete(twin, k)
			} else {
				twin[k] = q
			}
			if rapid.Bool().Draw(t, "look") {
				now += rapid.Int64Range(-2, 4).Draw(t, "pass") // clocks step
				s := b.Snapshot(time.UnixMilli(now))
				if got, want := says(s), obvious(); got != want {
					t.Fatalf("at %d:\n%s, want\n%s", now, got, want)
				}
				before, said = append(before, s), append(said, says(s))
			}
		}
		for i, s := range before {
			if says(s) != said[i] {
				t.Fatalf("a snapshot has changed: %s, it was %s", says(s), said[i])
			}
		}
	})
}

// Moments of quotas that were taken away do not pile up.
func TestMomentsAreBounded(t *testing.T) {
	var b Builder
	b.Snapshot(time.Unix(1, 0))
	for i := range 100_000 {
		q := Quota{Plan: "pro", Start: int64(10_000 + i)}
		b.Put(client(1), q, false)
		b.Put(client(1), q, true)
	}
	if n := len(b.times); n > 5000 {
		t.Errorf("%d moments for no quota", n)
	}
}
