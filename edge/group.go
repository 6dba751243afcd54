package edge

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
)

// A group is the servers that answer for a host.
type group struct {
	servers  []*origin
	balance  Balance
	most     int64 // requests under way at each server; 0: any number
	share    int64 // of one source, at all servers together; 0: see places.enter
	places   *places
	timeout  time.Duration
	connect  time.Duration // for a connect, and a TLS handshake with it
	total    time.Duration // for a request and its whole answer; 0: any time
	upgrades []string      // protocols that requests may switch to, in lower case
	next     atomic.Uint32
}

// pick chooses the server for a request, one of those that are healthy and have room, and counts the request among those
// under way there. If none is healthy, all are taken to be: an answer from a doubtful server is better than none. nil means
// that none has room.
func (g *group) pick(source counter.Source, now time.Time, not *origin) *origin {
	if len(g.servers) == 1 {
		return g.take(g.servers[0])
	}
	for _, any := range [...]bool{false, true} {
		if o := g.choose(source, now, not, any); o != nil {
			return o
		}
	}
	return nil
}

func (g *group) choose(source counter.Source, now time.Time, not *origin, any bool) *origin {
	n := uint32(len(g.servers))
	first := g.next.Add(1)
	tried := uint64(0) // a bit for each of the first 64
	for range n {
		var best *origin
		at, weight := uint32(0), uint64(0)
		for i := range n {
			at2 := (first + i) % n // a tie goes round
			o := g.servers[at2]
			if o == not || tried&(1<<(at2%64)) != 0 || !any && !o.healthy(now) {
				continue
			}
			var w uint64
			switch g.balance {
			case LeastConnections:
				w = ^uint64(o.active.Load())
			case BySource:
				w = affinity(o.name, source)
			}
			if best == nil || w > weight {
				best, at, weight = o, at2, w
			}
			if g.balance == RoundRobin {
				break
			}
		}
		if best == nil {
			return nil
		}
		if o := g.take(best); o != nil {
			return o
		}
		tried |= 1 << (at % 64)
	}
	return nil
}

// take counts a request as under way at a server, if there is room for it.
func (g *group) take(o *origin) *origin {
	if n := o.active.Add(1); g.most > 0 && n > g.most {
		o.active.Add(-1)
		return nil
	}
	return o
}

// instead returns another server that has room, and gives o's place back; or o if there is none.
func (g *group) instead(o *origin, source counter.Source, now time.Time) *origin {
	if len(g.servers) == 1 {
		return o
	}
	other := g.pick(source, now, o)
	if other == nil {
		return o
	}
	o.active.Add(-1)
	return other
}

// places are the requests under way at a group's servers, by source, so that no source holds them all. There are as many sources in it
// as have a request under way.
type places struct {
	mu       sync.Mutex
	bySource map[counter.Source]int64
}

// enter counts a request as its source's, if that has fewer under way than its share: what is configured, or half of what the
// healthy servers have room for.
func (g *group) enter(source counter.Source, now time.Time) bool {
	share := g.share
	if share == 0 {
		healthy := int64(0)
		for _, o := range g.servers {
			if o.healthy(now) {
				healthy++
			}
		}
		if healthy == 0 { // all are taken to be: see pick
			healthy = int64(len(g.servers))
		}
		share = max(1, g.most*healthy/2)
	}
	p := g.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySource[source] >= share {
		return false
	}
	p.bySource[source]++
	return true
}

func (p *places) leave(source counter.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySource[source]--; p.bySource[source] <= 0 {
		delete(p.bySource, source)
	}
}

// affinity weighs a server for a source (rendezvous hashing): the source goes to the heaviest that is healthy, so a server
// that is lost moves only its own. The hash is FNV-1a with the finish of MurmurHash3, alike on all edges.
func affinity(server string, source counter.Source) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(server) {
		h = (h ^ uint64(server[i])) * 1099511628211
	}
	var buf [counter.SourceSize]byte
	for _, c := range source.AppendBinary(buf[:0]) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// origins finds the group for a host.
type origins struct {
	all    []*origin // each server once
	byHost map[string]*group
	wild   map[string]*group
	any    *group
}

// newOrigins keeps the servers of before that are still there, with their connections and counts. After an error nothing has
// changed.
func newOrigins(c []OriginConfig, before *origins) (*origins, error) {
	secure := make(map[string]*originTLS)
	for _, config := range c {
		for _, u := range config.Servers {
			if u.Scheme != "https" {
				continue
			}
			t, err := loadOriginTLS(config.TLS, u.Hostname())
			if err != nil {
				return nil, fmt.Errorf("edge: origin https://%s: %w", u.Host, err)
			}
			secure["https://"+u.Host] = t
		}
	}
	s := &origins{byHost: make(map[string]*group), wild: make(map[string]*group)}
	servers := make(map[string]*origin)
	if before != nil {
		for _, o := range before.all {
			servers[o.name] = o
		}
	}
	used := make(map[string]bool)
	for _, config := range c {
		g := &group{balance: config.Balance, timeout: config.Timeout, connect: config.ConnectTimeout, total: config.TotalTimeout,
			most: int64(config.MaxRequests), share: int64(config.MaxRequestsPerSource), upgrades: config.Upgrades,
			places: &places{bySource: make(map[counter.Source]int64)}}
		if before != nil && len(config.Hosts) > 0 {
			if was := before.named(config.Hosts[0]); was != nil {
				g.places = was.places // its requests are still under way
			}
		}
		if g.connect == 0 {
			g.connect = defaultConnect
		}
		if config.Upgrades == nil {
			g.upgrades = []string{"websocket"}
		}
		for _, u := range config.Servers {
			fresh := newOrigin(u)
			o := servers[fresh.name]
			if o == nil {
				o = fresh
				servers[o.name] = o
			}
			if t := secure[o.name]; t != nil && !o.secure.Load().same(t) {
				o.secure.Store(t)
			}
			var p *probe
			if config.Health.Active != "" {
				p = &probe{config.Health.Active, config.Health.Interval}
			}
			o.probe.Store(p)
			if !used[o.name] {
				used[o.name] = true
				s.all = append(s.all, o)
			}
			g.servers = append(g.servers, o)
		}
		for _, h := range config.Hosts {
			switch {
			case h == "*":
				s.any = g
			case h[0] == '*':
				s.wild[h[1:]] = g
			default:
				s.byHost[h] = g
			}
		}
	}
	return s, nil
}

// named returns the group that a configuration gives for a host or pattern; nil if there is none.
func (s *origins) named(pattern string) *group {
	switch {
	case pattern == "*":
		return s.any
	case pattern[0] == '*':
		return s.wild[pattern[1:]]
	}
	return s.byHost[pattern]
}

// of returns the group for a canonical host: the host's own, that of the longest suffix, that of all; nil if there is none.
func (s *origins) of(host []byte) *group {
	if len(s.byHost) > 0 {
		if g := s.byHost[string(host)]; g != nil {
			return g
		}
	}
	if len(s.wild) > 0 {
		for i, c := range host {
			if c == '.' {
				if g := s.wild[string(host[i:])]; g != nil {
					return g
				}
			}
		}
	}
	return s.any
}
