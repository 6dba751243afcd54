package operator

import (
	"cmp"
	"net/http"

	"sluice/edge/control"
)

// Drain takes an edge out of service: balancers that ask /readyz go elsewhere, and whoever comes is
// served.
func (c *Client) Drain() error {
	return Show(c, http.MethodPost, "/v1/drain", nil, func(s control.Service) error {
		if s.Drained == nil {
			return c.Lines([]string{"the edge was drained, and another operator has undrained it"})
		}
		line := "the edge is " + drainedLine(s.Drained) +
			": /readyz says 503, and whoever comes is served; sluice undrain ends it"
		if !s.Changed {
			line = "nothing has changed: " + line
		}
		return c.Lines([]string{line})
	})
}

// Undrain takes an edge back into service.
func (c *Client) Undrain() error {
	return Show(c, http.MethodPost, "/v1/undrain", nil, func(s control.Service) error {
		line := "the edge is back in service"
		if !s.Changed {
			line = "the edge was not drained"
		}
		if s.Ready != "ready" {
			line += ", but it is not ready: " + s.Ready
		}
		return c.Lines([]string{line})
	})
}

// drainedLine says since when an edge is drained, and by whom.
func drainedLine(d *control.Drained) string {
	return "drained since " + Clock(d.Since) + " by " + cmp.Or(d.By, d.From)
}
