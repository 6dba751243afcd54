package upgrade

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sluice/edge"
	"sluice/edge/events"
)

// leastNotice is how long open connections have to learn that they will be closed: a client that
// uses one has been asked to close by then.
const leastNotice = time.Second

// A Shutdown is the end of an edge: clients are sent elsewhere, connections are taken for a while
// longer, then no more, and those that are open end as the edge package says (Drain).
type Shutdown struct {
	Server    *edge.Server
	Operators *http.Server
	Back      net.Listener
	Notice    time.Duration // how long connections are still taken
	Grace     time.Duration // how long requests may take after that
	Log       *slog.Logger
	Events    *events.Log

	Calls func(context.Context) // drains the services that programs call; nil: there are none
}

// Stop ends an edge after a signal. Connections are taken for as long as the open ones need notice
// anyway: if another process will listen on this socket, clients wait for it the shorter.
func (d *Shutdown) Stop(notice bool) {
	d.Server.Leave()
	Notify("STOPPING=1")
	if notice {
		d.Log.Info("leaving", "notice", d.Notice)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); ; <-tick.C {
			past := time.Since(start)
			if past >= d.Notice && (past >= leastNotice || d.Server.Connections() == 0) {
				break
			}
		}
	}
	d.drain(leastNotice)
}

// HandOver ends an edge that a new process has replaced. Nothing waits for it, so an idle
// connection is closed only near the end, or when a signal ends this process as well.
func (d *Shutdown) HandOver(next *Handover, stop context.Context) {
	d.Server.Leave()
	d.Operators.SetKeepAlivesEnabled(false)
	_ = d.Back.Close() // operators should reach the new process
	next.sendMitigations(false)
	defer context.AfterFunc(stop, func() { d.Server.Hurry(leastNotice) })()
	d.drain(max(leastNotice, d.Grace*3/4))
	next.sendFinal()
}

func (d *Shutdown) drain(notice time.Duration) {
	d.Events.Add(events.Event{Time: time.Now(), Kind: events.Process, Text: "draining",
		New: "connections end within " + d.Grace.String()})
	grace, done := context.WithTimeout(context.Background(), d.Grace)
	defer done()
	var calls sync.WaitGroup
	if d.Calls != nil {
		calls.Go(func() { d.Calls(grace) })
	}
	defer calls.Wait()
	if cut := d.Server.Drain(grace, notice); cut != nil {
		d.Log.Warn("connections were cut at the end of the grace time", "error", cut)
	}
}
