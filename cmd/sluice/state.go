package main

import (
	"time"

	"sluice/edge/control"
)

// state is what operators should know of the edge.
func (d *daemon) state() control.State {
	server, shared, r, others, keeper := d.server, d.shared, d.reload, d.across, d.keeper
	now := time.Now()
	s := control.State{Ready: "ready", Drained: server.Drained(), Alone: shared.WhyAlone(),
		Waiting: len(r.Waiting()), Failed: r.failed.Load(), Peers: []control.PeerStatus{},
		Unkept: shared.Unkept(), Listeners: d.at.status()}
	if d.secret != nil {
		if waits := d.secret.waits.Load(); waits != nil {
			s.SecretFile = waits.text
		}
	}
	if why := server.Unready(); why != "" {
		s.Ready = why
	}
	s.Everybody = server.OnEverybody(now)
	if until := shared.LearningUntil(); until.After(now) {
		s.LearningUntil = &until
	}
	if others != nil {
		others.Up(func(name string, up bool) {
			s.Peers = append(s.Peers, control.PeerStatus{Name: name, Up: up})
		})
	}
	if keeper != nil {
		if err := keeper.Status().Unkept; err != nil {
			s.Unkept = append(s.Unkept, control.Unkept{File: keeper.Copy, Error: err.Error()})
		}
	}
	d.modules.State(&s)
	return s
}
