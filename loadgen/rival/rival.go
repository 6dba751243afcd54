// Package rival runs limiters that people have in place of Sluice, as the real programs that they
// are, before the lab's origin: three nginx with limit_req, three HAProxy whose stick tables are
// peers, or envoyproxy/ratelimit over memcached behind proxies that ask it. A replay sends them the
// trace that Sluice's edges get, and the judge holds what they answered against its exact log:
// nothing here knows what is right.
//
// Each says in its configuration, as well as it can, what Sluice's rule says: so many requests of a
// source address in a window. None of them has a block with an end: each refuses what it finds
// over, and no more.
package rival

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sluice/loadgen/origin"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// Names are the limiters that a Lab can start.
var Names = []string{"nginx", "haproxy", "envoy-ratelimit"}

// Lab starts instances of a limiter on free ports of 127.0.0.1.
type Lab struct {
	Limiter   string        // one of Names
	Instances int           // 0: 3
	Limit     uint32        // requests of a source
	Window    time.Duration // in so long
	Origin    []string      // command that serves an origin; "--listen ADDRESS" is appended
	Memcached int           // nodes of envoy-ratelimit; 0: 1
	RateLimit string        // executable of envoyproxy/ratelimit
	// Command that serves a proxy which asks it (ratelimitproxy); "--listen", "--service" and
	// "--origin" are appended
	Proxy []string
}

// Site is a limiter that runs.
type Site struct {
	Targets    []netip.AddrPort // of its instances
	Parts      []Part           // its processes, which do the limiting
	Configured string           // what it was told, in a sentence
	Refused    bool             // it counts requests that it refuses, too: judge.Options.Refused

	dir     string
	started []*process.Process
}

// Part is some of a limiter's processes, which are one program.
type Part struct {
	Name    string // of the program
	Version string
	PIDs    []int
}

// starter is what puts a site together.
type starter struct {
	Lab
	ctx    context.Context
	site   *Site
	origin netip.AddrPort
	free   []netip.AddrPort
}

// Start starts everything and returns when all of it answers; on an error nothing is left. The
// caller stops the site.
func (l Lab) Start(ctx context.Context) (*Site, error) {
	if l.Instances == 0 {
		l.Instances = 3
	}
	l.Memcached = max(l.Memcached, 1)
	s := &starter{Lab: l, ctx: ctx, site: &Site{}}
	if err := s.start(); err != nil {
		s.site.Stop()
		return nil, err
	}
	return s.site, nil
}

func (s *starter) start() (err error) {
	start, ok := map[string]func() error{"nginx": s.nginx, "haproxy": s.haproxy,
		"envoy-ratelimit": s.envoy}[s.Limiter]
	if !ok {
		return fmt.Errorf("loadgen: limiter %q: want one of %v", s.Limiter, Names)
	}
	if s.site.dir, err = os.MkdirTemp("", "sluice-rival-"); err != nil {
		return fmt.Errorf("loadgen: %s: %w", s.Limiter, err)
	}
	if s.free, err = process.FreeAddresses(1 + 5*s.Instances + s.Memcached); err != nil {
		return err
	}
	return start()
}

// serveOrigin starts the origin, once all programs are found.
func (s *starter) serveOrigin() error {
	s.origin = s.next()
	p := &process.Process{Name: "origin", Path: s.Origin[0],
		Args: append(slices.Clone(s.Origin[1:]), "--listen", s.origin.String())}
	return s.launch(p, func() error { return scrape.OK(s.origin, origin.StatsPath) })
}

// next is a port of its own.
func (s *starter) next() netip.AddrPort {
	a := s.free[0]
	s.free = s.free[1:]
	return a
}

// targets are ports for all instances, which listen there.
func (s *starter) targets() []netip.AddrPort {
	for range s.Instances {
		s.site.Targets = append(s.site.Targets, s.next())
	}
	return s.site.Targets
}

// launch starts a process and waits until it is ready.
func (s *starter) launch(p *process.Process, ready func() error) error {
	if err := p.Start(); err != nil {
		return err
	}
	s.site.started = append(s.site.started, p)
	return p.Await(s.ctx, process.ReadyTimeout, ready)
}

// listens reports whether somebody accepts connections there.
func listens(at netip.AddrPort) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
}

func (s *starter) file(name, text string) (string, error) {
	path := filepath.Join(s.site.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("loadgen: %s: %w", s.Limiter, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("loadgen: %s: %w", s.Limiter, err)
	}
	return path, nil
}

// Stop ends every process, and returns when all are gone.
func (s *Site) Stop() {
	var all sync.WaitGroup
	for _, p := range s.started {
		all.Go(func() { p.Stop(process.StopTimeout) })
	}
	all.Wait()
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// Crashed names a process that ended without being asked to.
func (s *Site) Crashed() error {
	for _, p := range s.started {
		if err := p.Crashed(); err != nil {
			return err
		}
	}
	return nil
}
