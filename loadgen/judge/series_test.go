package judge

import (
	"testing"
	"time"
)

// TestSeries keeps the points around the widest gap of the sources watched.
func TestSeries(t *testing.T) {
	j := NewEstimatorJudge(Options{Limit: 10, Window: time.Hour, Watch: []int32{3, 5, 9}})
	const n, worst = 10 * seriesHalf, 4 * seriesHalf
	for i := range n {
		estimate := float64(i + 1)
		if i == worst {
			estimate -= 7
		}
		j.Observe(3, int64(i), estimate, false)
		j.Observe(4, int64(i), estimate, false)
	}
	j.Observe(5, 0, 1, false)
	s := j.Figures().Series
	if len(s) != 2 || s[0].Source != 3 || s[1].Source != 5 || len(s[1].Points) != 1 {
		t.Fatalf("%d series", len(s))
	}
	p := s[0].Points
	if first, last := int(p[0].At), int(p[len(p)-1].At); first != worst-seriesHalf+1 || last != worst+seriesHalf {
		t.Errorf("from %d to %d, want %d on either side of %d", first, last, seriesHalf, worst)
	}
	for i := range p {
		if i > 0 && p[i].At != p[i-1].At+1 {
			t.Fatalf("a hole after %d", p[i-1].At)
		}
	}
}

func TestTimeline(t *testing.T) {
	var line Timeline
	for s := range 100 {
		line.Admitted[line.Index(int64(s)*int64(time.Second))]++
	}
	sum := uint32(0)
	for _, n := range line.Admitted {
		sum += n
	}
	if sum != 100 || len(line.Admitted) > timelineSteps || len(line.Wrong) != len(line.Admitted) || line.Step != 320*time.Millisecond {
		t.Errorf("%d requests in %d steps of %v", sum, len(line.Admitted), line.Step)
	}
}
