package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

// planWall refuses what cannot have a wall, and finds its program.
func (s *Site) planWall() error {
	switch {
	case s.PoPs > 1:
		return fmt.Errorf("loadgen: lab: %d PoPs behind one wall: the kernel refuses a source at all edges of a machine, so there must be one PoP", s.PoPs)
	case s.Carrier != replay.Loopback:
		return fmt.Errorf("loadgen: lab: a wall with sources by %v: the kernel knows peers alone",
			s.Carrier)
	case s.HTTP2:
		return fmt.Errorf("loadgen: lab: a wall over HTTP/2: connections stay open, and the kernel refuses new ones alone")
	}
	path, err := process.Find(s.Wall, "build it with make build")
	if err != nil {
		return err
	}
	s.WallProcesses = []*Member{{Process: process.Process{Name: "wall/0", Path: path}}}
	return nil
}

// guard completes the wall's command line: it guards the ports of all edges.
func (s *Site) guard() {
	m := s.WallProcesses[0]
	var ports []string
	for _, e := range s.EdgeProcesses {
		ports = append(ports, fmt.Sprint(e.Addr.Port()))
	}
	m.Args = []string{"--socket", s.wallSocket(), "--ports", strings.Join(ports, ","), "--user",
		fmt.Sprint(os.Geteuid())}
	m.ready = func() error { _, err := os.Stat(s.wallSocket()); return err } // the edges wait for the rest
}

func (s *Site) wallSocket() string { return filepath.Join(s.dir, "wall.sock") }

// edgeReady is nil if an edge serves, and its wall, if it has one, refuses whom it is told to.
func (s *Site) edgeReady(m *Member) error {
	if err := scrape.OK(m.Admin, "/readyz"); err != nil || s.Wall == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	metrics, err := scrape.MetricsOf(ctx, http.DefaultClient, m.Admin)
	if err == nil && metrics.Sum("sluice_wall_up") != 1 {
		err = fmt.Errorf("it cannot use sluice-wall, which said: %s", s.WallProcesses[0].Output())
	}
	return err
}
