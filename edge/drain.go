package edge

import (
	"context"
	"errors"
	"time"

	"sluice/edge/control"
)

// How an edge leaves without a request lost, step by step:
//
//	Leave    Ready says no, and every answer asks its client to close: balancers and clients go elsewhere
//	Drain    no connection is accepted any more
//	retire   connections that are idle, and have had notice, are closed; one whose request has just arrived is not
//	the end  when no connection is left, or the grace time is over
//
// A connection has notice for a while after Leave, or after it was accepted: a client that goes on
// using it has been asked to close by then.
//
// A connection is closed by saying that no more will be sent, and reading on until the client
// closes as well, or for a second: a request that crosses that, or was sent ahead of its answer
// (pipelined), must not reset the connection and take an answer with it. The client sees which of
// its requests were not answered, and that the connection was ended in order.

var errCut = errors.New("edge: drain: connections were cut at the end of the grace time")

// Ready reports whether the server wants requests.
func (s *Server) Ready() bool { return s.Unready() == "" }

// Unready returns why the server should get no requests: it is to leave, an operator has drained
// it, or by its tier; "": it should.
func (s *Server) Unready() string {
	switch {
	case s.leaving.draining.Load():
		return "draining"
	case s.leaving.drained.Load() != nil:
		return "drained"
	case s.tier.Unready != nil:
		return s.tier.Unready()
	}
	return ""
}

// DrainByHand takes the server out of service until Undrain: it is not Ready, and serves whoever
// comes all the same, without asking anybody to close. It reports since when that is so, and
// whether it was not before: the first operator's word stands. It is no step of leaving, and a
// process that takes over knows nothing of it.
func (s *Server) DrainByHand(by control.Operator,
	now time.Time) (d *control.Drained, changed bool) {
	d = &control.Drained{Since: now.UTC(), By: by.Who, From: by.From}
	if s.leaving.drained.CompareAndSwap(nil, d) {
		return d, true
	}
	if was := s.leaving.drained.Load(); was != nil {
		return was, false
	}
	return s.DrainByHand(by, now) // undrained meanwhile
}

// Undrain ends what DrainByHand began, and returns that; nil: nothing.
func (s *Server) Undrain() *control.Drained { return s.leaving.drained.Swap(nil) }

// Drained is since when an operator has the server out of service; nil: none has.
func (s *Server) Drained() *control.Drained { return s.leaving.drained.Load() }

// Leave announces that the server will stop: it still takes requests, but is not Ready, and asks
// clients to close.
func (s *Server) Leave() {
	if s.leaving.draining.CompareAndSwap(false, true) {
		s.listening.open.Left.Store(time.Now().UnixNano())
	}
}

// Connections is how many are open.
func (s *Server) Connections() int { return s.listening.open.Open() }

// Hurry has Drain close idle connections without more notice than this.
func (s *Server) Hurry(notice time.Duration) { s.listening.open.Notice.Store(int64(notice)) }

// Drain stops accepting, lets every request in flight finish, and returns when no connection is
// left or ctx is done; what is still open then is cut, and the error reports it. Idle connections
// are closed once they have had notice for so long.
func (s *Server) Drain(ctx context.Context, notice time.Duration) error {
	s.apply.Lock()
	s.Leave()
	s.listening.open.Notice.CompareAndSwap(0, int64(notice)) // unless a shorter deadline is set already
	listeners := s.listening.listeners
	s.apply.Unlock()
	for _, l := range listeners {
		l.Stop()
	}
	for _, l := range listeners {
		select {
		case <-l.Ended:
		case <-ctx.Done():
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.listening.open.Open() > 0 && ctx.Err() == nil {
		s.listening.open.Retire(time.Now())
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	cut := s.listening.open.Open() > 0
	s.listening.open.CloseAll()
	var err error
	if cut {
		err = errCut
	}
	for _, o := range s.snap.Load().origins.All {
		o.Sweep(time.Time{})
	}
	return err
}
