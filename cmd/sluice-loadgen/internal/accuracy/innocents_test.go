//go:build !race

package accuracy

import (
	"testing"
	"time"
)

// TestInnocents: no source is refused that never was over its limit, by an exact log, however close it keeps to it, and
// whether each request of it meets another edge or some that follow one another meet the same. accuracy --innocents
// judges more of them. It runs without the race detector, which takes ten times as long for what one goroutine does.
func TestInnocents(t *testing.T) {
	for _, c := range []cell{
		{limit: 1, edges: 1, perConnection: 1},
		{limit: 10, edges: 1, throttles: true, perConnection: 1},
		{limit: 1, edges: 2, perConnection: 1},
		{limit: 5, edges: 8, perConnection: 1},
		{limit: 10, edges: 2, throttles: true, perConnection: 1},
		{limit: 10, edges: 8, perConnection: 1},
		{limit: 60, edges: 2, perConnection: 20},
		{limit: 60, edges: 8, perConnection: 1, skew: 100 * time.Millisecond},
		{limit: 100, edges: 8, perConnection: 1},
		{limit: 100, edges: 2, throttles: true, perConnection: 20},
		{limit: 600, edges: 2, perConnection: 20},
		{limit: 600, edges: 8, throttles: true, perConnection: 1},
	} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			f, err := judgeInnocents(t.Context(), c, "nearest", 7, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := refusesInnocents(c, &f); err != nil || f.Requests < 100 {
				t.Errorf("%v; of %d requests %d refused", err, f.Requests, f.Requests-f.Admitted)
			}
		})
	}
}
