package edge

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/front"
	"sluice/edge/http2"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// learned records a block that came into force here and is not this edge's own verdict. It is
// called with a part of the table locked.
func (s *Server) learned(k mitigation.Key, b mitigation.Bit) {
	by := "the PoP"
	if b.By == mitigation.ByPeer {
		by = "another PoP"
	}
	if b.By != mitigation.ByPoP && b.By != mitigation.ByPeer ||
		!s.events.Wants(events.Block, b.Learned) {
		// Blocks records verdicts, with their estimate; control.Event records operators' orders
		return
	}
	snap := s.snap.Load()
	if snap == nil {
		return
	}
	for r, l := range snap.rules.EachLimit() {
		if l.Counter.ID == k.Rule {
			s.events.Add(events.Event{Time: b.Learned, Kind: events.Block, Text: "blocked by " +
				by + control.Reason(b.Reason) + shadows(&r.Rule),
				Rule: r.Config.Name, Policy: l.OwnPolicy(), Source: k.Source.String(),
				Limit: l.Counter.Limit, Until: b.End,
				KeyStart: s.heaviest.keys.Start(r.KeyName(), k.Source).String()})
		}
	}
}

// blocks records which blocks this request has started: of several requests at once that are over a
// limit, the one whose verdict is in force.
func (x *Exchange) blocks() {
	s, d := x.server, &x.decision
	if s.events == nil {
		return
	}
	if d.Verdict != limiter.Limited && d.Verdict != limiter.Shadowed &&
		d.Verdict != limiter.Tagged {
		return
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Reservation != nil && !r.Until.IsZero() && !r.Rule.Observer {
			x.blocked(r)
		}
	}
}

// blocked records a block under a rule, if this request has started it.
func (x *Exchange) blocked(r *limiter.RuleResult) {
	s, limit, by := x.server, rules.LimitOf(r), r.Rule.Counter
	bit, in := s.limiter.Blocks.Get(mitigation.Key{Rule: by.ID, Source: r.Source}, x.now)
	if !in || bit.By != mitigation.ByEdge || !bit.Start.Equal(x.now) ||
		!s.events.Wants(events.Block, x.now) {
		return
	}
	came := ""
	if len(x.Version) > 0 && x.Version[len("HTTP/")] == '2' {
		came = ", the last by HTTP/2"
	}
	var start key.Start
	if k := x.keyOf(r.Source); k != nil && k.Digest == r.Source {
		start = k.Start
	}
	s.events.Add(events.Event{Time: x.now, Kind: events.Block, KeyStart: start.String(),
		Text: fmt.Sprintf("blocked by this edge: %.4g requests in %v%s, %d are allowed%s",
			r.Reservation.Estimate, rules.Duration(by.Window), came, by.Limit, shadows(r.Rule)),
		Rule: limit.Parent.Config.Name, Policy: limit.OwnPolicy(), Source: r.Source.String(),
		Estimate: r.Reservation.Estimate, Limit: by.Limit, Until: bit.End,
		Protocol: string(x.Version)})
}

// lifted records a block that ended because its rule did, or allows more.
func (s *Server) lifted(rule string, source counter.Source, now time.Time) {
	if s.events.Wants(events.Lift, now) {
		s.events.Add(events.Event{Time: now, Kind: events.Lift,
			Text: "lifted: the rule is gone, counts otherwise, or allows more", Rule: rule,
			Source: source.String()})
	}
}

func shadows(r *limiter.Rule) string {
	if r.Shadow {
		return " (shadow: nobody is refused)"
	}
	if r.Tag {
		return " (tag: nobody is refused)"
	}
	return ""
}

// originMoved records that an origin fails its checks, and why, or passes them again.
func (s *Server) originMoved(o *upstream.Origin, why string) {
	e := events.Event{Time: time.Now(), Kind: events.Origin, Text: "origin " + o.Name + " is back",
		Old: "down", New: "up"}
	if why != "" {
		e.Level, e.Old, e.New = slog.LevelWarn, "up", "down"
		e.Text = "origin " + o.Name + " fails its checks (" + why +
			"): it gets no requests while others do not"
	}
	s.events.Add(e)
}

// abused records a client whose connection was ended because it went beyond a bound of HTTP/2.
func (s *Server) abused(c *front.Client, what http2.Abuse) {
	if now := time.Now(); s.events.Wants(events.Warning, now) {
		s.events.Add(events.Event{Time: now, Kind: events.Warning, Level: slog.LevelWarn,
			Source: c.Peer.String(), Protocol: "HTTP/2.0",
			Text: "a connection of HTTP/2 was ended, because its client went beyond a bound: " +
				what.String()})
	}
}

// recordShedding records origins that have begun to shed load, or have not for a while.
func (s *Server) recordShedding(groups []*upstream.Group, now time.Time) {
	for _, g := range groups {
		if g.Shedding == nil {
			continue
		}
		shedding, moved := g.Shedding.Moved(now)
		if !moved {
			continue
		}
		is, name := g.Shedding.Status(), strings.Join(g.Hosts, ", ")
		e := events.Event{Time: now, Kind: events.Origin, Old: "shedding", New: "sound",
			Text: fmt.Sprintf("the origin of %s sheds no load any more: %d requests may be under way there", name, is.Limit)}
		if shedding {
			e.Level, e.Old, e.New = slog.LevelWarn, "sound", "shedding"
			e.Text = fmt.Sprintf("the origin of %s sheds load: %d requests are under way there, and %d may be; without a queue it took %v", name, is.InFlight, is.Limit,
				is.Base.Round(time.Millisecond))
		}
		s.events.Add(e)
	}
}

// warnUnbelieved warns of a proxy that is not among trusted_proxies, once a minute at most.
func (s *Server) warnUnbelieved(now time.Time) {
	peer, n, of := s.unbelieved.Look(s.stats.received.Load(), now)
	if n == 0 {
		return
	}
	// The text is constant, because the log recognises repetitions by it; the log's warnings are
	// events.
	s.warn("a peer is not trusted, but its requests name other clients: if it is a proxy of yours, all its clients are limited as one; name it in source.trust",
		"peer", peer, "requests", n, "of", of)
}
