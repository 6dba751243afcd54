package rival

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"sluice/loadgen/process"
)

// haproxy starts instances whose stick tables are peers: each pushes an entry to the others when it
// changes, and what is pushed takes the place of what they had. So counts of a source that several
// of them see at once are not added up ("the pushed values overwrite remote ones without
// aggregation": HAProxy's configuration manual, section Peers).
func (s *starter) haproxy() error {
	path, err := process.Find("haproxy",
		"install it (apt-get install haproxy), or leave it out of --limiter")
	if err != nil {
		return err
	}
	part := Part{Name: "haproxy"}
	if part.Version, err = process.Version(s.ctx, path, "-v"); err != nil {
		return err
	}
	if err := s.serveOrigin(); err != nil {
		return err
	}
	targets := s.targets()
	var peers []netip.AddrPort
	for range targets {
		peers = append(peers, s.next())
	}
	var started []*process.Process
	socket := func(i int) string {
		return filepath.Join(s.site.dir, fmt.Sprintf("haproxy-%d.sock", i))
	}
	for i, at := range targets {
		file, err := s.file(fmt.Sprintf("haproxy-%d.cfg", i), haproxyConfig(i, socket(i), at,
			s.origin, peers, s.Limit, s.Window))
		if err != nil {
			return err
		}
		p := &process.Process{Name: fmt.Sprint("haproxy/", i), Path: path,
			Args: []string{"-db", "-q", "-f", file}}
		if err := s.launch(p, listens(at)); err != nil {
			return err
		}
		started, part.PIDs = append(started, p), append(part.PIDs, p.PID())
	}
	for i, p := range started {
		if err := p.Await(s.ctx, process.ReadyTimeout,
			func() error { return peered(socket(i), len(targets)-1) }); err != nil {
			return err
		}
	}
	s.site.Parts, s.site.Refused = []Part{part}, true
	s.site.Configured = fmt.Sprintf("http_req_rate(%s) of src in a stick table with peers, denied where it is greater than %d; it counts refused requests, too, and so does its log",
		haproxyTime(s.Window), s.Limit)
	return nil
}

// haproxyTime writes a duration as HAProxy reads one.
func haproxyTime(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

func haproxyConfig(i int, socket string, at, origin netip.AddrPort, peers []netip.AddrPort,
	limit uint32, window time.Duration) string {
	var pop strings.Builder
	for n, p := range peers {
		fmt.Fprintf(&pop, "  peer edge%d %s\n", n, p)
	}
	return fmt.Sprintf(`global
  nbthread 1
  maxconn 8192
  localpeer edge%[1]d
  stats socket %[2]s
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
peers pop
%[3]sfrontend edge
  bind %[4]s backlog 4096
  http-request track-sc0 src table sources
  http-request deny deny_status 429 if { sc_http_req_rate(0,sources) gt %[5]d }
  default_backend origin
backend sources
  stick-table type ip size 1m expire %[6]s store http_req_rate(%[7]s) peers pop
backend origin
  option forwardfor
  server origin %[8]s
`, i, socket, pop.String(), at, limit, haproxyTime(2*window), haproxyTime(window), origin)
}

// peered reports whether an instance is connected to so many others.
func peered(socket string, others int) error {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "show peers\n"); err != nil {
		return err
	}
	said, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if n := strings.Count(string(said), "last_status=ESTA"); n < others {
		return errors.New("its peers are not connected")
	}
	return nil
}
