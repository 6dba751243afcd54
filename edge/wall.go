package edge

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/wall"
	"sluice/mitigation"
)

// newWall makes the wall, which does nothing unless the configuration has shed: kernel.
func (s *Server) newWall() *wall.Wall {
	return wall.New(wall.Options{
		Socket: func() string {
			if c := s.snap.Load().config; c.Shed == config.Kernel {
				return c.Wall.Socket
			}
			return ""
		},
		Ports:   s.ports,
		Blocked: s.blockedPrefix,
		Changes: func() uint64 {
			return s.limiter.Blocks.Loosened() +
				uint64(s.snap.Load().generation)
		},
		Leaving: s.leaving.draining.Load,
		Warn:    s.warn,
	})
}

// Guard keeps the kernel's set of blocked sources until ctx is done, or the edge drains. Without
// shed: kernel it waits for a configuration that has it. It blocks.
func (s *Server) Guard(ctx context.Context) { s.wall.Run(ctx) }

// Wall is the state of the kernel's set of blocked sources; nil: there is none.
func (s *Server) Wall() *control.Wall {
	w := s.wall.Status()
	if w.Socket == "" {
		return nil
	}
	return &control.Wall{Up: w.Up, Since: w.Since, Error: w.Error, Entries: w.Entries, Room: w.Room,
		Refused: w.Refused}
}

// inKernel returns how the kernel refuses a prefix; nil: it does not.
func (s *Server) inKernel(p netip.Prefix) *control.Kernel {
	e, in := s.wall.Of(p)
	if !in {
		return nil
	}
	return &control.Kernel{Since: e.Since.UTC(), Attempts: e.Attempts}
}

// shedPeer is shed for a connection. A peer that is closed is one that the kernel could refuse next
// time.
func (s *Server) shedPeer(peer netip.Addr) bool {
	blocked := s.shed(peer)
	if blocked.IsValid() && s.snap.Load().config.Shed == config.Kernel {
		if p, ok := blocked.Prefix(); ok {
			s.wall.Knock(p)
		}
	}
	return blocked.IsValid()
}

// nat64 holds clients of IPv4, each a separate source, whose packets come from IPv6
// (counter.Plain).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// blockedPrefix returns until when shed is true for each address of a prefix, as far as is known
// now, or the zero Time.
func (s *Server) blockedPrefix(p netip.Prefix, now time.Time) (until time.Time) {
	snap, bits := s.snap.Load(), s.limiter.Blocks
	if snap.config.Shed != config.Kernel || overlaps(snap.sources.Trust, p) ||
		snap.allow.Overlaps(p) || nat64.Overlaps(p) {
		return time.Time{}
	}
	covering := bits.WiderPrefixes(p, nil)
	if bits.Ordered(mitigation.Allowed, covering, now) || bits.OrderedWithin(mitigation.Allowed, p,
		now) {
		return time.Time{}
	}
	source := snap.sources.Of(p.Addr())
	for _, r := range snap.sheds {
		if end := r.BlocksPrefix(&s.limiter, p, source, covering, now); end.After(until) {
			until = end
		}
	}
	return until
}

func overlaps(t *bart.Lite, p netip.Prefix) bool { return t != nil && t.OverlapsPrefix(p) }

// ports are those that connections of clients come in at.
func (s *Server) ports() (list []uint16) {
	s.apply.Lock()
	defer s.apply.Unlock()
	for _, l := range s.listening.listeners {
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			list = append(list, uint16(addr.Port))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
