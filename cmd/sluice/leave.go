package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sluice/edge"
	"sluice/edge/events"
)

// leastNotice is how long open connections have to learn that they will be closed: a client that uses one is told by then.
const leastNotice = time.Second

// A departure is the end of an edge: clients are sent elsewhere, connections are taken for a while longer, then no more, and
// those that are open end as the edge package says (Server.Drain).
type departure struct {
	server    *edge.Server
	operators *http.Server
	back      net.Listener
	notice    time.Duration // how long connections are still taken
	grace     time.Duration // how long requests may take after that
	log       *slog.Logger
	events    *events.Log
}

// toNobody ends an edge that was told to stop. Connections are taken for as long as the open ones need notice anyway: if
// another process will listen on this socket, clients wait for it the shorter.
func (d *departure) toNobody(told bool) {
	d.server.Leave()
	notify("STOPPING=1")
	if told {
		d.log.Info("leaving", "notice", d.notice)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); ; <-tick.C {
			past := time.Since(start)
			if past >= d.notice && (past >= leastNotice || d.server.Connections() == 0) {
				break
			}
		}
	}
	d.drain(leastNotice)
}

// to ends an edge whose place a new process has taken. Nobody waits for it, so an idle connection is closed only near the end,
// or when a signal says that this process must go as well.
func (d *departure) to(next *handover, stop context.Context) {
	d.server.Leave()
	d.operators.SetKeepAlivesEnabled(false)
	_ = d.back.Close() // operators should reach the new process
	next.again()
	defer context.AfterFunc(stop, func() { d.server.Hurry(leastNotice) })()
	d.drain(max(leastNotice, d.grace*3/4))
	next.last()
}

func (d *departure) drain(notice time.Duration) {
	d.events.Add(events.Event{Time: time.Now(), Kind: events.Process, Text: "draining", New: "connections end within " + d.grace.String()})
	grace, done := context.WithTimeout(context.Background(), d.grace)
	defer done()
	if cut := d.server.Drain(grace, notice); cut != nil {
		d.log.Warn("connections were cut at the end of the grace time", "error", cut)
	}
}
