package judge

import (
	"testing"
	"time"
)

// Of three requests at once before a bucket of one, that drains one a second and has a queue of two, the second waits for one second and the
// third for two. Who lets them go before is told by how much, and who lets them wait for longer than the queue is long is counted.
func TestWaits(t *testing.T) {
	j := NewDeployedJudge(Options{Limit: 3, Window: 3 * time.Second, Truth: Truth{Interval: 1e9, Queue: 2}})
	for source, delays := range [][]time.Duration{{0, time.Second, 2 * time.Second}, {0, 0, 500 * time.Millisecond}, {0, time.Second, 3 * time.Second}} {
		for _, d := range delays {
			j.Decide(&Decision{Source: int32(source), Delay: d})
		}
	}
	f := j.Figures()
	want := Waits{Requests: 5, Queue: 2, Beyond: 1, Delay: f.Waits.Delay, Early: f.Waits.Early}
	if *f.Waits != want || f.Waits.Delay.Max != 3 || f.Waits.Early.N != 6 || f.Waits.Early.Max != 1.5 {
		t.Errorf("%+v", f.Waits)
	}
	j = NewDeployedJudge(Options{Limit: 3, Window: 3 * time.Second, Truth: Truth{Interval: 1e9}})
	j.Decide(&Decision{})
	if w := j.Figures().Waits; w != nil {
		t.Errorf("without a queue: %+v", w)
	}
}
