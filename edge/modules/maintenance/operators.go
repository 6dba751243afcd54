package maintenance

import (
	"net/http"
	"time"

	"sluice/edge/control"
	"sluice/edge/operator"
	"sluice/edge/route"
)

const path = "/v1/maintenance"

var routes = []route.Route{
	{Pattern: "GET " + path,
		Serve: func(a *route.API, w http.ResponseWriter, _ *http.Request) {
			route.Reply(w, Now(a.Edge, time.Now()))
		}},
	{Pattern: "PUT " + path, Serve: maintain},
	{Pattern: "DELETE " + path,
		Serve: func(a *route.API, w http.ResponseWriter, r *http.Request) {
			m, err := End(a.Edge, route.Operator(r), time.Now())
			route.Answer(w, m, err)
		}},
}

func maintain(a *route.API, w http.ResponseWriter, r *http.Request) {
	var body struct {
		For     string   `json:"for"` // "": until it is turned off
		Allow   []string `json:"allow"`
		Message string   `json:"message"`
	}
	if !route.Read(w, r, &body, `{"for":"2h","allow":["10.0.0.0/8"],"message":"..."}`) {
		return
	}
	d := time.Duration(0)
	if body.For != "" {
		var ok bool
		if d, ok = (&route.Term{For: body.For}).Length(w); !ok {
			return
		}
		if d == 0 {
			d = -1 // which is refused, and not the longest
		}
	}
	m, err := Start(a.Edge, d, body.Allow, body.Message, route.Operator(r), time.Now())
	route.Answer(w, m, err)
}

// command has the PoP answer 503.
func command() operator.Command {
	set := operator.NewFlagSet("maintenance")
	length := operator.DurationFlag(set, new(time.Duration), "for", 0,
		"end by itself after a `TIME` such as 2h; 0: when it is turned off")
	allow := set.StringSlice("allow", nil,
		"serve those of an address or a prefix all the same: `CIDR,...`")
	message := set.String("message", "", "what clients are told: `TEXT`")
	does := "on answers 503 to all but --allow, on every edge of the PoP; off ends it; status says whether it is on"
	return operator.Asks(set, "[on|off|status]", does, func(c *operator.Client,
		args []string) error {
		what := "status"
		if len(args) > 0 {
			what = args[0]
		}
		if what != "on" && (set.Changed("for") || set.Changed("allow") || set.Changed("message")) {
			return operator.UsageErrorf("--for, --allow and --message belong to on: sluice maintenance on --for 2h")
		}
		switch what {
		case "on":
			// Of a variable that is not set, maybe: nobody would be spared
			if set.Changed("allow") && len(*allow) == 0 {
				return operator.UsageErrorf("--allow is empty: want an address or a prefix, or leave it out to serve nobody")
			}
			for _, one := range *allow {
				if err := operator.CheckPrefix(one); err != nil {
					return operator.UsageErrorf("--allow: %w", err)
				}
			}
			if *length < 0 {
				return operator.UsageErrorf("--for %v: want more than 0", *length)
			}
			return turnOn(c, *length, *allow, *message)
		case "off":
			return operator.Show(c, http.MethodDelete, path, nil,
				func(m control.MaintenanceStatus) error {
					what, warning := "maintenance was not on here", ""
					if m.Changed {
						what = "maintenance is off: requests are served"
					}
					if m.On {
						warning = "another operator has turned it on again"
					}
					return c.Said(what, m.Edges, warning)
				})
		case "status":
			return operator.Show(c, http.MethodGet, path, nil,
				func(m control.MaintenanceStatus) error {
					if !m.On {
						return c.Lines([]string{"maintenance is off"})
					}
					return c.Lines([]string{c.MaintenanceLine(&m)})
				})
		}
		return operator.UsageErrorf("%q: want on, off or status", what)
	})
}

// turnOn has the PoP answer 503 to all but those that are allowed. d is 0 if no end is given.
func turnOn(c *operator.Client, d time.Duration, allow []string, message string) error {
	body := map[string]any{"message": message}
	if len(allow) > 0 {
		body["allow"] = allow
	}
	if d > 0 {
		body["for"] = d.String()
	}
	return operator.Show(c, http.MethodPut, path, body, func(m control.MaintenanceStatus) error {
		if !m.On {
			return c.Said("maintenance was turned on, and another operator has turned it off",
				m.Edges, "")
		}
		return c.Said(c.MaintenanceLine(&m), m.Edges, m.Warning)
	})
}
