// Package lab starts points of presence of real processes on this machine (Lab), replays traces on
// them, does faults to them meanwhile, and counts afterwards what everybody saw, which must agree
// (Balance).
package lab

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/origin"
	"sluice/loadgen/page"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

// Lab starts points of presence of real processes on this machine: edges, the memcached nodes that
// they share and, if wanted, a twemproxy between, all before one origin. Everything listens on free
// ports of 127.0.0.1.
type Lab struct {
	PoPs      int  // 0: 1
	Edges     int  // of each PoP; 0: 1
	Memcached int  // nodes of each PoP; 0: none, and each edge counts alone
	Memory    int  // MB of each node; 0: 64
	Twemproxy bool // edges reach the nodes through a nutcracker

	Sluice  string   // the edge's executable
	Origin  []string // command that serves an origin; "--listen ADDRESS" is appended
	Secret  string   // of the PoPs: placement and phases of sources follow from it
	Rule    RuleConfig
	Carrier replay.Carrier
	HTTP2   bool // edges are reached by HTTP/2, over TLS with a certificate of their own
	// Edges write access logs, without which nobody knows what became of requests that were reset
	Logged bool
	Guests bool // others send than the sources of the trace, from addresses of their own

	Before netip.AddrPort // the origin of the edges, if it is not to be the lab's own
	// More of it, as in a configuration file: "timeout: 5s, max_requests: 10"
	OriginOptions string
	// Beside Rule, as in a configuration file: "{name: login, limit: 5}"
	MoreRules []string

	Peers bool // PoPs send each other their blocks, and counts near the limit

	// Wall is the executable of sluice-wall: edges shed in the kernel. It must run in a network of
	// the lab's own, with one PoP, since the kernel refuses a source at all edges there; "": edges
	// answer whom they refuse.
	Wall string

	Log func(format string, args ...any) // what is being done, a line at a time; nil: nowhere

	// Other does faults of the kind Other, which are to no process.
	Other func(ctx context.Context, s *Site, f Fault) error
}

// RuleConfig is the one rule of a lab's edges.
type RuleConfig struct {
	Limit             uint32
	Window            time.Duration
	MitigationTimeout time.Duration // 0: throttle
	SubWindows        int           // 0: the edge's default
	Estimate          string        // empty: the edge's default
	OnStoreFailure    string        // empty: the edge's default

	// Mode Estimator counts every request and refuses none.
	Mode judge.Mode
}

// Site is a Lab that runs.
type Site struct {
	Lab
	Targets [][]netip.AddrPort // of each PoP, the addresses of its edges

	dir            string
	roots          *x509.CertPool // what vouches for the edges
	NodeProcesses  []*Member
	ProxyProcesses []*Member
	EdgeProcesses  []*Member
	WallProcesses  []*Member // one, if edges shed in the kernel
	origin         *Member
}

// Member is a process of a site and where it listens.
type Member struct {
	process.Process
	Addr   netip.AddrPort
	Admin  netip.AddrPort // of an edge
	Secure netip.AddrPort // where it speaks TLS, if it does
	access string         // its access log, if it writes one
	Peers  netip.AddrPort // where it listens for other PoPs, if it does
	ready  func() error
	harmed bool // a fault was done to it that loses what it counted

	ahead atomic.Int64 // how far its clock has been stepped, ns
}

