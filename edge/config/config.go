// Package config reads configuration files: YAML into values, with the position and the remedy of
// everything that is wrong, and rules back into JSON.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/front"
	"sluice/edge/limiter"
	"sluice/edge/listen"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/upstream"
)

// Config is a configuration file's content, with the defaults for what it leaves out. ParseConfig
// and Default make one; after a change of a field (flags) call Check again.
type Config struct {
	Listen    []Listener `json:"listen"`     // for requests; at least one
	ListenTLS []Listener `json:"listen_tls"` // for requests over TLS
	// At each of them; 0: as many as the process may use processors
	ListenSockets int              `json:"listen_sockets" want:"0 to 256"`
	TLS           listen.TLSConfig `json:"tls"`
	HSTS          HSTS             `json:"hsts" reload:"yes"`
	// Host:port of the listener for metrics, health and API
	Admin          string   `json:"admin" want:"address"`
	AdminHosts     []string `json:"admin_hosts" want:"any case"`
	AdminTokenFile string   `json:"admin_token_file" want:"file"`
	// Operators may be listened for beyond this machine without a token
	AdminInsecure bool `json:"admin_insecure"`
	// /metrics wants the token, and a Host of ours, as the API does
	MetricsToken bool `json:"metrics_token"`
	// What operators call this edge; "": host name and port
	EdgeID string `json:"edge_id" want:"name or none"`
	// Where what operators said is kept over a restart; "": nowhere
	StateDir string         `json:"state_dir" want:"file"`
	PoP      PoP            `json:"pop"`
	Table    Table          `json:"table"`
	Source   address.Config `json:"source" reload:"yes"`
	Deny     []netip.Prefix `json:"deny" reload:"yes"`
	Allow    []netip.Prefix `json:"allow" reload:"yes"`
	// Values of facts that Deny, or Allow, has as well, each behind its mark
	DenyMarked  []string           `reload:"yes"`
	AllowMarked []string           `reload:"yes"`
	Limits      front.Limits       `json:"limits"`
	HTTP2       HTTP2              `json:"http2"`
	Origins     []upstream.Config  `json:"origins" reload:"yes"`
	Rules       []rules.Config     `json:"rules" reload:"yes"`
	Estimate    algorithm.Estimate `reload:"yes"` // of rules that do not say
	// Where other proxies request verdicts: a path, or one that ends in /*; "": nowhere
	CheckPath string `json:"check_path" want:"check path or none" reload:"yes"`
	// What becomes of new connections of sources that are blocked; see Server.shed
	Shed   Shed `json:"shed" want:"answer or connection or kernel" reload:"yes"`
	Shadow bool `reload:"yes"` // every rule that is not off is a shadow
	// Answers carry Sluice-Verdict
	VerdictHeader bool              `json:"verdict_header" reload:"yes"`
	Plans         rules.PlansConfig `json:"plans"`

	// Modules are the features whose settings the configuration was read with, and Settings what
	// their sections say, by their names.
	Modules  []Module
	Settings map[string]any

	Composed Composed
}

// Composed is what stays of how a file was put together. The zero Composed is of a file that stands
// alone.
type Composed struct {
	Notes []string // what is possible but probably not meant, a sentence each
	// Settings that have a file's content in them (plans.store, source.trust.0), as they are
	// written
	Hidden map[string]string
}

// HTTP2 is how HTTP/2 is spoken to clients.
type HTTP2 struct {
	Enabled    bool `json:"enabled"`                      // over TLS, with those that want it
	MaxStreams int  `json:"max_streams" want:"1 to 1024"` // requests of a connection at once
	Cleartext  bool `json:"cleartext"`                    // without TLS as well, with trusted proxies that know it
}

// Table is what the table of counters holds.
type Table struct {
	Counters int `json:"counters" want:"1024 to 1073741824"`
}

// Shed is what becomes of new connections of sources that are blocked whatever they request.
type Shed string

const (
	Answer     Shed = "answer"     // they are served, and each request is refused
	Connection Shed = "connection" // the edge closes them
	// Sluice-wall has the kernel refuse them, and the edge closes the rest
	Kernel Shed = "kernel"
)

// Closes reports whether the edge closes such connections.
func (s Shed) Closes() bool { return s == Connection || s == Kernel }

