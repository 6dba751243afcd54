package metric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter/buckets"
)

// collector gathers what fill gives to a Sink.
type collector struct{ fill func(Sink) }

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(to chan<- prometheus.Metric) { c.fill(Sink{to}) }

// scraped is what a registry makes of what fill gives to a Sink: a line a metric.
func scraped(t *testing.T, fill func(Sink)) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{fill})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			text := fmt.Sprintf("%s %s (%s)", f.GetType(), f.GetName(), f.GetHelp())
			for _, l := range m.GetLabel() {
				text += fmt.Sprintf(" %s=%q", l.GetName(), l.GetValue())
			}
			switch h := m.GetHistogram(); {
			case h != nil:
				for _, b := range h.GetBucket() {
					text += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
				}
				text += fmt.Sprintf(" %d of %v", h.GetSampleCount(), h.GetSampleSum())
			case m.GetCounter() != nil:
				text += fmt.Sprint(" ", m.GetCounter().GetValue())
			default:
				text += fmt.Sprint(" ", m.GetGauge().GetValue())
			}
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// What a Sink is given is scraped as it was given: its kind, its labels by turns, and of a histogram every bound.
func TestSink(t *testing.T) {
	used := buckets.Share()
	for _, v := range []int64{0, 75, 300} {
		used.Observe(v)
	}
	for _, test := range []struct {
		fill func(Sink)
		want string
	}{
		{func(s Sink) { s.Count(3, "n_total", "h") }, "COUNTER n_total (h) 3"},
		{func(s Sink) {
			s.Gauge(-1.5, "n", "h", "a", "1", "b", "2")
			s.Gauge(0, "n", "h", "a", "3", "b", "")
		}, "GAUGE n (h) a=\"1\" b=\"2\" -1.5\nGAUGE n (h) a=\"3\" b=\"\" 0"},
		{func(s Sink) { s.Spread(used, "n", "h", "a", "1") }, `HISTOGRAM n (h) a="1" 0.05:1 0.1:1 0.25:1 0.5:1 0.75:2 0.9:2 1:2 2:2 3 of 3.75`},
	} {
		if got := scraped(t, test.fill); got != test.want {
			t.Errorf("got\n%s\nwant\n%s", got, test.want)
		}
	}
}
