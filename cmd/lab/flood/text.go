package flood

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints the figures, a line for each way.
func Write(w io.Writer, all []Figures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\tconnections/s\tserver µs\thelper µs\trefused by the kernel %\tcalm p99 ms\tp99 ms\ttimes calm\tfailed\t")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", f.Way, f.Rate, f.CPU*1e6, f.Helper*1e6, f.Refused*100, f.Calm*1e3, f.P99*1e3, f.Ratio, f.Failed)
	}
	return t.Flush()
}
