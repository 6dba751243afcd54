package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/screen"
	"sluice/edge/socket"
)

// Parse is Parse of the zero Parser.
func Parse(file string, text []byte) (*Config, error) { return Parser{}.Parse(file, text) }

// A Parser reads configuration files.
type Parser struct {
	// Nodes says what is wrong with a list of memcached nodes, of which all but the last have passed; nil takes any.
	Nodes func(names []string) error
}

// Parse reads a configuration file. The error joins everything that is wrong with it, one line each in the form
// file:line:column: what is wrong, and the remedy.
func (p Parser) Parse(file string, text []byte) (*Config, error) {
	c, r := Default(), &reader{file: file, nodes: p.Nodes}
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	if root := r.parse(text); root != nil && len(r.errs) == 0 {
		r.config(root, c)
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return c, nil
}

func (r *reader) config(n ast.Node, c *Config) {
	names := make(map[string]ast.Node)
	r.mapping(n, "configuration", fields{
		"listen":     r.address("listen", &c.Listen),
		"listen_tls": r.addressOrNone("listen_tls", &c.ListenTLS),
		"admin":      r.address("admin", &c.Admin),
		"tls": func(n ast.Node) {
			r.mapping(n, "tls", fields{
				"certificate": r.orNone("tls.certificate", &c.TLS.Certificate),
				"key":         r.orNone("tls.key", &c.TLS.Key),
				"folder":      r.orNone("tls.folder", &c.TLS.Folder),
			})
		},
		"admin_hosts":      r.texts("admin_hosts", func(_ ast.Node, h string) { c.AdminHosts = append(c.AdminHosts, strings.ToLower(h)) }),
		"admin_token_file": r.orNone("admin_token_file", &c.AdminTokenFile),
		"admin_insecure":   r.boolean("admin_insecure", &c.AdminInsecure),
		"metrics_token":    r.boolean("metrics_token", &c.MetricsToken),
		"edge_id": r.text("edge_id", func(n ast.Node, text string) {
			if !plainName(text) {
				r.fail(n, "edge_id: %q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", text)
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
		"source":  func(n ast.Node) { r.source(n, &c.Source) },
		"deny":    listOf(r, "deny", parsePrefix, &c.Deny),
		"allow":   listOf(r, "allow", parsePrefix, &c.Allow),
		"limits":  func(n ast.Node) { r.limits(n, &c.Limits) },
		"origins": func(n ast.Node) { r.list(n, "origins", func(n ast.Node) { r.origin(n, c) }) },
		"access_log": func(n ast.Node) {
			r.mapping(n, "access_log", fields{
				"file":    r.orNone("access_log.file", &c.AccessLog.File),
				"format":  oneOf(r, "access_log.format", &c.AccessLog.Format, "combined", "json"),
				"refused": integer(r, "access_log.refused", 1, 1_000_000, &c.AccessLog.Refused),
			})
		},
		"shed": func(n ast.Node) {
			shed := "answer"
			oneOf(r, "shed", &shed, "answer", "connection")(n)
			c.Shed = shed == "connection"
		},
		"check_path": r.text("check_path", func(n ast.Node, text string) {
			if _, err := ParseCheckPath(text); err != nil {
				r.fail(n, "check_path: %v", err)
			} else if text != "none" {
				c.CheckPath = text
			}
		}),
		"verdict_header":     r.boolean("verdict_header", &c.VerdictHeader),
		"rate_limit_service": func(n ast.Node) { r.rateLimitService(n, &c.RateLimitService) },
		"jwt":                func(n ast.Node) { r.jwt(n, &c.JWT) },
		"plans":              func(n ast.Node) { r.plans(n, &c.Plans) },
		"rules":              func(n ast.Node) { r.list(n, "rules", func(n ast.Node) { r.rule(n, c, names) }) },
	})
	for i, at := range r.planned { // plans may come after rules
		if at != nil && i < len(c.Rules) {
			if fault := c.planFault(&c.Rules[i]); fault != "" {
				r.fail(at, "%s", fault)
			}
		}
	}
	if r.claim != nil && !c.JWT.Is() {
		r.fail(r.claim, "key: %s: nothing says which tokens are believed: give jwt: {keys_file: FILE}", scalar(r.claim))
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

		"peers":             func(n ast.Node) { r.list(n, "pop.peers", func(n ast.Node) { r.peer(n, p) }) },
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
		"trust":           listOf(r, "source.trust", parsePrefix, &s.Trust),
		"trust_everybody": r.boolean("source.trust_everybody", &s.TrustEverybody),
		"header": r.text("source.header", func(n ast.Node, text string) {
			if !address.IsSourceHeader(text) {
				r.fail(n, "source.header: %q cannot tell the address of a client: want X-Forwarded-For, Forwarded, or a header that holds one address, such as X-Real-IP or CF-Connecting-IP", text)
				return
			}
			s.Header = text
		}),
		"proxy_protocol": r.boolean("source.proxy_protocol", &s.ProxyProtocol),
	})
}

func (r *reader) limits(n ast.Node, l *screen.Limits) {
	r.mapping(n, "limits", fields{
		"connections":            integer(r, "limits.connections", 1, 10_000_000, &l.Connections),
		"connections_per_source": integer(r, "limits.connections_per_source", 1, 10_000_000, &l.PerSource),
		"memory":                 r.size("limits.memory", 16<<20, 1<<50, true, &l.Memory),
		"header_bytes":           r.size("limits.header_bytes", 1<<10, 1<<20, false, &l.HeaderBytes),
		"header_lines":           integer(r, "limits.header_lines", 16, 1024, &l.HeaderLines),
		"body_bytes":             r.size("limits.body_bytes", 1, 1<<50, true, &l.BodyBytes),
		"body_rate":              r.size("limits.body_rate", 1, 1<<30, true, &l.BodyRate),
		"answer_rate":            r.size("limits.answer_rate", 1, 1<<30, true, &l.AnswerRate),
		"header_timeout":         r.duration("limits.header_timeout", 100*time.Millisecond, time.Hour, false, &l.HeaderTimeout),
		"idle_timeout":           r.duration("limits.idle_timeout", 100*time.Millisecond, 24*time.Hour, false, &l.IdleTimeout),
		"tunnel_timeout":         r.duration("limits.tunnel_timeout", time.Second, 24*time.Hour, false, &l.TunnelTimeout),
	})
}

func (r *reader) rule(n ast.Node, c *Config, names map[string]ast.Node) {
	rule := rules.Default("", 0)
	rule.Key = nil
	var window, timeout = time.Duration(rule.Window), time.Duration(rule.MitigationTimeout)
	seen := r.mapping(n, "rule", fields{
		"name": r.text("rule name", func(n ast.Node, text string) {
			switch other := names[text]; {
			case !plainName(text):
				r.fail(n, "rule name: %q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", text)
			case strings.Trim(text, ".") == "":
				r.fail(n, "rule name: %q is a step in a path, so the API could not name the rule: choose another", text)
			case other != nil:
				line, _ := place(other)
				r.fail(n, "rule name: %s is the name of the rule at line %d already: choose another", text, line)
			default:
				names[text] = n
				rule.Name = text
			}
		}),
		"match":  func(n ast.Node) { r.match(n, &rule.Match) },
		"key":    r.key(&rule.Key),
		"limit":  integer(r, "limit", 1, algorithm.MaxLimit, &rule.Limit),
		"window": r.duration("window", algorithm.MinWindow, algorithm.MaxWindow, false, &window),
		"sub_windows": func(n ast.Node) {
			integer(r, "sub_windows", 1, 12, &rule.SubWindows)(n)
			if !slices.Contains([]int{1, 2, 4, 8, 12}, rule.SubWindows) {
				r.fail(n, "sub_windows: %d is not possible: want 1, 2, 4, 8 or 12", rule.SubWindows)
			}
		},
		"estimate":           r.estimate("estimate", &rule.Estimate),
		"mitigation_timeout": r.duration("mitigation_timeout", time.Millisecond, 24*time.Hour, true, &timeout),
		"escalate": func(n ast.Node) {
			r.list(n, "escalate", func(n ast.Node) {
				var t time.Duration
				r.duration("escalate", time.Second, 24*time.Hour, false, &t)(n)
				if len(rule.Escalate) == maxEscalate {
					r.fail(n, "escalate: more than %d timeouts: leave out some", maxEscalate)
				}
				rule.Escalate = append(rule.Escalate, rules.Duration(t))
			})
		},
		"escalate_within":  r.duration("escalate_within", time.Second, 24*time.Hour, false, (*time.Duration)(&rule.EscalateWithin)),
		"mode":             oneOf(r, "mode", &rule.Mode, rules.Enforce, rules.Shadow, rules.Off),
		"first_sight":      oneOf(r, "first_sight", &rule.FirstSight, limiter.Go, limiter.Wait),
		"on_store_failure": oneOf(r, "on_store_failure", &rule.OnStoreFailure, limiter.Local, limiter.Open, limiter.Closed),
		"count":            func(n ast.Node) { r.count(n, &rule.Count) },
		"action":           oneOf(r, "action", &rule.Action, rules.Refuse, rules.Close, rules.Redirect, rules.Tag, rules.Delay),
		"response":         func(n ast.Node) { r.response(n, &rule.Response) },
		"candidate":        func(n ast.Node) { r.candidate(n, &rule.Candidate) },
		"share":            integer(r, "share", 1, 100, &rule.Share),
		"plans":            r.planLimits(&rule.Plans),
		"windows":          r.windows(&rule.Windows),
		"prefixes":         r.ruleWidths(&rule.Prefixes),
		"cost":             func(n ast.Node) { r.cost(n, &rule.Cost) },
		"tag":              func(n ast.Node) { r.tag(n, &rule.Tag) },
		"algorithm":        oneOf(r, "algorithm", &rule.Algorithm, rules.Algorithms...),
		"burst":            integer(r, "burst", 0, algorithm.MaxLimit, &rule.Burst),
		"check":            oneOf(r, "check", &rule.Check, limiter.Async, limiter.Sync),
		"priority":         oneOf(r, "priority", &rule.Priority, rules.DefaultPriority, rules.Critical, rules.Sheddable),
		"queue":            r.duration("queue", time.Millisecond, maxQueue, true, (*time.Duration)(&rule.Queue)),
		"concurrency":      integer(r, "concurrency", 0, rules.MaxConcurrency, &rule.Concurrency),
	})
	if seen == nil {
		return
	}
	if seen["name"] == nil {
		r.fail(n, "rule: no name: every rule needs a name and a limit")
	}
	if seen["limit"] == nil && !rule.MayLackLimit() {
		r.fail(n, "rule: no limit: every rule needs a name and a limit, or a concurrency, a priority or a queue in its place")
	}
	if rule.Key == nil {
		rule.Key = []string{"source"}
	}
	rule.Window, rule.MitigationTimeout = rules.Duration(window), rules.Duration(timeout)
	r.answer(n, seen, &rule)
	r.tags(n, seen, &rule)
	if at := seen["cost"]; at != nil && rule.Cost.Units > rule.Limit && rule.Limit > 0 {
		r.fail(at, "cost: %d is more than the limit of %d: no request would ever pass", rule.Cost.Units, rule.Limit)
	}
	if rule.Match.Descriptors != nil {
		r.described(n, seen, &rule, c.Rules)
	}
	if at := seen["escalate"]; at != nil {
		r.escalate(at, &rule)
	}
	if rule.Limit > 0 { // else that is what is wrong
		if err := rule.CheckWindows(); err != nil {
			r.fail(seen["windows"], "%v", err)
		} else if err := rule.CheckPrefixes(); err != nil {
			r.fail(seen["prefixes"], "%v", err)
		}
		if field, err := rule.CheckAlgorithm(); err != nil {
			r.fail(cmp.Or(seen[field], n), "%s: %v", field, err)
		}
	}
	if at := seen["first_sight"]; rule.Check == limiter.Sync && rule.FirstSight == limiter.Wait {
		r.fail(at, "first_sight: check: sync waits for the tier with every request, so wait says nothing more: leave first_sight out")
	}
	if field, err := rule.CheckConcurrency(); err != nil {
		r.fail(cmp.Or(seen[field], seen["concurrency"], n), "%s: %v", field, err)
	}
	if seen["limit"] == nil && rule.MayLackLimit() {
		r.limitless(n, seen, rule)
	}
	c.Rules = append(c.Rules, rule)
	r.planned = append(r.planned, cmp.Or(seen["plans"], seen["match"], n))
}

// maxQueue is how long a request may wait for a place at an origin: clients and what stands before them give up after a few seconds.
const maxQueue = 10 * time.Second

// limitless says what is wrong with a rule that has no limit: what says how to count, and what becomes of who is over.
func (r *reader) limitless(n ast.Node, seen map[string]ast.Node, rule rules.Config) {
	known := []string{"name", "match", "key", "mode", "share", "priority", "queue"}
	if rule.Concurrency > 0 {
		known = append(known, "concurrency", "action", "response", "on_store_failure")
	} else if rule.Mode == rules.Shadow {
		r.fail(seen["mode"], "mode: a shadow refuses nobody, so its priority and its queue say nothing, and it has no limit: say enforce or off")
	}
	if rule.Estimate != nil && *rule.Estimate == algorithm.Nearest {
		known = append(known, "estimate") // as a rule in force is shown
	}
	set := Fields(rule)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if at := seen[name]; at != nil && !slices.Contains(known, name) {
			r.fail(at, "%s: the rule has no limit, so this says nothing: give it a limit, or remove %s", name, name)
		}
	}
}

// windows reads the limits that a rule has in other windows.
func (r *reader) windows(to *[]rules.Window) func(ast.Node) {
	return func(n ast.Node) {
		r.list(n, "windows", func(n ast.Node) {
			var w rules.Window
			seen := r.mapping(n, "windows", fields{
				"limit":  integer(r, "windows.limit", 1, algorithm.MaxLimit, &w.Limit),
				"window": r.duration("windows.window", algorithm.MinWindow, algorithm.MaxWindow, false, (*time.Duration)(&w.Window)),
			})
			switch {
			case seen == nil:
			case seen["limit"] == nil || seen["window"] == nil:
				r.fail(n, "windows: want a limit and a window in each of them, such as {limit: 10, window: 1s}")
			case w.Limit > 0 && w.Window > 0: // else that was said
				*to = append(*to, w)
			}
		})
	}
}

// ruleWidths reads the prefixes in which a rule counts addresses: numbers, or numbers with a limit of their own.
func (r *reader) ruleWidths(to *[]rules.Prefix) func(ast.Node) {
	return func(n ast.Node) {
		r.list(n, "prefixes", func(n ast.Node) {
			var p rules.Prefix
			width := integer(r, "prefixes", 8, 128, &p.Prefix)
			switch r.resolve(n).(type) {
			case *ast.MappingNode, *ast.MappingValueNode:
				seen := r.mapping(n, "prefixes", fields{
					"prefix": width,
					"limit":  integer(r, "prefixes.limit", 1, algorithm.MaxLimit, &p.Limit),
				})
				if seen == nil || seen["prefix"] == nil || seen["limit"] == nil {
					r.fail(n, "prefixes: want a number, such as 24, or one with a limit: {prefix: 24, limit: 1000}")
					return
				}
			default:
				width(n)
			}
			if p.Prefix > 0 { // else that was said
				*to = append(*to, p)
			}
		})
	}
}

// maxEscalate is how many timeouts a rule may have for who comes back.
const maxEscalate = 16

// escalate says what is wrong with the timeouts for who comes back.
func (r *reader) escalate(n ast.Node, rule *rules.Config) {
	before := rule.MitigationTimeout
	if before == 0 && len(rule.Escalate) > 0 {
		r.fail(n, "escalate: a rule with mitigation_timeout: 0 blocks nobody, so no block can be longer: give it a mitigation_timeout")
		return
	}
	for _, t := range rule.Escalate {
		if t <= before {
			r.fail(n, "escalate: %v is not longer than %v before it (mitigation_timeout goes first): want times that ascend", t, before)
			return
		}
		before = t
	}
}

func plainName(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}

func (r *reader) match(n ast.Node, m *rules.Match) {
	f := r.matchFields("match", m)
	f["not"] = func(n ast.Node) {
		m.Not = new(rules.Match)
		if r.mapping(n, "match.not", r.matchFields("match.not", m.Not)); m.Not.Path == "*" || m.Not.Path == "/*" || slices.Contains(m.Not.Hosts, "*") {
			r.fail(n, "match.not: it leaves everything out, so the rule is about nothing: say mode: off")
		} else if strings.HasPrefix(m.Not.Path, "~") {
			r.fail(n, "match.not: path: %q is a regular expression: want /exact or /prefix/*", m.Not.Path[1:])
		} else if m.Not.Everything() {
			m.Not = nil // it says nothing
		}
	}
	f["descriptors"] = func(n ast.Node) { r.descriptors(n, m) }
	r.mapping(n, "match", f)
}

func (r *reader) matchFields(what string, m *rules.Match) fields {
	return fields{
		"hosts": listOf(r, what+".hosts", message.ParseHostPattern, &m.Hosts),
		"path": r.text(what+".path", func(n ast.Node, text string) {
			if err := m.SetPath(text); err != nil {
				r.fail(n, "%s.path: %v", what, err)
			}
		}),
		"methods": r.texts(what+".methods", func(n ast.Node, text string) {
			if !message.IsToken([]byte(text)) || strings.ToUpper(text) != text {
				r.fail(n, "%s.methods: %q is not a method: want a name in capitals, such as POST", what, text)
				return
			}
			m.Methods = append(m.Methods, text)
		}),
		"sources": listOf(r, what+".sources", parsePrefix, &m.Sources),
		"headers": r.values(what+".headers", &m.Headers, strings.ToLower, rules.CheckHeader),
		"query":   r.values(what+".query", &m.Query, strings.Clone, rules.CheckQuery),
		"cookies": r.values(what+".cookies", &m.Cookies, strings.Clone, rules.CheckCookie),
		"plans":   r.planNames(what+".plans", &m.Plans),
	}
}

// values reads patterns of values by name, in the form that names have.
func (r *reader) values(what string, to *map[string]string, form func(string) string, check func(name, pattern string) error) func(ast.Node) {
	return r.pairs(what, func(at, n ast.Node, text string) {
		name := form(scalar(at))
		if _, twice := (*to)[name]; twice {
			r.fail(at, "%s: %s is there twice: remove one", what, name)
		} else if err := check(name, text); err != nil {
			r.fail(n, "%s: %v", what, err)
		} else {
			if *to == nil {
				*to = make(map[string]string)
			}
			(*to)[name] = text
		}
	})
}

// key reads one part of a key or a list of them.
func (r *reader) key(to *[]string) func(ast.Node) {
	one := func(n ast.Node, text string) {
		if _, err := key.Parse(text); err != nil {
			r.fail(n, "key: %v", err)
			return
		}
		if slices.Contains(*to, text) {
			r.fail(n, "key: %s is there twice: remove one", text)
			return
		}
		if strings.HasPrefix(text, "jwt:") && r.claim == nil {
			r.claim = n
		}
		*to = append(*to, text)
	}
	return func(n ast.Node) {
		if s, ok := r.resolve(n).(*ast.SequenceNode); ok {
			if len(s.Values) == 0 {
				r.fail(n, "key: an empty list counts nobody: want "+key.Forms)
			}
			r.texts("key", one)(n)
			return
		}
		r.text("key", one)(n)
	}
}

func (r *reader) count(n ast.Node, c *rules.Count) {
	r.mapping(n, "count", fields{
		"statuses": func(n ast.Node) {
			r.list(n, "count.statuses", func(n ast.Node) {
				c.Statuses = append(c.Statuses, 0)
				integer(r, "count.statuses", 200, 599, &c.Statuses[len(c.Statuses)-1])(n)
			})
		},
		"refused": r.boolean("count.refused", &c.Refused),
	})
	if c.Refused && len(c.Statuses) > 0 {
		r.fail(n, "count: statuses and refused together: a refused request has no status of the origin; keep one")
	}
}

func (r *reader) candidate(n ast.Node, c *rules.Candidate) {
	r.mapping(n, "candidate", fields{
		"limit":    integer(r, "candidate.limit", 1, algorithm.MaxLimit, &c.Limit),
		"estimate": r.estimate("candidate.estimate", &c.Estimate),
		"mitigation_timeout": func(n ast.Node) {
			c.MitigationTimeout = new(rules.Duration)
			r.duration("candidate.mitigation_timeout", time.Millisecond, 24*time.Hour, true, (*time.Duration)(c.MitigationTimeout))(n)
		},
	})
}

func (r *reader) estimate(what string, to **algorithm.Estimate) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		e, err := algorithm.ParseEstimate(text)
		if err != nil {
			r.fail(n, "%s: %q is not possible: want nearest or lower", what, text)
		}
		*to = &e
	})
}

