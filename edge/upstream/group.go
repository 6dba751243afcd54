package upstream

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"sluice/counter"
	"sluice/counter/buckets"
	"sluice/edge/limiter/shedding"
)

// A Group is the servers that answer for a host.
type Group struct {
	Servers     []*Origin
	balance     Balance
	Most        int64 // requests under way at each server; 0: any number
	Share       int64 // of one source, at all servers together; 0: see Enter
	SourceSlots *SourceSlots
	Timeout     time.Duration
	Connect     time.Duration // for a connect, and a TLS handshake with it
	Total       time.Duration // for a request and its whole answer; 0: any time
	Upgrades    []string      // protocols that requests may switch to, in lower case
	HTTP2       bool          // all servers speak it: an answer may begin before its request's body
	next        atomic.Uint32

	Hosts    []string          // that it answers for, as configured
	Shedding *shedding.Limiter // whether a request may go on, as the servers answer; nil: it may
	// For a slot by Shedding, with one in the end or without; nil with it
	Waited *buckets.Histogram
}

// Pick chooses the server for a request, one of those that are healthy and have room, and counts
// the request among those under way there. If none is healthy, all are taken to be: an answer from
// a doubtful server is better than none. nil means that none has room.
func (g *Group) Pick(source counter.Source, now time.Time, not *Origin) *Origin {
	if len(g.Servers) == 1 {
		return g.take(g.Servers[0])
	}
	for _, any := range [...]bool{false, true} {
		if o := g.choose(source, now, not, any); o != nil {
			return o
		}
	}
	return nil
}

func (g *Group) choose(source counter.Source, now time.Time, not *Origin, any bool) *Origin {
	n := uint32(len(g.Servers))
	first := g.next.Add(1)
	for range n {
		var best *Origin
		weight := uint64(0)
		for i := range n {
			o := g.Servers[(first+i)%n] // a tie goes round
			if o == not || g.Most > 0 && o.Active.Load() >= g.Most || !any && !o.Healthy(now) {
				continue
			}
			var w uint64
			switch g.balance {
			case LeastConnections:
				w = ^uint64(o.Active.Load())
			case BySource:
				w = affinity(o.Name, source)
			}
			if best == nil || w > weight {
				best, weight = o, w
			}
			if g.balance == RoundRobin {
				break
			}
		}
		if best == nil {
			return nil
		}
		if o := g.take(best); o != nil { // else others have been quicker
			return o
		}
	}
	return nil
}

// take counts a request as under way at a server, if there is room for it.
func (g *Group) take(o *Origin) *Origin {
	if n := o.Active.Add(1); g.Most > 0 && n > g.Most {
		o.Active.Add(-1)
		return nil
	}
	return o
}

// Instead returns another server that has room, and gives o's slot back; or o if there is none.
func (g *Group) Instead(o *Origin, source counter.Source, now time.Time) *Origin {
	if len(g.Servers) == 1 {
		return o
	}
	other := g.Pick(source, now, o)
	if other == nil {
		return o
	}
	o.Active.Add(-1)
	return other
}

// SourceSlots are the requests under way at a group's servers, by source, so that no source holds
// them all. There are as many sources in it as have a request under way.
type SourceSlots struct {
	Mu       sync.Mutex
	BySource map[counter.Source]int64
}

// Enter counts a request as its source's, if that has fewer under way than its share: what is
// configured, or half of what the healthy servers have room for.
func (g *Group) Enter(source counter.Source, now time.Time) bool {
	share := g.Share
	if share == 0 {
		healthy := int64(0)
		for _, o := range g.Servers {
			if o.Healthy(now) {
				healthy++
			}
		}
		if healthy == 0 { // all are taken to be: see pick
			healthy = int64(len(g.Servers))
		}
		share = max(1, g.Most*healthy/2)
	}
	p := g.SourceSlots
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.BySource[source] >= share {
		return false
	}
	p.BySource[source]++
	return true
}

func (p *SourceSlots) Leave(source counter.Source) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.BySource[source]--; p.BySource[source] <= 0 {
		delete(p.BySource, source)
	}
}

// affinity weighs a server for a source (rendezvous hashing): the source goes to the heaviest that
// is healthy, so a server that is lost moves only its own. All edges weigh alike.
func affinity(server string, source counter.Source) uint64 {
	var buf [128]byte
	return xxhash.Sum64(source.AppendBinary(append(buf[:0], server...)))
}

