package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"sluice/loadgen/report"
)

// Output says where a report goes, beside the table on standard output.
type Output struct {
	JSON, HTML string
	details    bool
}

// AddOutput registers its flags.
func AddOutput(flags *pflag.FlagSet) *Output {
	f := new(Output)
	flags.StringVar(&f.JSON, "json", "", "write the report to this `FILE` as JSON, too")
	flags.StringVar(&f.HTML, "html", "", "write the report to this `FILE` as one HTML page, too")
	return f
}

// AddDetails registers the flag of a run whose report has some.
func (f *Output) AddDetails(flags *pflag.FlagSet) {
	flags.BoolVar(&f.details, "details", false,
		"show what client, edges, nodes and origin each counted, though it adds up")
}

// Write writes reports to standard output and to the files asked for.
func (f *Output) Write(stdout io.Writer, reports ...*report.Report) error {
	for _, r := range reports {
		if f.details {
			r.Run.Details.Open = true
		}
	}
	if err := report.WriteText(stdout, reports...); err != nil {
		return err
	}
	if err := ToFile(f.JSON, func(w io.Writer) error {
		return report.WriteJSON(w, reports...)
	}); err != nil {
		return err
	}
	return ToFile(f.HTML, func(w io.Writer) error { return report.WriteHTML(w, reports...) })
}

// ToFile writes a file, or nothing where no name is given.
func ToFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}

// ToJSON is ToFile of a value as JSON.
func ToJSON(name string, v any) error {
	return ToFile(name, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}
