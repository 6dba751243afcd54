package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/config/compose"
	"sluice/edge/front"
	"sluice/edge/socket"
)

// Parse is Parse of the zero Parser.
func Parse(file string, text []byte) (*Config, error) { return Parser{}.Parse(file, text) }

// A Parser reads configuration files.
type Parser struct {
	// Nodes returns what is wrong with a list of memcached nodes, of which all but the last have
	// passed; nil takes any.
	Nodes func(names []string) error
	// Env looks up what ${NAME} stands for; nil: nothing is set.
	Env func(name string) (value string, set bool)
	// Missing is what the program was built without, by the setting that needs it. Such a setting
	// is an error.
	Missing map[string]string
	// Modules are features whose settings are read as well.
	Modules []Module
	// Others has sections that nobody reads skipped: those of features that this program has no use
	// for.
	Others bool
	// Files is told what was read, even where it is wrong; nil: nobody wants it.
	Files *compose.Files
}

// Default is Default with what modules add.
func (p Parser) Default() *Config {
	c := Default()
	c.Modules = p.Modules
	for _, m := range p.Modules {
		if m.Settings != nil {
			c.set(m.Name, m.Settings())
		}
	}
	return c
}

// Parse reads a configuration file and those that it includes. The error joins everything that is
// wrong with them, one line each in the form file:line:column: what is wrong, and the remedy.
func (p Parser) Parse(file string, text []byte) (*Config, error) {
	tree, errs := compose.Read(file, text, compose.Options{Env: p.Env, Files: p.Files})
	c, r := p.Default(), &reader{tree: tree, errs: errs, nodes: p.Nodes,
		missing: p.Missing, modules: p.Modules, others: p.Others}
	if tree.Root != nil && len(errs) == 0 {
		if r.hide(tree.Root, nil, c); len(r.errs) == 0 {
			r.config(tree.Root, c)
		}
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	c.Composed.Notes = tree.Notes
	return c, nil
}

func (r *reader) config(n ast.Node, c *Config) {
	names := make(map[string]ast.Node)
	seen := r.mapping(n, "configuration", r.sections(n, c, fields{
		"listen":         r.listeners("listen", &c.Listen),
		"listen_tls":     r.listeners("listen_tls", &c.ListenTLS),
		"listen_sockets": integer(r, "listen_sockets", 0, 256, &c.ListenSockets),
		"admin":          r.address("admin", &c.Admin),
		"tls":            func(n ast.Node) { r.certificates(n, "tls", &c.TLS) },
		"hsts":           func(n ast.Node) { r.hsts(n, &c.HSTS) },
		"admin_hosts": r.texts("admin_hosts",
			func(_ ast.Node, h string) { c.AdminHosts = append(c.AdminHosts, strings.ToLower(h)) }),
		"admin_token_file": r.orNone("admin_token_file", &c.AdminTokenFile),
		"admin_insecure":   r.boolean("admin_insecure", &c.AdminInsecure),
		"metrics_token":    r.boolean("metrics_token", &c.MetricsToken),
		"edge_id": r.text("edge_id", func(n ast.Node, text string) {
			if !plainName(text) {
				r.fail(n,
					"edge_id: %q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", text)
			} else if text != "none" {
				c.EdgeID = text
			}
		}),
		"state_dir": r.orNone("state_dir", &c.StateDir),
		"pop":       func(n ast.Node) { r.pop(n, &c.PoP) },
		"etcd":      func(n ast.Node) { r.etcd(n, &c.Etcd) },
		"table": func(n ast.Node) {
			r.mapping(n, "table", fields{
				"counters": integer(r, "table.counters", 1024, 1<<30, &c.Counters),
			})
		},
		"source": func(n ast.Node) { r.source(n, &c.Source) },
		"lists":  r.lists(&c.Lists),
		"deny":   r.group("deny", &c.Deny, &c.DenyLists, &c.DenyMarked),
		"allow":  r.group("allow", &c.Allow, &c.AllowLists, &c.AllowMarked),
		"limits": func(n ast.Node) { r.limits(n, &c.Limits) },
		"http2": func(n ast.Node) {
			r.mapping(n, "http2", fields{
				"enabled":     r.boolean("http2.enabled", &c.HTTP2.Enabled),
				"max_streams": integer(r, "http2.max_streams", 1, 1024, &c.HTTP2.MaxStreams),
				"cleartext":   r.boolean("http2.cleartext", &c.HTTP2.Cleartext),
			})
		},
		"origins": func(n ast.Node) { r.list(n, "origins", func(n ast.Node) { r.origin(n, c) }) },
		"shed":    oneOf(r, "shed", &c.Shed, Answer, Connection, Kernel),
		"check_path": r.text("check_path", func(n ast.Node, text string) {
			if _, err := ParseCheckPath(text); err != nil {
				r.fail(n, "check_path: %v", err)
			} else if text != "none" {
				c.CheckPath = text
			}
		}),
		"verdict_header": r.boolean("verdict_header", &c.VerdictHeader),
		"jwt":            func(n ast.Node) { r.jwt(n, &c.JWT) },
		"plans":          func(n ast.Node) { r.plans(n, &c.Plans) },
		"rules": func(n ast.Node) {
			r.list(n, "rules",
				func(n ast.Node) { r.rule(n, c, names) })
		},
	}))
	for _, o := range c.optional() {
		if r.missing[o.setting] != "" && o.given {
			r.absent = append(r.absent, o.setting)
		}
	}
	for _, setting := range r.absent {
		section, _, _ := strings.Cut(setting, ".")
		r.fail(seen[section],
			"%s: this program was built without %s: build it with make build, or remove the setting",
			setting, r.missing[setting])
	}
	for i, at := range r.planned { // plans may come after rules
		if at != nil && i < len(c.Rules) {
			if fault := c.planFault(&c.Rules[i]); fault != "" {
				r.fail(at, "%s", fault)
			}
		}
	}
	r.findFacts(c)
	r.findLists(c.Lists) // lists may come after what speaks of them
	if r.claim != nil && !c.JWT.Is() {
		r.fail(r.claim,
			"key: %s: nothing says which tokens are believed: give jwt: {keys_file: FILE}",
			scalar(r.claim))
	}
}

// An option is a setting whose part a program may be built without.
type option struct {
	setting string
	given   bool
}

func (c *Config) optional() []option {
	return []option{
		{"etcd.endpoints", len(c.Etcd.Endpoints) > 0},
		{"listen.redirect", slices.ContainsFunc(c.Listen,
			func(l Listener) bool { return l.Redirect != 0 })},
		{"plans.store", c.Plans.Store != ""},
	}
}

// address reads host:port, where the host may be missing.
func (r *reader) address(what string, to *string) func(ast.Node) {
	return r.checked(what, CheckAddress, to)
}

// addressOrNone reads an address, or none.
func (r *reader) addressOrNone(what string, to *string) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		if text != "none" {
			r.address(what, to)(n)
		}
	})
}

