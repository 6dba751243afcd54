package cli

import (
	"bytes"
	"strings"
	"testing"

	"sluice/loadgen/workload"
)

// TestRateThatCannotBe: where good sources would have to go over their limit for --rate, fewer requests are sent, and it is said.
func TestRateThatCannotBe(t *testing.T) {
	for rate, want := range map[float64]string{5: "", 500: "--rate 500: steady sends "} {
		f := Trace{Workload: "steady", Rate: rate}
		made, err := workload.Generate(f.Workload, workload.Options{Seed: 1, Limit: 20, Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		if f.short(&said, made); !strings.HasPrefix(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("--rate %g: %q is said, want %q", rate, said.String(), want)
		}
	}
}
