package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sluice/loadgen/judge"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
)

// memcachedArguments starts a node on loopback only, with so many MB; as root it must say whom to
// become.
func memcachedArguments(addr netip.AddrPort, memory int) []string {
	args := []string{"-l", addr.Addr().String(), "-p", fmt.Sprint(addr.Port()), "-U", "0", "-m",
		fmt.Sprint(memory)}
	switch {
	case process.CanBeNobody():
		args = append(args, "-u", "nobody")
	case os.Geteuid() == 0: // of a user namespace, which has nobody else
		args = append(args, "-u", "root")
	}
	return args
}

// nutcrackerConfig is a pool of all nodes, as deploy/nutcracker.yml has it.
func nutcrackerConfig(addr netip.AddrPort, nodes []netip.AddrPort) string {
	var b strings.Builder
	fmt.Fprintf(&b, `pop:
  listen: %s
  hash: fnv1a_64
  distribution: ketama
  timeout: 100
  preconnect: true
  auto_eject_hosts: true
  server_retry_timeout: 2000
  server_failure_limit: 1
  server_connections: 2
  servers:
`, addr)
	for _, n := range nodes {
		fmt.Fprintf(&b, "    - %s:1\n", n)
	}
	return b.String()
}

// ruleName is that of the rule that is judged.
const ruleName = "default"

// edgeConfig is the configuration file of an edge.
func (s *Site) edgeConfig(pop int, m *Member, tier []netip.AddrPort, secret string,
	peers [][]netip.AddrPort) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("listen: %q", m.Addr)
	line("admin: %q", m.Admin)
	line("verdict_header: true")
	if s.HTTP2 {
		line("listen_tls: %q", m.Secure)
		line("tls: {certificate: %q, key: %q}", filepath.Join(s.dir, certificateFile),
			filepath.Join(s.dir, keyFile))
	}
	if s.Logged {
		line("access_log: {file: %q, format: json}", m.access)
	}
	if s.Wall != "" {
		line("shed: kernel")
		line("wall: {socket: %q}", s.wallSocket())
	}
	line("pop:")
	line("  name: %s", PoPName(pop))
	if len(tier) > 0 {
		line("  memcached:")
		for _, n := range tier {
			line("    - %q", n)
		}
	}
	if secret != "" {
		line("  secret_file: %q", secret)
	}
	if s.Peers {
		line("  peers_listen: %q", m.Peers)
		line("  peers_secret_file: %q", secret)
		line("  peers:")
		for i, edges := range peers {
			if i != pop {
				line("    - {name: %s, edges: [%s]}", PoPName(i), quoted(edges))
			}
		}
	}
	if s.Carrier != replay.Loopback {
		line("source:")
		line("  trust: [127.0.0.0/8]")
		if s.Carrier == replay.Proxy {
			line("  proxy_protocol: true")
		}
		line("limits: {connections_per_source: 10000}") // all come from one peer
	}
	line("origins:")
	says := ""
	if s.OriginOptions != "" {
		says = ", " + s.OriginOptions
	}
	line("  - {servers: [%q]%s}", "http://"+s.Before.String(), says)
	line("rules:")
	line("  - name: %s", ruleName)
	line("    limit: %d", s.Rule.Limit)
	line("    window: %v", s.Rule.Window)
	if s.Rule.SubWindows != 0 {
		line("    sub_windows: %d", s.Rule.SubWindows)
	}
	if s.Rule.Estimate != "" {
		line("    estimate: %s", s.Rule.Estimate)
	}
	if s.Rule.OnStoreFailure != "" {
		line("    on_store_failure: %s", s.Rule.OnStoreFailure)
	}
	if s.Rule.Mode == judge.Estimator {
		line("    mode: shadow")
		line("    mitigation_timeout: 0s")
		line("    count: {refused: true}")
	} else {
		line("    mitigation_timeout: %v", s.Rule.MitigationTimeout)
	}
	for _, r := range s.MoreRules {
		line("  - %s", r)
	}
	return b.String()
}

func quoted(list []netip.AddrPort) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, strconv.Quote(a.String()))
	}
	return strings.Join(texts, ", ")
}

// PoPName is the name of a PoP, by its number from 0.
func PoPName(pop int) string { return fmt.Sprintf("lab%d", pop) }
