package operator

import (
	"fmt"
	"net/http"

	"sluice/edge/control"
)

// Reload has an edge read its configuration again, waits until that is in force, and prints what
// has changed.
func (c *Client) Reload() error {
	return Show(c, http.MethodPost, "/v1/reload", nil, func(done control.Reloaded) error {
		lines := []string{"the configuration is read again, and nothing has changed"}
		if len(done.Changed) > 0 {
			lines[0] = "the configuration is read again, and in force:"
		}
		for _, f := range changed(done.Changed) {
			lines = append(lines, "  "+f)
		}
		for _, w := range done.Waiting {
			lines = append(lines, fmt.Sprintf("after a restart: %s %s → %s", w.Field,
				fmt.Sprint(w.Runs), fmt.Sprint(w.File)))
		}
		for _, w := range done.Warnings {
			lines = append(lines, "but: "+w)
		}
		return c.Lines(lines)
	})
}

// Lines prints some.
func (c *Client) Lines(list []string) error {
	for _, line := range list {
		if _, err := fmt.Fprintln(c.Out, Printable(line)); err != nil {
			return err
		}
	}
	return nil
}
