package edge

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/edge/view"
)

// nearestOf is of how many of the heaviest sources the nearest to its limit is told.
const nearestOf = 50

// Part is what the edge shows of itself to who looks at the whole PoP; load is how much it does.
func (s *Server) Part(load view.Load, now time.Time) *view.Part {
	o := s.Overview(view.BlocksListed, nil, now)
	p := &view.Part{At: now, Unready: s.Unready(), Load: load, Tops: s.Tops(view.TopListed),
		Keys: s.KeyLists(view.KeysListed), Blocked: o.Blocked, Shadow: o.Shadow,
		Events: s.events.Since(0)}
	p.Events = p.Events[:min(len(p.Events), view.EventsListed)]
	for rule, n := range s.Nearest(nearestOf, now) {
		p.Load.Rule(rule).Nearest = &n
	}
	return p
}

// Answer adds to a part what the edge says to a question that is asked of each edge: nothing, if it
// does not understand it.
func (s *Server) Answer(p *view.Part, question string, now time.Time) {
	for _, m := range s.use {
		if m.Answer != nil && m.Answer(p, question, now) {
			return
		}
	}
	p.Answer(question, s.aboutSource(question))
}

// aboutSource is what the edge knows of a source that it is asked about; nil: it is not.
func (s *Server) aboutSource(question string) (said json.RawMessage) {
	text, is := view.AboutSource(question)
	source, err := counter.ParseSource(text)
	if !is || err != nil {
		return nil
	}
	here, done := context.WithCancel(context.Background())
	done() // the tier is asked by the edge that was asked
	if addr, err := netip.ParseAddr(text); err == nil {
		said, _ = json.Marshal(s.Look(here, counter.Plain(addr)))
	} else if _, is := source.Prefix(); !is {
		said, _ = json.Marshal(s.LookDigest(here, source))
	}
	return said
}
