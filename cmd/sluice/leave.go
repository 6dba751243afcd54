package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sluice/edge"
)

// idleNotice is how long open connections have to learn that they will be closed, where whoever starts this edge again waits
// for its end.
const idleNotice = time.Second

// A departure is the end of an edge: clients are sent elsewhere, connections are taken for a while longer, then no more, and
// those that are open end as the edge package says (Server.Drain).
type departure struct {
	server    *edge.Server
	operators *http.Server
	back      net.Listener
	notice    time.Duration // how long connections are still taken
	grace     time.Duration // how long requests may take after that
	log       *slog.Logger
}

// toNobody ends an edge that was told to stop.
func (d *departure) toNobody(told bool) {
	d.server.Leave()
	notify("STOPPING=1")
	if told && d.notice > 0 {
		d.log.Info("leaving", "notice", d.notice)
		time.Sleep(d.notice)
	}
	noticed, done := context.WithTimeout(context.Background(), idleNotice)
	defer done()
	d.drain(noticed)
}

// to ends an edge whose place a new process has taken. Nobody waits for it, so an idle connection is closed only at the end,
// or when a signal says that this process must go as well.
func (d *departure) to(next *handover, stop context.Context) {
	d.server.Leave()
	d.operators.SetKeepAlivesEnabled(false)
	_ = d.back.Close() // operators should reach the new process
	noticed, done := context.WithTimeout(stop, d.grace*3/4)
	defer done()
	next.again()
	d.drain(noticed)
	next.again()
}

func (d *departure) drain(noticed context.Context) {
	d.log.Info("draining", "grace", d.grace)
	grace, done := context.WithTimeout(context.Background(), d.grace)
	defer done()
	if cut := d.server.Drain(grace, noticed.Done()); cut != nil {
		d.log.Warn("connections were cut at the end of the grace time", "error", cut)
	}
}
