package cli

import (
	"bytes"
	"strings"
	"testing"

	"sluice/loadgen/workload"
)

// TestRateThatCannotBe: where good sources would have to go over their limit for --rate, fewer requests are sent, and where abusers would have to
// stay within it, more; it is said.
func TestRateThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		workload string
		rate     float64
		want     string
	}{
		{"constant", 5, ""}, {"steady", 500, "--rate 500: steady sends 32.4 "}, {"just-above", 1, "--rate 1: just-above sends 5.39 "},
	} {
		f, rate, want := Trace{Workload: c.workload, Rate: c.rate}, c.rate, c.want
		made, err := workload.Generate(f.Workload, workload.Options{Seed: 1, Limit: 20, Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		if f.differs(&said, made); !strings.HasPrefix(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("%s --rate %g: %q is said, want %q", c.workload, rate, said.String(), want)
		}
	}
}
