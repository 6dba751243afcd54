package admin

import (
	"cmp"
	"net/http"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/route"
)

// drain takes the edge out of service, and undrain back into it. Doing so twice changes nothing.
func (a api) drain(w http.ResponseWriter, r *http.Request) {
	_, changed := a.Edge.DrainByHand(route.Operator(r), time.Now())
	a.service(w, r, changed,
		events.Event{Text: "drained the edge: /readyz says no, and it serves on", Old: "in service",
			New: "drained"})
}

func (a api) undrain(w http.ResponseWriter, r *http.Request) {
	changed := a.Edge.Undrain() != nil
	a.service(w, r, changed, events.Event{Text: "undrained the edge", Old: "drained",
		New: "in service"})
}

// service tells what came of either.
func (a api) service(w http.ResponseWriter, r *http.Request, changed bool, e events.Event) {
	if changed {
		a.did(r, e)
	}
	route.Reply(w, control.Service{Changed: changed, Ready: cmp.Or(a.Edge.Unready(), "ready"),
		Drained: a.Edge.Drained()})
}