// PoP is which PoP the edge belongs to and how it shares its counts.
type PoP struct {
	Name string `json:"name" want:"PoP"`
	// Host:port; none is the embedded tier. A reload may change them, but not the first or the last
	Memcached  []string `json:"memcached" reload:"yes"`
	SecretFile string   `json:"secret_file" want:"file"`
	Edges      int      `json:"edges" want:"0 to 64"` // 0: learned from presence
	// How long a request may wait for the PoP's count where a rule says first_sight: wait or check:
	// sync
	Wait time.Duration `json:"wait" want:"0, or 100us to 1s"`

	// PoPs that send this one their blocks, and get this one's
	Peers           []Peer `json:"peers"`
	PeersListen     string `json:"peers_listen" want:"address or none"` // host:port where their edges send them
	PeersSecretFile string `json:"peers_secret_file" want:"file"`       // of all peers
	// "off": nothing is sent, and nothing believed
	PeersMode string `json:"peers_mode" want:"enforce or off" reload:"yes"`
}

// Peer is another PoP.
type Peer struct {
	Name  string   `json:"name"`
	Edges []string `json:"edges"` // host:port where they listen for peers
}

// Default returns the configuration of an empty file. It has no origin yet.
func Default() *Config {
	return &Config{
		Listen: At(":8080"),
		Admin:  "127.0.0.1:8081",
		PoP:    PoP{Name: "local", Wait: 5 * time.Millisecond, PeersMode: "enforce"},
		Table:  Table{Counters: 1_000_000},
		Shed:   Answer,
		Plans:  rules.PlansConfig{Default: "default", Refresh: 5 * time.Second},
		Source: address.Config{IPv4Prefix: 32, IPv6Prefix: 64, Header: "X-Forwarded-For"},
		HTTP2:  HTTP2{Enabled: true, MaxStreams: 128},
		Limits: front.Limits{Connections: 10_000, PerSource: 1024, HeaderBytes: 32 << 10,
			HeaderLines: message.MaxLines, BodyRate: 500, AnswerRate: 500,
			HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, TunnelTimeout: time.Hour},
	}
}

// RuleDefaults is what holds for all rules that do not say otherwise. Its facts are those that may
// be asked for, without what finds them out.
func (c *Config) RuleDefaults() rules.Defaults {
	return rules.Defaults{Estimate: c.Estimate, Shadow: c.Shadow, Plans: c.Plans,
		Facts: c.facts(), Actions: actions(c.Modules)}
}

// Check reports what no single field shows: what is missing once file and flags are put together.
func (c *Config) Check() error {
	switch {
	case (c.TLS.Certificate == "") != (c.TLS.Key == ""):
		return errors.New("tls: certificate and key belong together: give both")
	case c.HTTP2.Cleartext && !c.HTTP2.Enabled:
		return errors.New("http2.cleartext is on but http2.enabled is off: turn enabled on, or cleartext off")
	case c.HTTP2.Cleartext && len(c.Source.Trust) == 0:
		return errors.New("http2.cleartext is on but no proxy is trusted, and it is for trusted proxies only: name them under source.trust")
	case c.Source.ProxyProtocol && len(c.Source.Trust) == 0:
		return errors.New("source.proxy_protocol is on but no proxy is trusted: name the proxies that send the header under source.trust")
	case c.NoOrigin():
		return errors.New("no origin: give one with --origin URL or under origins in the configuration file")
	case c.listensAt(c.Listen, c.Admin):
		return errors.New("listen and admin are both " + c.Admin +
			": give them different addresses")
	case c.listensAt(c.ListenTLS, c.Admin):
		return errors.New("listen_tls and admin are both " + c.Admin +
			": give them different addresses")
	case c.MetricsToken && c.AdminTokenFile == "":
		return errors.New("metrics_token is on but there is no token: give admin_token_file")
	case c.Source.TrustsEverybody() && !c.Source.TrustEverybody:
		return errors.New("source.trust has every address, so each client can claim to be any other: name your proxies, or, if only they can reach this edge, set source.trust_everybody: true")
	case c.PoP.Wait == 0 && len(c.PoP.Memcached) > 0 && slices.ContainsFunc(c.Rules,
		func(r rules.Config) bool { return r.Check == limiter.Sync }):
		return errors.New("pop.wait is 0 but a rule has check: sync, whose requests wait for the tier: give pop.wait a time, such as 5ms")
	case c.PoP.Wait == 0 && len(c.PoP.Memcached) > 0 && c.hasConcurrency():
		return errors.New("pop.wait is 0 but a rule has a concurrency, whose requests wait for the tier: give pop.wait a time, such as 5ms")
	case c.Shed == Kernel && !slices.ContainsFunc(c.Modules,
		func(m Module) bool { return m.InKernel != nil && m.InKernel(c) }):
		return errors.New("shed is kernel but nothing says where sluice-wall is: give wall.socket, such as /run/sluice-wall/wall.sock")
	case c.CheckPath != "" && c.CheckPath != "none" && c.hasConcurrency():
		return errors.New("check_path is " + c.CheckPath +
			" but a rule has a concurrency: a proxy that requests a verdict does not report when the request ends; remove one of them")
	}
	for _, m := range c.Modules {
		if m.Check == nil {
			continue
		}
		if err := m.Check(c); err != nil {
			return err
		}
	}
	for _, check := range []func() error{c.checkListeners, c.checkPeers, c.checkPlans,
		c.checkServices} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.CheckAdmin(c.Admin)
}

