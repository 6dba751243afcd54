package bench

import (
	"strings"
	"testing"
)

// What is printed: medians, and of the processor's time the spread of rounds.
func TestWriteRest(t *testing.T) {
	f := []RestFigures{
		{Case: "alone", Edge: "sluice", CPU: 0.002, Switches: 30, AllCPU: []float64{0.001, 0.002, 0.003}},
		{Case: "2 nodes", Edge: Before, CPU: 0.029, Switches: 769, Commands: 45.25, Keys: 103, AllCPU: []float64{0.029}},
	}
	var b strings.Builder
	if err := WriteRest(&b, f); err != nil {
		t.Fatal(err)
	}
	const want = "     case           edge  ms of CPU a second      min-max  context switches/s  commands/s a node  keys/s a node\n" +
		"    alone         sluice                2.00    1.00-3.00                  30                0.0            0.0\n" +
		"  2 nodes  sluice before               29.00  29.00-29.00                 769               45.2          103.0\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
