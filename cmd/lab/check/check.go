// Package check holds promises of the edge against running sites: that an origin which suffers
// keeps its critical clients (Shedding). Soak of package chaos is another one.
package check

import (
	"fmt"
	"io"
)

// Result is one promise, held against a running site: what was seen, and whether that keeps it.
type Result struct {
	Name string
	Seen []string
	Kept bool
}

// See adds a line to what was seen.
func (c *Result) See(format string, args ...any) {
	c.Seen = append(c.Seen, fmt.Sprintf(format, args...))
}

// WriteTo writes the check for people.
func (c *Result) WriteTo(w io.Writer) (int64, error) {
	text := "check " + c.Name + ": kept\n"
	if !c.Kept {
		text = "check " + c.Name + ": NOT KEPT\n"
	}
	for _, line := range c.Seen {
		text += "  " + line + "\n"
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}
