package upstream

import (
	"strconv"
	"time"

	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/metric"
)

// Collect gives how every origin stands, and what those that shed load have shed.
func (s *Origins) Collect(to metric.Sink, now time.Time) {
	for _, o := range s.All {
		to.Whether(o.Healthy(now), "sluice_origin_up", "Whether an origin is taken to be healthy.",
			"origin", o.Name)
		to.Gauge(float64(o.Active.Load()), "sluice_origin_active",
			"Requests under way at an origin.", "origin", o.Name)
		to.Spread(o.Seconds, "sluice_origin_seconds",
			"Time from passing a request on to the head of the origin's answer, connecting included; to the end of an answer that comes at once.",
			"origin", o.Name)
		to.Count(o.Attempts.Load(), "sluice_origin_attempts_total", "Requests sent to an origin.",
			"origin", o.Name)
		for code := range message.Codes {
			if n := o.Answers[code].Load(); n > 0 {
				to.Count(n, "sluice_origin_requests_total", "Answers got from an origin.", "origin",
					o.Name, "code", strconv.Itoa(code))
			}
		}
	}

	for _, g := range s.Groups {
		if g.Shedding == nil {
			continue
		}
		is, hosts := g.Shedding.Status(), g.Hosts[0]
		to.Gauge(float64(is.Limit), "sluice_shedding_limit",
			"Requests that an origin that sheds load may have under way, by the first of its hosts.", "hosts", hosts)
		to.Gauge(float64(is.InFlight), "sluice_shedding_in_flight",
			"Requests under way at an origin that sheds load, until the head of their answer.", "hosts", hosts)
		for level := range shedding.Levels {
			to.Count(is.Shed[level], "sluice_shed_total",
				"Requests answered with 503 (overloaded), because an origin had too much to do.", "hosts",
				hosts, "priority", level.String())
		}
		to.Spread(g.Waited, "sluice_shedding_queue_seconds",
			"Time that requests waited for a slot at an origin that sheds load, those that got none included.", "hosts", hosts)
	}
}