// Origins finds the group for a host.
type Origins struct {
	All    []*Origin         // each server once
	byHost map[string]*Group // those of all hosts below a domain by the dot and the domain
	Any    *Group
	Groups []*Group // as configured
	// Ahead is the most that Origin.Ahead is of a server, in bytes.
	Ahead int
}

// New keeps the servers of before that are still there, with their connections and counts. After an
// error nothing has changed. fault, if not nil, is called after a panic in a goroutine that belongs
// to no request.
func New(c []Config, before *Origins, fault func(any)) (*Origins, error) {
	secure := make(map[string]*originTLS)
	for _, config := range c {
		for _, u := range config.Servers {
			if !IsSecure(u) {
				continue
			}
			name := u.Scheme + "://" + u.Host
			t, err := loadTLS(config.TLS, u.Hostname(), IsHTTP2(u))
			if err != nil {
				return nil, fmt.Errorf("edge: origin %s: %w", name, err)
			}
			secure[name] = t
		}
	}
	s := &Origins{byHost: make(map[string]*Group)}
	servers := make(map[string]*Origin)
	heads := make(map[*Origin]int) // the largest bound of the groups that share a server
	if before != nil {
		for _, o := range before.All {
			servers[o.Name] = o
		}
	}
	for _, config := range c {
		g := &Group{balance: config.Balance, Timeout: config.Timeout,
			Connect: config.ConnectTimeout, Total: config.TotalTimeout,
			Most: int64(config.MaxRequests), Share: int64(config.MaxRequestsPerSource),
			Upgrades:    config.Upgrades,
			SourceSlots: &SourceSlots{BySource: make(map[counter.Source]int64)},
			Hosts:       config.Hosts,
			HTTP2: !slices.ContainsFunc(config.Servers,
				func(u *url.URL) bool { return !IsHTTP2(u) })}
		s.Groups = append(s.Groups, g)
		if config.Shedding != nil {
			g.Shedding, g.Waited = shedding.New(*config.Shedding), buckets.Latency()
		}
		if before != nil && len(config.Hosts) > 0 {
			if was := before.named(config.Hosts[0]); was != nil {
				g.SourceSlots = was.SourceSlots // its requests are still under way
				if g.Shedding != nil && was.Shedding != nil {
					g.Shedding, g.Waited = was.Shedding, was.Waited
					g.Shedding.Configure(*config.Shedding)
				}
			}
		}
		if g.Connect == 0 {
			g.Connect = DefaultConnect
		}
		if config.Upgrades == nil && !g.HTTP2 {
			g.Upgrades = []string{"websocket"}
		}
		for _, u := range config.Servers {
			fresh := NewOrigin(u)
			o := servers[fresh.Name]
			if o == nil {
				if o = fresh; o.h2 != nil {
					o.h2.Fault = fault
				}
				servers[o.Name] = o
			}
			if t := secure[o.Name]; t != nil && !o.secure.Load().same(t) {
				o.secure.Store(t)
				o.renew()
			}
			var p *probe
			if config.Health.Active != "" {
				p = &probe{config.Health.Active, config.Health.Interval}
			}
			o.probe.Store(p)
			if !slices.Contains(s.All, o) {
				s.All = append(s.All, o)
				s.Ahead = max(s.Ahead, o.Ahead())
			}
			heads[o] = max(heads[o], cmp.Or(config.AnswerHead, MaxHead))
			g.Servers = append(g.Servers, o)
		}
		for _, h := range config.Hosts {
			if h == "*" {
				s.Any = g
			} else {
				s.byHost[strings.TrimPrefix(h, "*")] = g
			}
		}
	}
	for o, size := range heads {
		o.boundHead(size)
	}
	return s, nil
}

// named returns the group that a configuration gives for a host or pattern; nil if there is none.
func (s *Origins) named(pattern string) *Group {
	if pattern == "*" {
		return s.Any
	}
	return s.byHost[strings.TrimPrefix(pattern, "*")]
}

// Of returns the group for a canonical host: the host's own, that of the longest suffix, that of
// all; nil if there is none.
func (s *Origins) Of(host []byte) *Group {
	if g := s.byHost[string(host)]; g != nil {
		return g
	}
	for i, c := range host {
		if c == '.' {
			if g := s.byHost[string(host[i:])]; g != nil {
				return g
			}
		}
	}
	return s.Any
}