// CheckAddress reports whether one can listen on an address as it is written.
func CheckAddress(text string) error {
	if path, unix := strings.CutPrefix(text, "unix:"); unix {
		if !strings.HasPrefix(path, "/") || len(path) > socket.MaxPath {
			return fmt.Errorf("%q is not a Unix socket to listen on: want unix:/PATH of at most %d bytes", text, socket.MaxPath)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535", text)
	}
	return nil
}

func (r *reader) pop(n ast.Node, p *PoP) {
	r.mapping(n, "pop", fields{
		"name": r.checked("pop.name", CheckPoPName, &p.Name),
		"memcached": r.texts("pop.memcached", func(n ast.Node, text string) {
			list := append(p.Memcached, text)
			if r.nodes != nil {
				if err := r.nodes(list); err != nil {
					r.fail(n, "pop.memcached: %v", err)
					return
				}
			}
			p.Memcached = list
		}),
		"secret_file": r.orNone("pop.secret_file", &p.SecretFile),
		"edges":       integer(r, "pop.edges", 0, counter.MaxEdges, &p.Edges),
		"wait":        r.duration("pop.wait", 100*time.Microsecond, time.Second, true, &p.Wait),

		"peers": func(n ast.Node) {
			r.list(n, "pop.peers",
				func(n ast.Node) { r.peer(n, p) })
		},
		"peers_listen":      r.addressOrNone("pop.peers_listen", &p.PeersListen),
		"peers_secret_file": r.orNone("pop.peers_secret_file", &p.PeersSecretFile),
		"peers_mode": func(n ast.Node) {
			mode := "enforce"
			oneOf(r, "pop.peers_mode", &mode, "enforce", "off")(n)
			p.PeersOff = mode == "off"
		},
	})
}

// CheckPoPName reports whether a PoP may have this name.
func CheckPoPName(name string) error {
	if !plainName(name) {
		return fmt.Errorf("%q is not a name for a PoP: want 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	return nil
}

func (r *reader) source(n ast.Node, s *address.Config) {
	r.mapping(n, "source", fields{
		"ipv4_prefix":     integer(r, "source.ipv4_prefix", 8, 32, &s.IPv4Prefix),
		"ipv6_prefix":     integer(r, "source.ipv6_prefix", 16, 128, &s.IPv6Prefix),
		"trust":           listOf(r, "source.trust", address.ParsePrefix, &s.Trust),
		"trust_everybody": r.boolean("source.trust_everybody", &s.TrustEverybody),
		"header": r.text("source.header", func(n ast.Node, text string) {
			if !address.IsSourceHeader(text) {
				r.fail(n,
					"source.header: %q cannot tell the address of a client: want X-Forwarded-For, Forwarded, or a header that holds one address, such as X-Real-IP or CF-Connecting-IP", text)
				return
			}
			s.Header = text
		}),
		"proxy_protocol": r.boolean("source.proxy_protocol", &s.ProxyProtocol),
	})
}

func (r *reader) limits(n ast.Node, l *front.Limits) {
	r.mapping(n, "limits", fields{
		"connections": integer(r, "limits.connections", 1, 10_000_000, &l.Connections),
		"connections_per_source": integer(r, "limits.connections_per_source", 1, 10_000_000,
			&l.PerSource),
		"memory": r.size("limits.memory", 16<<20, 1<<50, true, &l.Memory),
		"header_bytes": r.size("limits.header_bytes", 1<<10, 1<<20, false,
			&l.HeaderBytes),
		"header_lines": integer(r, "limits.header_lines", 16, 1024, &l.HeaderLines),
		"body_bytes":   r.size("limits.body_bytes", 1, 1<<50, true, &l.BodyBytes),
		"body_rate":    r.size("limits.body_rate", 1, 1<<30, true, &l.BodyRate),
		"answer_rate":  r.size("limits.answer_rate", 1, 1<<30, true, &l.AnswerRate),
		"header_timeout": r.duration("limits.header_timeout", 100*time.Millisecond,
			time.Hour, false, &l.HeaderTimeout),
		"idle_timeout": r.duration("limits.idle_timeout", 100*time.Millisecond,
			24*time.Hour, false, &l.IdleTimeout),
		"tunnel_timeout": r.duration("limits.tunnel_timeout", time.Second, 24*time.Hour,
			false, &l.TunnelTimeout),
	})
}

var plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`).MatchString