// hasConcurrency reports whether a rule in force counts requests in flight.
func (c *Config) hasConcurrency() bool {
	return slices.ContainsFunc(c.Rules, func(r rules.Config) bool {
		return r.Mode != rules.Off && r.Concurrency > 0
	})
}

// CheckAdmin reports whether operators may be listened for at an address: beyond this machine they
// need a token, because anyone who reaches the API can block any source and lift every block.
func (c *Config) CheckAdmin(address string) error {
	if c.AdminTokenFile != "" || c.AdminInsecure || IsLocal(address) {
		return nil
	}
	return errors.New("admin is " + address +
		", which others than this machine may reach, and anyone who does may change rules and blocks: " +
		"give admin_token_file, listen on 127.0.0.1, or say admin_insecure: true")
}

// IsLocal reports whether only this machine reaches an address to listen on.
func IsLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "/") ||
		strings.HasPrefix(address, "@") {
		return true // as far as the permissions of its folder say
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return err == nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Warnings returns what is possible but probably not meant, a sentence each: the weaknesses, and a
// rule about some hosts, whose origin answers for any host. A client writes Host as it likes, so it
// can reach that origin without the rule.
func (c *Config) Warnings() []string {
	all := slices.Clone(c.Composed.Notes)
	if c.StateDir != "" && len(c.PoP.Memcached) == 0 && !c.certified() {
		all = append(all,
			"state_dir: without pop.memcached only rules that operators changed are kept there: a restart forgets all blocks")
	}
	for _, r := range c.Rules {
		if r.Mode == rules.Off || len(r.Match.Hosts) == 0 || slices.Contains(r.Match.Hosts, "*") {
			continue
		}
		for _, host := range r.Match.Hosts {
			if server := c.answersAnyHost(host); server != nil {
				all = append(all,
					fmt.Sprintf("rule %s is about the host %s, but %s answers for every host, so a request with another Host gets there without the rule: "+
						"name the hosts under origins.hosts, or leave match.hosts out", r.Name,
						host,
						server))
				break
			}
		}
	}
	return append(all, c.weaknesses()...)
}

// answersAnyHost returns a server of the host that is one of the servers of all others as well; nil
// if there is none.
func (c *Config) answersAnyHost(host string) *url.URL {
	var own, any *upstream.Config
	longest := -1
	for i := range c.Origins {
		o := &c.Origins[i]
		for _, pattern := range o.Hosts {
			if pattern == "*" {
				any = o
			}
			suffix, wild := strings.CutPrefix(pattern, "*")
			switch {
			case pattern == host:
				own, longest = o, len(host)+1
			case wild && len(suffix) > longest && strings.HasSuffix(host, suffix):
				own, longest = o, len(suffix)
			}
		}
	}
	if own == nil || any == nil {
		return nil
	}
	for _, u := range own.Servers {
		if slices.ContainsFunc(any.Servers, func(other *url.URL) bool { return *other == *u }) {
			return u
		}
	}
	return nil
}
