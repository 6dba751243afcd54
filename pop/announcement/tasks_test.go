package announcement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/mitigation"
)

// TestAgainstMap: a list does what a plain map of what was left does, of which everything is looked at. What was dropped and is left
// anew is the new thing, once.
func TestAgainstMap(t *testing.T) {
	type plain struct {
		thing string
		due   time.Time
	}
	start := time.Unix(1_700_000_000, 0)
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var list tasks
		want, now := make(map[taskKey]plain), start
		for n := range 300 {
			now = now.Add(time.Duration(rng.IntN(10)) * time.Millisecond)
			key, due := taskKey{what: taskKind(rng.IntN(5))}, now.Add(time.Duration(rng.IntN(40))*time.Millisecond)
			switch rng.IntN(4) {
			case 0:
				e, there := want[key]
				if !there {
					e.thing = fmt.Sprint(n)
				}
				want[key] = plain{e.thing, due}
				list.leave(key, task{bit: mitigation.Bit{Reason: fmt.Sprint(n)}}, due)
			case 1:
				delete(want, key)
				list.drop(key)
			}
			var done []string
			if !list.resume(now, func(t task) { done = append(done, t.bit.Reason) }) {
				continue
			}
			var all []string
			for key, e := range want {
				if !now.Before(e.due) {
					all = append(all, e.thing)
					delete(want, key)
				}
			}
			slices.Sort(done)
			if slices.Sort(all); !slices.Equal(done, all) {
				t.Fatalf("seed %d, step %d: %v was done, want %v", seed, n, done, all)
			}
		}
		// Everything is done in the end, and nothing stays.
		for range 10 {
			now = now.Add(50 * time.Millisecond)
			list.resume(now, func(task) {})
		}
		if len(list.list) != 0 || len(list.left) != 0 {
			t.Fatalf("seed %d: %d are left", seed, len(list.list))
		}
	}
}