func (r *reader) response(n ast.Node, p *rules.Response) {
	r.mapping(n, "response", fields{
		"status":       integer(r, "response.status", 300, 599, &p.Status),
		"content_type": r.headerValue("response.content_type", &p.ContentType),
		"body":         r.str("response.body", &p.Body),
		"location": r.text("response.location", func(n ast.Node, text string) {
			if text == "none" {
				return
			}
			if err := rules.CheckLocation(text); err != nil {
				r.fail(n, "response.location: %v", err)
			}
			p.Location = text
		}),
		"bodies": func(n ast.Node) {
			r.list(n, "response.bodies", func(n ast.Node) {
				var b rules.Body
				r.mapping(n, "response.bodies", fields{
					"content_type": r.headerValue("response.bodies.content_type", &b.ContentType),
					"body":         r.str("response.bodies.body", &b.Body),
				})
				switch {
				case b.ContentType == "" || b.Body == "":
					r.fail(n, "response.bodies: want a content_type and a body in each of them")
				case len(p.Bodies) == maxBodies:
					r.fail(n, "response.bodies: more than %d: leave out some", maxBodies)
				}
				p.Bodies = append(p.Bodies, b)
			})
		},
		"jitter": r.text("response.jitter", func(n ast.Node, text string) {
			number, ok := strings.CutSuffix(text, "%")
			v, err := strconv.ParseUint(number, 10, 8)
			if !ok || err != nil || v > 100 {
				r.fail(n, "response.jitter: %q is not possible: want 0%% to 100%%", text)
			}
			p.Jitter = rules.Percent(v)
		}),
	})
}