// Start starts everything and returns when all of it is ready; on an error nothing is left. The
// caller stops the site.
func (l Lab) Start(ctx context.Context) (*Site, error) {
	l.PoPs, l.Edges = max(l.PoPs, 1), max(l.Edges, 1)
	if l.Log == nil {
		l.Log = func(string, ...any) {}
	}
	s := &Site{Lab: l}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) error {
	if err := s.plan(); err != nil {
		return err
	}
	s.Log("starting %s", s.describe())
	for _, group := range [][]*Member{s.NodeProcesses, s.ProxyProcesses, {s.origin},
		s.WallProcesses, s.EdgeProcesses} {
		for _, m := range group {
			if err := m.Start(); err != nil {
				return err
			}
		}
		for _, m := range group {
			if err := m.Await(ctx, process.ReadyTimeout, m.ready); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Site) describe() string {
	out := page.Plural(len(s.EdgeProcesses), "edge")
	if s.PoPs > 1 {
		out += fmt.Sprintf(" in %d PoPs", s.PoPs)
	}
	switch {
	case len(s.NodeProcesses) == 0:
		out += ", counting alone"
	case s.Twemproxy:
		out += ", " + page.Plural(len(s.NodeProcesses), "memcached node") + " behind twemproxy"
	default:
		out += ", " + page.Plural(len(s.NodeProcesses), "memcached node")
	}
	if len(s.WallProcesses) > 0 {
		out += ", a wall in the kernel"
	}
	return out + ", one origin"
}

// plan finds the programs, chooses the ports and writes the configurations. Nothing runs yet.
func (s *Site) plan() error {
	var err error
	if s.Sluice, err = process.Find(s.Sluice,
		"build it with make build, or name it with --sluice"); err != nil {
		return err
	}
	if len(s.Origin) == 0 {
		return errors.New("loadgen: lab: no command for the origin")
	}
	memcached, nutcracker := "", ""
	if s.Memcached > 0 {
		if memcached, err = process.Find("memcached",
			"install it (apt-get install memcached), or use --memcached 0"); err != nil {
			return err
		}
	}
	if s.Twemproxy {
		if s.Memcached == 0 {
			return errors.New("loadgen: lab: a twemproxy needs memcached nodes behind it")
		}
		if nutcracker, err = process.Find("nutcracker",
			"install it (apt-get install nutcracker), or leave --twemproxy out"); err != nil {
			return err
		}
	}
	if s.dir, err = os.MkdirTemp("", "sluice-lab-"); err != nil {
		return fmt.Errorf("loadgen: lab: %w", err)
	}
	ports := 2 // of an edge
	if s.Peers {
		ports++
	}
	if s.HTTP2 {
		ports++
		if err := s.certify(); err != nil {
			return err
		}
	}
	free, err := process.FreeAddresses(s.PoPs*(ports*s.Edges+s.Memcached+2) + 1)
	if err != nil {
		return err
	}
	next := func() netip.AddrPort {
		a := free[0]
		free = free[1:]
		return a
	}
	secret := ""
	if s.Secret != "" {
		if secret, err = s.file("secret", s.Secret); err != nil {
			return err
		}
	}
	s.origin = newMember("origin/0", s.Origin[0], next())
	s.origin.Args = append(append([]string{}, s.Origin[1:]...), "--listen", s.origin.Addr.String())
	s.origin.ready = func() error { return scrape.OK(s.origin.Addr, origin.StatsPath) }

	if !s.Before.IsValid() {
		s.Before = s.origin.Addr
	}

	peers := make([][]netip.AddrPort, s.PoPs)
	if s.Peers {
		for pop := range peers {
			for range s.Edges {
				peers[pop] = append(peers[pop], next())
			}
		}
	}
	if s.Wall != "" {
		if err := s.planWall(); err != nil {
			return err
		}
	}
	s.Targets = make([][]netip.AddrPort, s.PoPs)
	for pop := range s.PoPs {
		var tier []netip.AddrPort
		for range s.Memcached {
			m := newMember(fmt.Sprint("memcached/", len(s.NodeProcesses)), memcached, next())
			m.Args, m.AsNobody = memcachedArguments(m.Addr, cmp.Or(s.Memory, 64)), true
			m.ready = func() error { return scrape.MemcachedAnswers(m.Addr) }
			s.NodeProcesses = append(s.NodeProcesses, m)
			tier = append(tier, m.Addr)
		}
		if s.Twemproxy {
			m := newMember(fmt.Sprint("twemproxy/", len(s.ProxyProcesses)), nutcracker, next())
			m.ready = func() error { return scrape.MemcachedAnswers(m.Addr) }
			file, err := s.file(fmt.Sprintf("nutcracker-%d.yml", pop), nutcrackerConfig(m.Addr,
				tier))
			if err != nil {
				return err
			}
			m.Args = []string{"-c", file, "-a", "127.0.0.1", "-s", fmt.Sprint(next().Port())}
			s.ProxyProcesses = append(s.ProxyProcesses, m)
			tier = []netip.AddrPort{m.Addr}
		}
		for i := range s.Edges {
			m := newMember(fmt.Sprint("edge/", len(s.EdgeProcesses)), s.Sluice, next())
			m.Admin = next()
			if s.Peers {
				m.Peers = peers[pop][i]
			}
			if s.HTTP2 {
				m.Secure = next()
			}
			if s.Logged {
				m.access = filepath.Join(s.dir, fmt.Sprintf("edge-%d.log", len(s.EdgeProcesses)))
			}
			file, err := s.file(fmt.Sprintf("edge-%d.yaml", len(s.EdgeProcesses)),
				s.edgeConfig(pop, m, tier, secret, peers))
			if err != nil {
				return err
			}
			m.Args = []string{"--config", file}
			m.ready = func() error { return s.edgeReady(m) }
			s.EdgeProcesses = append(s.EdgeProcesses, m)
			if s.HTTP2 {
				s.Targets[pop] = append(s.Targets[pop], m.Secure)
			} else {
				s.Targets[pop] = append(s.Targets[pop], m.Addr)
			}
		}
	}
	if s.Wall != "" {
		s.guard()
	}
	return nil
}

func newMember(name, path string, addr netip.AddrPort) *Member {
	return &Member{Process: process.Process{Name: name, Path: path}, Addr: addr}
}

func (s *Site) file(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("loadgen: lab: %w", err)
	}
	return path, nil
}

// Stop ends every process, the edges first so that they can report what they still hold, and
// returns when all are gone. It may be called more than once.
func (s *Site) Stop() {
	for _, group := range [][]*Member{s.EdgeProcesses, s.WallProcesses, s.ProxyProcesses,
		s.NodeProcesses, {s.origin}} {
		var all sync.WaitGroup
		for _, m := range group {
			if m != nil {
				all.Go(func() { m.Stop(process.StopTimeout) })
			}
		}
		all.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// Crashed names a process that ended without being asked to.
func (s *Site) Crashed() error {
	for _, m := range s.members() {
		if err := m.Crashed(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) members() []*Member {
	all := slices.Concat(s.EdgeProcesses, s.WallProcesses, s.ProxyProcesses, s.NodeProcesses)
	if s.origin != nil {
		all = append(all, s.origin)
	}
	return all
}

// Member finds the target of a fault.
func (s *Site) target(f Fault) (*Member, error) {
	group := map[string][]*Member{
		"edge": s.EdgeProcesses, "memcached": s.NodeProcesses, "twemproxy": s.ProxyProcesses,
		"origin": {s.origin}, "wall": s.WallProcesses,
	}[f.Kind]
	if f.Index >= len(group) {
		return nil, fmt.Errorf("loadgen: fault %q: there is no %s; of this kind there are %d", f,
			f.Target(), len(group))
	}
	return group[f.Index], nil
}

// Check reports whether the faults can be done here.
func (s *Site) Check(faults []Fault) error {
	for _, f := range faults {
		if f.Kind == Other && s.Other != nil {
			continue
		}
		if _, err := s.target(f); err != nil {
			return err
		}
		if f.Kind == "edge" && s.Wall != "" && (f.Action == Kill || f.Action == Term ||
			f.Action == Restart) {
			return fmt.Errorf("loadgen: fault %q: nobody listens then, and the kernel refuses connections as it does those of blocked sources: with a wall, stop and cont an edge, or harm wall/0", f)
		}
	}
	return nil
}

// Do does a fault. A restart returns when the process is ready again.
func (s *Site) Do(ctx context.Context, f Fault) error {
	if f.Kind == Other && s.Other != nil {
		return s.Other(ctx, s, f)
	}
	m, err := s.target(f)
	if err != nil {
		return err
	}
	if f.Action == Kill || f.Action == Term || f.Action == Restart {
		m.harmed = true
	}
	switch f.Action {
	case Kill:
		return m.Signal(syscall.SIGKILL)
	case Term:
		return m.Signal(syscall.SIGTERM)
	case Stop:
		return m.Signal(syscall.SIGSTOP)
	case Cont:
		return m.Signal(syscall.SIGCONT)
	case StepClock:
		m.ahead.Add(int64(f.By)) // before the edge tells times by it
		return m.StepClock(f.By)
	}
	return m.Restart(ctx)
}

// Restart kills a process if it runs, starts it again, and returns when it is ready.
func (m *Member) Restart(ctx context.Context) error {
	if exited, running := m.Running(); running {
		if err := m.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		<-exited
	}
	m.ahead.Store(0)
	if err := m.Start(); err != nil {
		return err
	}
	return m.Await(ctx, process.ReadyTimeout, m.ready)
}
