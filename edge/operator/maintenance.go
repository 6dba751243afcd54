package operator

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"sluice/edge/control"
)

// Maintain has the PoP answer 503 to all but those that are allowed. d is 0 if no end is given.
func (c *Client) Maintain(d time.Duration, allow []string, message string) error {
	body := map[string]any{"message": message}
	if len(allow) > 0 {
		body["allow"] = allow
	}
	if d > 0 {
		body["for"] = d.String()
	}
	return Show(c, http.MethodPut, "/v1/maintenance", body,
		func(m control.MaintenanceStatus) error {
			if !m.On {
				return c.Said("maintenance was turned on, and another operator has turned it off",
					m.Edges, "")
			}
			return c.Said(c.maintenanceLine(&m), m.Edges, m.Warning)
		})
}

// EndMaintenance has it answer as ever.
func (c *Client) EndMaintenance() error {
	return Show(c, http.MethodDelete, "/v1/maintenance", nil,
		func(m control.MaintenanceStatus) error {
			what := "maintenance was not on here"
			if m.Changed {
				what = "maintenance is off: requests are served"
			}
			if m.On {
				return c.Said(what, m.Edges, "another operator has turned it on again")
			}
			return c.Said(what, m.Edges, "")
		})
}

// Maintenance prints whether it is on.
func (c *Client) Maintenance() error {
	return Show(c, http.MethodGet, "/v1/maintenance", nil, func(m control.MaintenanceStatus) error {
		if !m.On {
			return c.lines([]string{"maintenance is off"})
		}
		return c.lines([]string{c.maintenanceLine(&m)})
	})
}

// maintenanceLine is maintenance that is on.
func (c *Client) maintenanceLine(m *control.MaintenanceStatus) string {
	line := "maintenance is on until " + Clock(m.Until) + " (" + span(m.Until.Sub(c.Now)) +
		"): every request gets 503"
	if m.Open() {
		line = "maintenance is on until sluice maintenance off, at most until " + Clock(m.Until) +
			": every request gets 503"
	}
	var spared []string
	for _, p := range m.Allow {
		spared = append(spared, p.String())
	}
	if len(spared) > 0 {
		line += ", but those of " + strings.Join(spared, ", ")
	}
	if m.Message != "" {
		line += fmt.Sprintf(", with %q", m.Message)
	}
	return line
}