// maxBodies is how many bodies a response may have beside the first: a client's Accept is read for each.
const maxBodies = 8

// answer says what is wrong with a rule's response for its action. A redirection whose status is not said has 302.
func (r *reader) answer(n ast.Node, seen map[string]ast.Node, rule *rules.Config) {
	if seen["response"] != nil {
		n = seen["response"]
	}
	p := &rule.Response
	if rule.Action == rules.Redirect && p.Status == rules.Default("", 0).Response.Status {
		p.Status = 302
	}
	switch {
	case rule.Action != rules.Redirect && p.Location != "":
		r.fail(n, "response.location: only action: redirect sends clients anywhere: add it, or remove location")
	case rule.Action != rules.Redirect && p.Status < 400:
		r.fail(n, "response.status: %d is out of range: want 400 to 599", p.Status)
	case rule.Action != rules.Redirect:
	case p.Location == "":
		r.fail(n, "action: redirect needs a place to send clients to: add response: {location: https://…}")
	case p.Status != 302 && p.Status != 303 && p.Status != 307:
		r.fail(n, "response.status: %d is no redirection for a while: want 302, 303 or 307", p.Status)
	case p.Location[0] == '/' && rule.Match.About(pathOf(p.Location)):
		r.fail(n, "response.location: the rule is about %s as well, so clients would be sent there for ever: want another host, or a path that the rule's match leaves out", pathOf(p.Location))
	}
}

// pathOf is the path of a location without a host.
func pathOf(location string) string {
	path, _, _ := strings.Cut(location, "#")
	path, _, _ = strings.Cut(path, "?")
	canonical, _ := message.AppendPath(nil, []byte(path))
	return string(canonical)
}

func (r *reader) headerValue(what string, to *string) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		for _, b := range []byte(text) {
			if b < 0x20 || b == 0x7f {
				r.fail(n, "%s: %q has bytes that no header may have", what, text)
				return
			}
		}
		*to = text
	})
}
