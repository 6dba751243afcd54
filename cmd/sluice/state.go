package main

import (
	"time"

	"sluice/cmd/sluice/internal/peers"
	"sluice/cmd/sluice/internal/tier"
	"sluice/edge"
	"sluice/edge/accesslog"
	"sluice/edge/control"
	"sluice/edge/plans"
)

// state is what operators should know of an edge.
func state(server *edge.Server, shared *tier.Shared, r *reloader, others *peers.Peers, keeper *plans.Keeper, access *accesslog.Log) control.State {
	now := time.Now()
	s := control.State{Ready: "ready", Alone: shared.WhyAlone(), Waiting: len(r.Waiting()), Failed: r.failed.Load(), Peers: []control.PeerStatus{}, Unkept: shared.Unkept()}
	if why := server.Unready(); why != "" {
		s.Ready = why
	}
	if until := shared.LearningUntil(); until.After(now) {
		s.LearningUntil = &until
	}
	if others != nil {
		others.Up(func(name string, up bool) { s.Peers = append(s.Peers, control.PeerStatus{Name: name, Up: up}) })
	}
	if keeper != nil {
		if err := keeper.Status().Unkept; err != nil {
			s.Unkept = append(s.Unkept, control.Unkept{File: keeper.Copy, Error: err.Error()})
		}
	}
	if access != nil {
		if err := access.Failed(); err != nil {
			s.AccessLog = &control.LostLines{File: access.File(), Error: err.Error(), Lost: access.Lost()}
		}
	}
	return s
}
