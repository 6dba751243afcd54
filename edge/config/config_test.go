package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/edge/rules"
	"sluice/edge/rules/match"
)

func TestConfigErrors(t *testing.T) {
	f := func(yaml, want string) {
		t.Helper()
		_, err := Parse("f.yaml", []byte(yaml))
		if err == nil {
			t.Errorf("%q was accepted, want %s", yaml, want)
		} else if got := err.Error(); got != want {
			t.Errorf("%q\n got %s\nwant %s", yaml, got, want)
		}
	}
	const rule = "rules:\n- name: a\n  limit: 1\n"
	for _, field := range []string{"headers", "query", "cookies"} {
		for what, indent := range map[string]string{"match": "{%s: {a: '~^x'}}", "match.not": "{not: {%s: {a: '~^x'}}}"} {
			match := fmt.Sprintf(indent, field)
			f(rule+"  match: "+match+"\n", fmt.Sprintf("f.yaml:4:%d: %s.%s: a: \"~^x\": regular expressions are for match.path only: "+
				"want the value itself, the beginning of it with * behind it, such as \"curl/*\", or \"*\" for any", strings.Index(match, "'")+10, what, field))
		}
	}
	f("listn: x", "f.yaml:1:1: configuration: unknown field listn (did you mean listen?): want access_log, acme, admin, admin_hosts, admin_insecure, admin_token_file, allow, audit_one_in, check_path, deny, edge_id, etcd, geo, hsts, http2, jwt, limit_api, limits, listen, listen_sockets, listen_tls, lists, metrics_token, origins, pages, plans, pop, rate_limit_service, rules, shed, source, state_dir, table, tls, tracing, verdict_header or wall")
	f("edge_id: a b", `f.yaml:1:10: edge_id: "a b" is not possible: want 1 to 64 letters, digits, dots, dashes or underscores`)
	f("pop: {edges: 65}", "f.yaml:1:14: pop.edges: 65 is out of range: want 0 to 64")
	f("http2: {max_streams: 0}", "f.yaml:1:22: http2.max_streams: 0 is out of range: want 1 to 1024")
	f("listen: 80", `f.yaml:1:9: listen: "80" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535`)
	f("listen: \":70000\"", `f.yaml:1:9: listen: ":70000" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535`)
	f("listen:\n", "f.yaml:1:9: listen: want a value, not nothing")
	f("listen: []", "f.yaml:1:9: listen: the list is empty: give an address, or none")
	f("listen:\n- ':80'\n- ':80'\n", "f.yaml:3:3: listen: :80 is there twice: remove one")
	f("listen:\n- ':80'\n- {address: ':81', redirct: true}\n", "f.yaml:3:20: listen: unknown field redirct (did you mean redirect?): want address, proxy_protocol or redirect")
	f("listen:\n- redirect: true\n", "f.yaml:2:3: listen: an entry without address: give address, such as \":8080\"")
	f("listen: {address: ':80', redirect: https}", "f.yaml:1:36: listen.redirect: want true or false, or the port of the https address, from 1 to 65535")
	f("listen: {address: ':80', redirect: 70000}", "f.yaml:1:36: listen.redirect: 70000 is out of range: want 1 to 65535")
	f("listen: {address: 80}", `f.yaml:1:19: listen.address: "80" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535`)
	f("listen_tls: {address: ':443', redirect: true}", "f.yaml:1:31: listen_tls: unknown field redirect: want address, proxy_protocol or tls")
	f("listen_tls: [{address: ':443', tls: {certificate: /a}}]", "f.yaml:1:14: listen_tls.tls: certificate and key belong together: give both")
	f("hsts: {max_age: 1y}", `f.yaml:1:17: hsts.max_age: "1y" is not a time with a unit, such as 30s or 5m: want 0, or 1s to 87600h`)
	f("rules: [{name: a, limit: 1, key: [header:x-a]}]", "f.yaml:1:35: key: want a value, not fields: within braces and brackets one with a colon stands in quotes")
	f("- a", "f.yaml:1:1: configuration: want fields (name: value), not a list")
	f("rules: 5", "f.yaml:1:8: rules: want a list, not a single value")
	f(rule+"  limit: 2\n", `f.yaml:4:3: mapping key "limit" already defined at [3:3]`)
	f("rules:\n- name: a\n  limit: 0\n", "f.yaml:3:10: limit: 0 is out of range: want 1 to 1000000000")
	f("rules:\n- name: a\n  limit: -1\n", "f.yaml:3:10: limit: -1 is out of range: want 1 to 1000000000")
	f("rules:\n- name: a\n  limit: 1000000000000000000\n", "f.yaml:3:10: limit: 1000000000000000000 is out of range: want 1 to 1000000000")
	f("rules:\n- name: a\n  limit: 99999999999999999999999\n", "f.yaml:3:10: limit: 99999999999999999999999 is not a whole number: want 1 to 1000000000")
	f("rules:\n- name: a\n  limit: 1.5\n", "f.yaml:3:10: limit: 1.5 is not a whole number: want 1 to 1000000000")
	f("rules:\n- name: a\n  limit: many\n", "f.yaml:3:10: limit: many is not a whole number: want 1 to 1000000000")
	f("rules:\n- name: a\n", "f.yaml:2:3: rule: no limit: every rule needs a name and a limit, or instead a concurrency, a priority or a queue")
	f(rule+"  priority: high\n", `f.yaml:4:13: priority: "high" is not possible: want default or critical or sheddable`)
	f(rule+"  queue: 1m\n", "f.yaml:4:10: queue: 1m is out of range: want 0, or 1ms to 10s")
	f("rules:\n- name: a\n  queue: 0\n", "f.yaml:2:3: rule: no limit: every rule needs a name and a limit, or instead a concurrency, a priority or a queue")
	f("rules:\n- name: a\n  priority: critical\n  window: 10s\n", "f.yaml:4:3: window: the rule has no limit, so this has no effect: give it a limit, or remove window")
	f("rules:\n- name: a\n  priority: critical\n  mode: shadow\n", "f.yaml:4:3: mode: a shadow refuses no request, so its priority and its queue have no effect, and it has no limit: take enforce or off")
	f("origins: [{servers: ['http://a'], shedding: {max: 5, min: 6}}]", "f.yaml:1:45: origins.shedding: min is 6, above max, which is 5: no limit lies between them")
	f("origins: [{servers: ['http://a'], shedding: {target: 5}}]", "f.yaml:1:46: origins.shedding: unknown field target: want max or min")
	f("rules:\n- limit: 1\n", "f.yaml:2:3: rule: no name: every rule needs a name and a limit")
	f(rule+"- name: a\n  limit: 2\n", "f.yaml:4:9: rule name: a is the name of the rule at line 2 already: choose another")
	f("rules:\n- name: ..\n  limit: 1\n", `f.yaml:2:9: rule name: ".." is a step in a path, so the API could not name the rule: choose another`)
	f("rules:\n- name: a b\n  limit: 1\n", `f.yaml:2:9: rule name: "a b" is not possible: want 1 to 64 letters, digits, dots, dashes or underscores`)
	f(rule+"  window: 500ms\n", "f.yaml:4:11: window: 500ms is out of range: want 1s to 24h")
	f(rule+"  window: 25h\n", "f.yaml:4:11: window: 25h is out of range: want 1s to 24h")
	f(rule+"  window: 60\n", `f.yaml:4:11: window: "60" is not a time with a unit, such as 30s or 5m: want 1s to 24h`)
	f(rule+"  window: 0\n", "f.yaml:4:11: window: 0 is out of range: want 1s to 24h")
	f(rule+"  mitigation_timeout: 25h\n", "f.yaml:4:23: mitigation_timeout: 25h is out of range: want 0, or 1ms to 24h")
	f(rule+"  sub_windows: 3\n", "f.yaml:4:16: sub_windows: 3 is not possible: want 1, 2, 4, 8 or 12")
	f(rule+"  estimate: best\n", `f.yaml:4:13: estimate: "best" is not possible: want nearest or lower`)
	f(rule+"  mode: dry\n", `f.yaml:4:9: mode: "dry" is not possible: want enforce or shadow or off`)
	f(rule+"  key: ip\n", `f.yaml:4:8: key: "ip" is not possible: want source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS, jwt:CLAIM, country, asn or global`)
	f(rule+"  key: jwt:sub\n", "f.yaml:4:8: key: jwt:sub: nothing says which tokens are believed: give jwt: {keys_file: FILE}")
	f(rule+"  key: \"jwt:a b\"\n", `f.yaml:4:8: key: "jwt:a b" is not possible: want source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS, jwt:CLAIM, country, asn or global`)
	f("jwt: {issuer: a}\n", "f.yaml:1:6: jwt: no keys_file: give the file with the keys that sign the tokens")
	f("jwt: {keys_file: a, algorithms: [none]}\n", "f.yaml:1:34: jwt.algorithms: none would believe every token: remove it")
	f("jwt: {keys_file: a, algorithms: [ES256, HS256]}\n", "f.yaml:1:41: jwt.algorithms: ES256 and HS256 together: anyone who knows a public key could sign with it as if it were the secret: keep one kind")
	f("jwt: {keys_file: a, algorithms: [ES257]}\n", `f.yaml:1:34: jwt.algorithms: "ES257" is not possible: want some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384, HS512`)
	f("jwt: {keys_file: a, algorithms: []}\n", `f.yaml:1:21: jwt.algorithms: an empty list believes no token: want some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384, HS512`)
	f("jwt: {keys_file: a, header: x-a, cookie: b}\n", "f.yaml:1:6: jwt: header and cookie together: the token is in one of them: keep one")
	f("jwt: {keys_file: a, header: Host}\n", `f.yaml:1:21: jwt.header: "host" cannot hold a token: want Authorization, or a header of your own`)
	f("jwt: {keys_file: a, leeway: 1h}\n", "f.yaml:1:29: jwt.leeway: 1h is out of range: want 0, or 1s to 10m")
	f(rule+"  cost: 2\n", "f.yaml:4:3: cost: 2 is more than the limit of 1: no request would ever pass")
	f(rule+"  cost: 0\n", "f.yaml:4:9: cost: 0 is out of range: want 1 to 1000000")
	f(rule+"  cost: {}\n", "f.yaml:4:9: cost: want a number, or one of {bytes: 10KiB} and {header: NAME}")
	f(rule+"  cost: {bytes: 1KiB, header: X-Cost}\n", "f.yaml:4:9: cost: want a number, or one of {bytes: 10KiB} and {header: NAME}")
	f(rule+"  cost: {bytes: 0}\n", "f.yaml:4:17: cost.bytes: 0 is out of range: want 1 to 1099511627776 bytes")
	f(rule+"  cost: {header: Content-Length}\n", `f.yaml:4:18: cost.header: "Content-Length" cannot say what a request costs: want a header of the origin's own, such as X-Request-Cost, which clients do not get to see`)
	f(rule+"  tag: {value: a}\n", "f.yaml:4:3: tag: only action: tag sends origins anything: add it, or remove tag")
	f(rule+"  action: tag\n  response: {status: 503}\n", "f.yaml:5:3: response: action: tag refuses no request, so no client gets it: remove it, or choose another action")
	f(rule+"  action: tag\n  on_store_failure: closed\n", "f.yaml:5:3: on_store_failure: closed refuses, and action: tag refuses no request: want local or open, or another action")
	f(rule+"  action: tag\n  tag: {header: Authorization}\n", `f.yaml:5:17: tag.header: "Authorization" cannot tag a request: want a header of your own, such as X-Sluice-Verdict, because what clients send under that name is dropped`)
	f(rule+"  action: tag\n  tag: {value: \"a\\nb\"}\n", `f.yaml:5:16: tag.value: "a\nb" is not the value of a header: want 1 to 256 bytes of text`)
	f(rule+"  key: [source, source]\n", "f.yaml:4:17: key: source is there twice: remove one")
	f(rule+"  match: {path: \"~(\"}\n", "f.yaml:4:17: match.path: \"(\" is not a regular expression: error parsing regexp: missing closing ): `(`")
	f(rule+"  match: {path: login}\n", `f.yaml:4:17: match.path: "login" is not a path: want /exact, /prefix/* or ~regexp`)
	f(rule+"  match: {path: /a//b}\n", `f.yaml:4:17: match.path: "/a//b" is never the path of a request as rules see it: write /a/b`)
	f(rule+"  match: {path: /a/*/b}\n", `f.yaml:4:17: match.path: "/a/*/b" has a * before its end: use a regular expression, which begins with ~`)
	f(rule+"  match: {hosts: [\"a:80\"]}\n", `f.yaml:4:19: match.hosts: "a:80" is not a host: want example.com without a port, *.example.com, or *`)
	f(rule+"  match: {sources: [192.0.2.1/24]}\n", `f.yaml:4:21: match.sources: 192.0.2.1/24 has bits beyond its prefix: write 192.0.2.0/24`)
	f(rule+"  match: {headers: {host: a}}\n", `f.yaml:4:27: match.headers: host: say it under hosts`)
	f(rule+"  match: {headers: {X-A: a, x-a: b}}\n", `f.yaml:4:29: match.headers: x-a is there twice: remove one`)
	f(rule+"  match: {headers: {x-a: [a]}}\n", `f.yaml:4:26: match.headers: x-a: want a value, not a list`)
	f(rule+"  match: {headers: [x-a]}\n", `f.yaml:4:20: match.headers: want fields (name: value), not a list`)
	f(rule+"  match: {headers: {accept: \"*/*\"}}\n", `f.yaml:4:29: match.headers: "*/*" has a * before its end: want an exact value, a prefix that ends in *, or * for any`)
	f(rule+"  match: {headers: {x-a: café}}\n", `f.yaml:4:26: match.headers: "café" is not what clients send, or what servers read alike: want visible ASCII`)
	f(rule+"  match: {headers: {authorization: Bearer a b}}\n", `f.yaml:4:36: match.headers: "Bearer a b" is malformed: want credentials as they are sent, SCHEME TOKEN`)
	f(rule+"  key: \"cookie:a%20b\"\n", `f.yaml:4:8: key: "cookie:a%20b" is not possible: want source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS, jwt:CLAIM, country, asn or global`)
	f("deny: [\"64:ff9b::/96\"]\n", `f.yaml:1:8: deny: 64:ff9b::/96 is IPv4 in IPv6: write the IPv4 prefix`)
	f(rule+"  match: {query: {q: a+b}}\n", `f.yaml:4:22: match.query: "a+b" has what clients can write in several ways: want visible ASCII without any of %+&#;`)
	f(rule+"  match: {cookies: {a b: c}}\n", `f.yaml:4:26: match.cookies: "a b" is not a name`)
	f(rule+"  match: {not: {path: \"/*\"}}\n", `f.yaml:4:16: match.not: it leaves everything out, so the rule is about nothing: say mode: off`)
	f(rule+"  match: {not: {path: ~a}}\n", `f.yaml:4:16: match.not: path: "a" is a regular expression: want /exact or /prefix/*`)
	f(rule+"  match: {methods: [post]}\n", `f.yaml:4:21: match.methods: "post" is not a method: want a name in capitals, such as POST`)
	f(rule+"  count: {statuses: [99]}\n", "f.yaml:4:22: count.statuses: 99 is out of range: want 200 to 599")
	f(rule+"  count: {statuses: [401], refused: true}\n", "f.yaml:4:10: count: statuses and refused together: a refused request has no status of the origin; keep one")
	f(rule+"  candidate: {limit: 0}\n", "f.yaml:4:22: candidate.limit: 0 is out of range: want 1 to 1000000000")
	f(rule+"  candidate: {estimate: best}\n", `f.yaml:4:25: candidate.estimate: "best" is not possible: want nearest or lower`)
	f(rule+"  candidate: {window: 1m}\n", "f.yaml:4:15: candidate: unknown field window: want estimate, limit or mitigation_timeout")
	f(rule+"  share: 0\n", "f.yaml:4:10: share: 0 is out of range: want 1 to 100")
	f("deny: [1.2.3.4/33]", `f.yaml:1:8: deny: "1.2.3.4/33" is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address`)
	f("deny: [\"fe80::1%eth0\"]", `f.yaml:1:8: deny: "fe80::1%eth0" has a zone: write the address alone`)
	f("deny: [1.2.3.4/24]", "f.yaml:1:8: deny: 1.2.3.4/24 has bits beyond its prefix: write 1.2.3.0/24")
	f("origins: [{servers: [\"127.0.0.1:3000\"]}]", `f.yaml:1:22: origins.servers: "127.0.0.1:3000" is not the URL of an origin: want http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH`)
	f("origins: [{servers: [\"h2c://a:1\", \"http://a:2\"]}]", "f.yaml:1:11: origins.servers: some speak HTTP/2 and others HTTP/1.1: write h2c:// or h2:// for all, or for none")
	f("origins: [{servers: [\"h2c://a:1\"], upgrades: [websocket]}]", "f.yaml:1:11: origins.upgrades: no request to a server of HTTP/2 switches protocols: remove upgrades, or write its URL with http:// or https://")
	f("origins: [{servers: [\"http://a/b\"]}]", `f.yaml:1:22: origins.servers: origin "http://a/b" has more than scheme, host and port: requests keep their own path; write http://a`)
	f("origins: [{servers: [\"unix:app.sock\"]}]", `f.yaml:1:22: origins.servers: "unix:app.sock" is not the Unix socket of an origin: want unix:/PATH of at most 100 bytes`)
	f("origins: [{servers: [\"https://a\"], tls: {cert_file: a}}]", "f.yaml:1:41: origins.tls: cert_file and key_file belong together: give both")
	f("origins: [{servers: [\"http://a\"], tls: {ca_file: a}}]", "f.yaml:1:40: origins.tls: none of the servers is https:// or h2://: write them so, or remove tls")
	f("origins: [{servers: [\"https://a\"], tls: {insecure: true}}]", "f.yaml:1:42: origins.tls: unknown field insecure: want ca_file, cert_file, key_file or server_name")
	f("origins:\n- hosts: [a]\n  servers: [\"https://a\"]\n- hosts: [b]\n  servers: [\"https://a\"]\n  tls: {ca_file: a}\n",
		"f.yaml:6:8: origins.tls: https://a is above already with another tls: write the same here")
	f("origins: [{servers: [\"http://a\"], connect_timeout: 0}]", "f.yaml:1:52: origins.connect_timeout: 0 is out of range: want 1ms to 1h")
	f("pop: {peers: [{name: a/b, edges: [\"a:1\"]}]}", `f.yaml:1:22: pop.peers.name: "a/b" is not a name for a PoP: want 1 to 64 letters, digits, dots, dashes or underscores`)
	f("pop: {peers: [{name: a, edges: [\"a:1\"]}, {name: a, edges: [\"b:1\"]}]}", "f.yaml:1:49: pop.peers.name: a is there twice: name each PoP once, with all its edges")
	f("pop: {peers: [{name: a, edges: [\":1\"]}]}", `f.yaml:1:33: pop.peers.edges: ":1" is not the address of an edge: want HOST:PORT, as in its peers_listen`)
	f("pop: {peers: [{name: a, edges: [\"a:1\", \"a:1\"]}]}", "f.yaml:1:40: pop.peers.edges: a:1 is there twice: remove one")
	f("pop: {peers: [{name: a}]}", "f.yaml:1:15: pop.peers: a has no edges: name where they listen for peers (their peers_listen), as HOST:PORT")
	f("pop: {peers: [{edges: [\"a:1\"]}]}", "f.yaml:1:15: pop.peers: a peer without a name: give the pop.name of its edges")
	f("pop: {peers: [{name: a, edges: [\"a:1\"], token: x}]}", "f.yaml:1:41: pop.peers: unknown field token: want edges or name")
	f("pop: {peers: [{name: a, edges: [a:1]}]}", `f.yaml:1:33: pop.peers.edges: want HOST:PORT, within braces in quotes: "10.2.0.21:8082"`)
	f("pop: {peers_mode: shadow}", `f.yaml:1:19: pop.peers_mode: "shadow" is not possible: want enforce or off`)
	f("origins:\n- hosts: [a]\n", "f.yaml:2:3: origin: no servers: give at least one URL under servers")
	f("shed: all", `f.yaml:1:7: shed: "all" is not possible: want answer or connection or kernel`)
	f("check_path: check", `f.yaml:1:13: check_path: "check" is not a path to ask at: want one such as /check, or /check/* where the original path follows, or none`)
	f("check_path: /*", `f.yaml:1:13: check_path: "/*" is not a path to ask at: want one such as /check, or /check/* where the original path follows, or none`)
	f("check_path: /check*", `f.yaml:1:13: check_path: "/check*" is not a path to ask at: want one such as /check, or /check/* where the original path follows, or none`)
	f("check_path: /a/../check", `f.yaml:1:13: check_path: "/a/../check" is never the path of a request as rules see it: write /check`)
	f("origins: [{servers: [\"http://a\"], health: {active: ok}}]", `f.yaml:1:52: origins.health.active: "ok" is not a path: want one such as /healthz, or none`)
	f("limits: {header_bytes: 1}", "f.yaml:1:24: limits.header_bytes: 1 is out of range: want 1024 to 1048576 bytes")
	f("limits: {header_bytes: 1KB}", `f.yaml:1:24: limits.header_bytes: "1KB" is not a size: want a number of bytes, or one with KiB, MiB or GiB`)
	f("source: {header: Cookie}", `f.yaml:1:18: source.header: "Cookie" cannot tell the address of a client: want X-Forwarded-For, Forwarded, or a header that holds one address, such as X-Real-IP or CF-Connecting-IP`)
	f("source: {header: \"a b\"}", `f.yaml:1:18: source.header: "a b" cannot tell the address of a client: want X-Forwarded-For, Forwarded, or a header that holds one address, such as X-Real-IP or CF-Connecting-IP`)
	f("verdict_header: yes", "f.yaml:1:17: verdict_header: want true or false")
	f("etcd: {endpoints: [\"10.0.0.1:2379\"]}", `f.yaml:1:20: etcd.endpoints: "10.0.0.1:2379" is not a node of etcd: want https://HOST:PORT or http://HOST:PORT`)
	f("etcd: {endpoints: [\"http://a\"]}", `f.yaml:1:20: etcd.endpoints: "http://a" is not a node of etcd: want https://HOST:PORT or http://HOST:PORT`)
	f("etcd: {endpoints: [\"https://a:1\", \"http://b:1\"]}", "f.yaml:1:35: etcd.endpoints: http://b:1 is http, and the first is not: write all with http, or all with https")
	f("etcd: {prefix: sluice}", `f.yaml:1:16: etcd.prefix: "sluice" is not possible: want up to 128 bytes that begin and end with a slash, such as /sluice/`)
	f("etcd: {endpoints: [\"https://a:1\"], username: ada}", "f.yaml:1:36: etcd: username and password_file belong together: give both")
	f("etcd: {endpoints: [\"https://a:1\"], key_file: k}", "f.yaml:1:36: etcd: cert_file and key_file belong together: give both")
	f("etcd: {ca_file: c}", "f.yaml:1:7: etcd: no endpoints: name the nodes, such as https://10.0.0.1:2379")
	f("etcd: {endpoints: [\"http://a:1\"], ca_file: c}", "f.yaml:1:35: etcd: http://a:1 has no TLS: write the endpoints with https, or remove ca_file and cert_file")
	const about = "rate_limit_service: {listen: \":1\"}\nrules:\n- {name: a, limit: 1, match: {descriptors: {domain: d, entries: [{key: k}]}}"
	f("rate_limit_service: {listen: x}", `f.yaml:1:30: rate_limit_service.listen: "x" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535`)
	f("rate_limit_service: {port: 1}", "f.yaml:1:22: rate_limit_service: unknown field port: want cert_file, client_ca_file, insecure, key_file or listen")
	f(about+", key: global}", "f.yaml:3:79: key: a rule about descriptors counts by the values that its entries leave open: remove key")
	f(about+", action: close}", "f.yaml:3:79: action: close: the calling proxy answers its client: remove it")
	f(about+", count: {statuses: [401]}}", "f.yaml:3:79: count.statuses: no proxy reports how a request was answered: remove it")
	f(about+", response: {status: 503}}", "f.yaml:3:79: response.status: the calling proxy chooses the status (rate_limited_status of Envoy): remove it")
	f(about+", response: {bodies: [{content_type: a/b, body: c}]}}", "f.yaml:3:79: response.bodies: no proxy reports what its client accepts: keep one body")
	f(about+", action: delay}", "f.yaml:3:79: action: delay: the calling proxy answers its client: remove it")
	f(about+", action: tag}", "f.yaml:3:79: action: tag: the calling proxy answers its client: remove it")
	f(about+", windows: [{limit: 2, window: 1h}]}", "f.yaml:3:79: windows: the calling proxy gets one limit for each descriptor: remove them")
	f(about+", prefixes: [24]}", "f.yaml:3:79: prefixes: a rule about descriptors counts by the values that its entries leave open: remove them, and have the proxy send masked_remote_address")
	f(about+", cost: {header: X-Cost}}", "f.yaml:3:79: cost: the calling proxy sends how many hits a request is (hits_addend): remove it")
	f(about+", check: sync}", "f.yaml:3:79: check: sync ranks requests one by one, and a proxy may send many hits at once: take check: async")
	f(about+", algorithm: exact}", "f.yaml:3:79: algorithm: exact: the calling proxy gets a limit in a window: take sliding or fixed")
	f(about+", algorithm: token_bucket, burst: 3}", "f.yaml:3:79: algorithm: token_bucket: the calling proxy gets a limit in a window: take sliding or fixed")
	f("jwt: {keys_file: k}\n"+about+", key: \"jwt:sub\"}", "f.yaml:4:79: key: a rule about descriptors counts by the values that its entries leave open: remove key")
	f(about+", priority: critical}", "f.yaml:3:79: priority: the calling proxy sends the request to its origin, where no load is shed: remove it")
	f(about+", queue: 1s}", "f.yaml:3:79: queue: the calling proxy sends the request to its origin, where no load is shed: remove it")
	f(about+"}\n- {name: b, limit: 1, match: {descriptors: {domain: d, entries: [{key: k, value: \"*\"}]}}}", "f.yaml:4:23: match.descriptors: rule a is about the same: keep one, or say mode: off")
	f("rules: [{name: a, limit: 1, match: {path: /a, descriptors: {domain: d, entries: [{key: k}]}}}]", "f.yaml:1:29: match.descriptors: a descriptor has no host, path, method, address, header, parameter or cookie: remove what is beside it")
	f("rules: [{name: a, limit: 1, match: {descriptors: {entries: [{key: k}]}}}]", "f.yaml:1:50: match.descriptors: no domain: say which one the proxy sends")
	f("rules: [{name: a, limit: 1, match: {descriptors: {domain: d}}}]", "f.yaml:1:50: match.descriptors: no entries: say which ones the proxy sends, such as [{key: remote_address}]")
	f("rules: [{name: a, limit: 1, match: {descriptors: {domain: d, entries: [{value: k}]}}}]", "f.yaml:1:50: match.descriptors: an entry without a key: every entry of a descriptor has one")
	f("rules: [{name: a, limit: 1, match: {descriptors: {domain: d, entries: [{key: k, value: a*b}]}}}]", `f.yaml:1:50: match.descriptors: "a*b" has a * before its end: want an exact value, a prefix that ends in *, or no value for any`)
	f("rules: [{name: a, limit: 1, match: {not: {descriptors: {domain: d}}}}]", "f.yaml:1:43: match.not: unknown field descriptors: want asns, cookies, countries, headers, hosts, lists, methods, path, plans, query or sources")
	const abroad = "rules: [{name: a, limit: 1, match: {countries: "
	f(abroad+"[DE]}}]", "f.yaml:1:49: match.countries: no database says in which country an address is: give geo: {country: FILE}")
	f("geo: {country: f}\n"+abroad+"[Germany]}}]", `f.yaml:2:49: match.countries: "Germany" is no country: want two letters of ISO 3166-1, such as DE`)
	f("geo: {country: f}\n"+abroad+"[de, UK]}}]", `f.yaml:2:49: match.countries: "de" is no country: write DE
f.yaml:2:53: match.countries: "UK" is no country: write GB`)
	f("geo: {country: f}\nrules: [{name: a, limit: 1, match: {not: {asns: [x]}}}]", `f.yaml:2:50: match.not.asns: "x" is no number of an autonomous system: want 1 to 4294967295`)
	f("geo: {country: f}\nrules: [{name: a, limit: 1, key: [asn]}]", "f.yaml:2:35: key: no database says of which autonomous system an address is: give geo: {asn: FILE}")
	f("geo: {city: f}", "f.yaml:1:7: geo: unknown field city: want asn or country")
	f("etcd: {nodes: [a]}", "f.yaml:1:8: etcd: unknown field nodes: want ca_file, cert_file, endpoints, key_file, password_file, prefix or username")
	const r1 = "rules: [{name: r, limit: 1, "
	f(r1+"mitigation_timeout: 0, escalate: [1h]}]", "f.yaml:1:52: escalate: a rule with mitigation_timeout: 0 blocks no source, so no block can be longer: give it a mitigation_timeout")
	f(r1+"escalate: [1h, 10m]}]", "f.yaml:1:29: escalate: 10m is not longer than 1h before it (mitigation_timeout goes first): want times that ascend")
	f(r1+"windows: [{limit: 2}]}]", "f.yaml:1:39: windows: want a limit and a window in each of them, such as {limit: 10, window: 1s}")
	f(r1+"windows: [{limit: 2, window: 1ms}]}]", "f.yaml:1:58: windows.window: 1ms is out of range: want 1s to 24h")
	f("rules: [{name: r, limit: 9, cost: 4, windows: [{limit: 3, window: 1s}]}]", "f.yaml:1:38: windows: each request costs 4, more than the limit of 3 in 1s: none would ever pass")
	f(r1+"windows: [{limit: 2, window: 1s}]}]", "f.yaml:1:29: windows: 2 in 1s can never be reached beside 1 in 1m: a longer window needs the larger limit")
	f(r1+"prefixes: [24, 7]}]", "f.yaml:1:44: prefixes: 7 is out of range: want 8 to 128")
	f(r1+"prefixes: [32, {prefix: 24}]}]", "f.yaml:1:44: prefixes: want a number, such as 24, or one with a limit: {prefix: 24, limit: 1000}")
	f(r1+"prefixes: [32, {prefix: 24, limit: 1}]}]", "f.yaml:1:29: prefixes: 24 has a limit of 1, and a prefix within it 1, which could never be reached: a wider prefix needs the larger limit")
	f(r1+"prefixes: [24], key: host}]", "f.yaml:1:29: prefixes: only addresses have wider ones, and this rule counts by host: want key: source")
	f(r1+"escalate: [1m]}]", "f.yaml:1:29: escalate: 1m is not longer than 1m before it (mitigation_timeout goes first): want times that ascend")
	f(r1+"check: always}]", `f.yaml:1:36: check: "always" is not possible: want async or sync`)
	f(r1+"check: sync, first_sight: wait}]", "f.yaml:1:42: first_sight: check: sync waits for the tier with every request, so wait adds nothing: leave first_sight out")
	f(r1+"response: {jitter: 10}}]", `f.yaml:1:48: response.jitter: "10" is not possible: want 0% to 100%`)
	f(r1+"action: redirect}]", "f.yaml:1:9: action: redirect needs a location to send clients to: add response: {location: https://…}")
	f(r1+"response: {location: /a}}]", "f.yaml:1:29: response.location: only action: redirect sends clients anywhere: add it, or remove location")
	f(r1+"response: {status: 302}}]", "f.yaml:1:29: response.status: 302 is out of range: want 400 to 599")
	f(r1+"action: redirect, response: {location: /busy}}]",
		"f.yaml:1:47: response.location: the rule is about /busy as well, so clients would be sent there for ever: want another host, or a path that the rule's match leaves out")
	f(r1+"match: {path: /x/*}, action: redirect, response: {location: /busy, status: 301}}]", "f.yaml:1:68: response.status: 301 is no redirection for a while: want 302, 303 or 307")
	for _, bad := range []string{"//evil.example/", "/\\\\evil", "ftp://a/", "busy", "https://", "https://u:p@a/", "/a b"} {
		f(r1+`match: {path: /x/*}, action: redirect, response: {location: "`+bad+`"}}]`, fmt.Sprintf(
			"f.yaml:1:89: response.location: %q is no location to send clients to: want https://HOST/PATH, or a path that begins with one slash", strings.ReplaceAll(bad, `\\`, `\`)))
	}
	f(r1+"plans: {free: 1}}]", "f.yaml:1:29: rule r needs plans, but nothing says by what key a client is known: add plans: {key: header:X-API-Key, default: free} beside rules")
	const plans = "plans: {key: \"header:X-Key\"}\nrules: [{name: a, limit: 1, "
	f(plans+"plans: {free: 1}}]", "f.yaml:2:29: rule a has limits by plan but does not count by header:X-Key, so clients on several plans would share a counter: put that into the rule's key; a rule that counts otherwise can have match: {plans: […]}")
	f(plans+"key: \"header:x-key\", plans: {free: 1}, candidate: {limit: 2}}]", "f.yaml:2:50: rule a has a candidate and limits by plan: a candidate has one limit for all; remove one of them, or try the limits of a plan in a rule of its own with match: {plans: […]} and mode: shadow")
	f(plans+"key: \"header:x-key\", plans: {free: 1}, windows: [{limit: 2, window: 1h}]}]", "f.yaml:2:50: rule a has windows and limits by plan: a plan has one limit, in the rule's own window; remove one of them, or give the rule of each plan windows with match: {plans: […]}")
	f(plans+"key: \"header:x-key\", plans: {free: 1}, algorithm: exact}]", "f.yaml:2:50: rule a has algorithm: exact and limits by plan: give it check: sync, or want another algorithm, or a rule for each plan with match: {plans: […]}")
	f(plans+"key: \"header:x-key\", plans: {free: 1, pro: 1001}, algorithm: exact, check: sync}]", "f.yaml:2:50: rule a has a limit of 1001 for the plan pro: algorithm: exact keeps the time of each request, of at most 1000: want 1 to that")
	f(plans+"key: \"header:x-key\", plans: {free: 1, pro: 60001}, algorithm: token_bucket, check: sync}]", "f.yaml:2:50: rule a has a limit of 60001 for the plan pro: check: sync goes by milliseconds, and a request would drain in less than one: want at most 60000 in 1m")
	f("plans: {key: \"header:X-Key\"}\nrules: [{name: a, limit: 5, key: \"header:x-key\", plans: {free: 3, pro: 9}, cost: 4}]", "f.yaml:2:50: rule a has a plan with a limit of 3, and each request costs 4: none would ever pass")
	f(plans+"key: \"header:x-key\", plans: {free: 0}}]", "f.yaml:2:64: plans: free: 0 is out of range: want 1 to 1000000000")
	f(plans+"key: \"header:x-key\", plans: {free: {}}}]", "f.yaml:2:64: plans: free: no limit: want a number, or {limit: 1000}")
	f(plans+"key: \"header:x-key\", plans: {free: {limit: 1, burst: 2}}}]", "f.yaml:2:75: plans: free: unknown field burst: want limit")
	f(plans+"key: \"header:x-key\", plans: {\"a b\": 1}}]", `f.yaml:2:58: plans: "a b" is not the name of a plan: want 1 to 64 letters, digits, dots, dashes or underscores`)
	f(plans+"match: {plans: [pro, pro]}}]", "f.yaml:2:50: match.plans: pro is there twice: remove one")
	f("plans: {also: [\"header:a\"]}", "f.yaml:1:8: plans: also but no key: say by what most clients are known, such as key: header:X-API-Key")
	f("plans: {key: \"header:a\", also: [\"header:A\"]}", "f.yaml:1:8: plans: also has the key itself, header:a: remove it there")
	f("plans: {key: \"header:a\", also: [\"header:b\", \"header:B\"]}", "f.yaml:1:45: plans.also: header:B is there twice: remove one")
	f("plans: {key: \"header:a\", also: [host]}", `f.yaml:1:33: plans.also: "host" does not identify a client: want what it sends, such as header:X-API-Key`)
	f("plans: {key: \"header:a\", also: [\"header:b\"]}\nrules: [{name: a, limit: 1, plans: {free: 1}}]", "f.yaml:2:29: rule a has limits by plan but does not count by header:a or header:b, so clients on several plans would share a counter: put that into the rule's key; a rule that counts otherwise can have match: {plans: […]}")
	f("plans: {key: source}", `f.yaml:1:14: plans.key: "source" does not identify a client: want what it sends, such as header:X-API-Key`)
	f("plans: {key: \"jwt:sub\"}", `f.yaml:1:14: plans.key: "jwt:sub": a plan cannot follow from a token's claim: want what a client sends itself, such as header:X-API-Key`)
	f("plans: {store: \"sqlite:/x\"}", "f.yaml:1:8: plans: a store but no key: say by what clients are known, such as key: header:X-API-Key")
	f("plans: {key: \"header:a\", store: \"mysql://x/y\"}", "f.yaml:1:33: plans.store: that is no store: want sqlite:/ABSOLUTE/PATH, such as sqlite:/var/lib/sluice/plans.db, or postgres://USER:PASSWORD@HOST/DATABASE")
	f("plans: {refresh: 1ms}", "f.yaml:1:18: plans.refresh: 1ms is out of range: want 100ms to 1h")
	f("rules: *x", "f.yaml:1:8: alias *x: there is no anchor &x above it")
	f("table: {counters: 1}\nlisten: x\n", "f.yaml:1:19: table.counters: 1 is out of range: want 1024 to 1073741824\n"+
		`f.yaml:2:9: listen: "x" is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535`)
	for _, broken := range []string{"a: [", "a: {", "\tx", "a: b: c", "'", "rules:\n  - name: a\n limit: 1", "a: \"\\x"} {
		if _, err := Parse("f.yaml", []byte(broken)); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestNodesAreChecked(t *testing.T) {
	p := Parser{Nodes: func(names []string) error {
		if last := names[len(names)-1]; last == "bad" {
			return errors.New("it is bad")
		}
		return nil
	}}
	_, err := p.Parse("f.yaml", []byte("pop:\n  memcached: [a:1, bad, b:2]\n  edges: -1\n"))
	want := "f.yaml:2:20: pop.memcached: it is bad\nf.yaml:3:10: pop.edges: -1 is out of range: want 0 to 64"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What goes wrong if a field is missing in the operators' manual, or has another default there than in the code: nobody can know it.
func TestConfigDefaults(t *testing.T) {
	text := manual(t)
	got, err := Parse(fieldsFile, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:3000\"]}]\nrules: [{name: login, limit: 5}]"))
	if err != nil {
		t.Fatal(err)
	}
	// What says nothing, and what says in so many words what that means.
	if rule := &got.Rules[0]; rule.Match.Everything() && *rule.Estimate == want.Estimate {
		rule.Match, rule.Estimate = match.Config{}, nil
	}
	if slices.Equal(got.Origins[0].Upgrades, []string{"websocket"}) {
		got.Origins[0].Upgrades = nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.IgnoreUnexported(match.Config{})); diff != "" {
		t.Errorf("what the manual calls the defaults is not (-default +manual):\n%s", diff)
	}
}

// An edge that counts alone keeps what operators change of its rules, and only that.
func TestStateDirAlone(t *testing.T) {
	const origins = "origins: [{servers: [\"http://127.0.0.1:1\"]}]\nstate_dir: /var/lib/sluice\nedge_id: web1\n"
	for text, want := range map[string]int{origins: 1, origins + "pop: {memcached: [\"127.0.0.1:11211\"]}\n": 0} {
		c, err := Parse("", []byte(text))
		if err != nil || c.StateDir != "/var/lib/sluice" || c.EdgeID != "web1" || c.Check() != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		if w := c.Warnings(); len(w) != want {
			t.Errorf("%s: %v", text, w)
		}
	}
}

func TestRuleAsJSON(t *testing.T) {
	r := rules.Default("login", 5)
	r.Window = rules.Duration(90 * time.Minute)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	// JSON is YAML: what the API shows may stand in a file.
	c, err := Parse("", []byte(`{"rules":[`+string(text)+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, c.Rules[0], cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(match.Config{})); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("rules:\n- name: a\n  limit: 1\n")
	f.Add("a: &x [1]\nb: *x\n")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}

// A rule about some hosts is got round by another Host where the same server answers for that as well.
func TestWarnings(t *testing.T) {
	f := func(origins, hosts string, want ...string) {
		t.Helper()
		c, err := Parse("f.yaml", []byte("origins: ["+origins+"]\nrules: [{name: r, limit: 1, match: {hosts: ["+hosts+"]}}, {name: x, mode: \"off\", limit: 1, match: {hosts: [a]}}, {name: y, limit: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range c.Warnings() {
			w, _, _ = strings.Cut(w, " answers")
			got = append(got, w)
		}
		if !cmp.Equal(got, want) {
			t.Errorf("%s for %s: %q, want %q", hosts, origins, got, want)
		}
	}
	const any, other, one = "{servers: [\"http://s\"]}", "{hosts: [\"*\"], servers: [\"http://t\"]}", "{hosts: [a], servers: [\"http://s\"]}"
	f(any, "a", "rule r is about the host a, but http://s")
	f(any, "b, a", "rule r is about the host b, but http://s")
	f(any, "\"*.a\"", "rule r is about the host *.a, but http://s")
	f(any, "\"*\"")
	f(any, "a, \"*\"")
	f(one, "a")
	f(one, "b") // nobody answers for b
	f(one+", "+other, "a")
	f(one+", "+other, "a, b", "rule r is about the host b, but http://t")
	f(one+", "+any, "a", "rule r is about the host a, but http://s")
	f("{hosts: [\"*.a\"], servers: [\"http://s\"]}, "+other, "b.a")
	f("{hosts: [\"*.a\"], servers: [\"http://s\"]}, "+any, "b.a", "rule r is about the host b.a, but http://s")
}

// Limits by plan without a store of who is on which are one limit for everybody.
func TestPlansWarnings(t *testing.T) {
	f := func(plans, rule, want string) {
		t.Helper()
		c, err := Parse("f.yaml", []byte("origins: [{servers: [\"http://s\"]}]\nplans: {key: \"header:k\", default: free"+plans+"}\nrules: [{name: r, limit: 1, "+rule+"}, {name: y, limit: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "; "); got != want {
			t.Errorf("%s %s: %q, want %q", plans, rule, got, want)
		}
	}
	const none = "plans: nothing says which client is on which plan, so every client is on free: give plans.store"
	f("", `key: "header:k", plans: {pro: 5}`, none)
	f("", `match: {not: {plans: [pro]}}`, none)
	f("", `key: "header:k"`, "")
	f(`, store: "sqlite:/plans.db"`, `key: "header:k", plans: {pro: 5}`, "")
}

// Places that all clients share want a rule by which no source holds them all.
func TestSharedSlotsWarning(t *testing.T) {
	const shared, want = "{name: r, match: {path: /r}, concurrency: 40, key: ", "rule r has 40 slots for all clients together"
	for text, warns := range map[string]bool{
		shared + "global}":                                                   true,
		shared + "[host, path]}":                                             true,
		shared + "source}":                                                   false,
		shared + "[path, \"header:x-account\"]}":                             false,
		shared + "global}, {name: s, concurrency: 39}":                       false,
		shared + "global}, {name: s, concurrency: 40}":                       true,
		shared + "global}, {name: s, limit: 5}":                              true,
		shared + "global}, {name: s, mode: shadow, concurrency: 5}":          true,
		shared + "global}, {name: s, match: {path: /r}, concurrency: 5}":     false,
		shared + "global}, {name: s, match: {path: /other}, concurrency: 5}": true,
		shared + "global, mode: \"off\"}":                                    false,
	} {
		c, err := Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\nrules: ["+text+"]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "\n"); strings.Contains(got, want) != warns {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// A length that is too long for IPv4 is one of IPv6, and of many clients: who meant an IPv4 address would have them share a limit.
func TestPrefixOfManyWarning(t *testing.T) {
	for prefixes, warns := range map[string]bool{"[33]": true, "[32, 40]": true, "[47, 44]": true, "[48]": false, "[32, 24, 64, 40]": false, "[24]": false, "[]": false} {
		c, err := Parse("", []byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\nrules: [{name: r, limit: 5, prefixes: "+prefixes+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "\n"); strings.Contains(got, "rule r: prefixes above 32 are of IPv6") != warns {
			t.Errorf("%s: %q", prefixes, got)
		}
	}
}

// A candidate says less than it seems to where what it would refuse is not counted.
func TestCandidateWarnings(t *testing.T) {
	for rule, want := range map[string]string{
		"limit: 5, candidate: {limit: 4}":                                   "",
		"limit: 5, candidate: {limit: 6}":                                   "it will refuse no request",
		"limit: 5, candidate: {limit: 16000}, count: {refused: true}":       "",
		"limit: 5, candidate: {limit: 16001}, count: {refused: true}":       "it may miss",
		"limit: 16001, candidate: {limit: 1000000}, count: {refused: true}": "",
	} {
		c, err := Parse("f.yaml", []byte("rules: [{name: r, "+rule+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Warnings(), "\n"); !strings.Contains(got, want) || want == "" && strings.Contains(got, "candidate") {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// What would let everybody in: operators' rights for whoever reaches the listener, and clients that say themselves who they are.
func TestGuards(t *testing.T) {
	const admin, trust = "anyone who does may change rules and blocks", "each client can claim to be any other"
	for yaml, want := range map[string]string{
		"":                                            "",
		"admin: ':8081'":                              admin,
		"admin: '0.0.0.0:8081'":                       admin,
		"admin: '[::]:8081'":                          admin,
		"admin: '10.0.0.1:8081'":                      admin,
		"admin: 'edge.example:8081'":                  admin,
		"admin: 'localhost:8081'":                     "",
		"admin: '127.9.9.9:8081'":                     "",
		"admin: '[::1]:8081'":                         "",
		"admin: 'unix:/run/s'":                        "",
		"{admin: ':8081', admin_insecure: true}":      "",
		"{admin: ':8081', admin_token_file: /t}":      "",
		"metrics_token: true":                         "there is no token",
		"{metrics_token: true, admin_token_file: /t}": "",
		"source: {trust: [0.0.0.0/0]}":                trust,
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":             "",
		"pop: {peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":                                   "give pop.memcached",
		"pop: {memcached: [\"a:1\"], peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}":                                    "give pop.peers_secret_file",
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers: [{name: ams1, edges: [\"b:1\"]}]}":                                    "give pop.peers_listen",
		"pop: {memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8080', peers: [{name: ams1, edges: [\"b:1\"]}]}":             "something else listens already",
		"pop: {name: ams1, memcached: [\"a:1\"], peers_secret_file: /s, peers_listen: ':8082', peers: [{name: ams1, edges: [\"b:1\"]}]}": "which is this PoP",
		"pop: {peers_secret_file: /s}": "there are no peers",
		"pop: {peers_listen: ':8082'}": "no PoP may send anything",
		"pop: {peers_mode: off}":       "there are no peers",
		"http2: {cleartext: true}":     "no proxy is trusted",
		"{http2: {cleartext: true, enabled: false}, source: {trust: [10.0.0.1]}}":          "turn enabled on",
		"{http2: {cleartext: true}, source: {trust: [10.0.0.1]}}":                          "",
		"source: {trust: [10.0.0.0/8, '::/0']}":                                            trust,
		"source: {trust: ['::/0', 0.0.0.0/0], trust_everybody: true}":                      "",
		"source: {trust: [10.0.0.0/8, '2001:db8::/32'], header: X-Client}":                 "",
		"{pop: {memcached: ['a:1'], wait: 0s}, rules: [{name: r, limit: 1, check: sync}]}": "give pop.wait a time",
		"{pop: {wait: 0s}, rules: [{name: r, limit: 1, check: sync}]}":                     "",
	} {
		c, err := Parse("f.yaml", []byte(yaml+"\n"))
		if err != nil {
			t.Errorf("%s: %v", yaml, err)
			continue
		}
		c.CheckPath = "/check" // instead of an origin
		if err := c.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}

// Whoever can write into etcd changes the rules of every edge: what lets others do that is said.
func TestEtcdWarnings(t *testing.T) {
	f := func(etcd, want string) {
		t.Helper()
		c, err := Parse("", []byte("state_dir: /s\netcd: {"+etcd+"}"))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, w := range c.Warnings() {
			if strings.HasPrefix(w, "etcd: ") {
				got += w
			}
		}
		c.StateDir = ""
		if !strings.Contains(strings.Join(c.Warnings(), "\n"), "etcd: without state_dir") {
			t.Errorf("%s: without state_dir: %q", etcd, c.Warnings())
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", etcd, got, want)
		}
	}
	f(`endpoints: ["http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379"]`, "")
	f(`endpoints: ["http://10.0.0.1:2379"]`, "plain text without a password")
	f(`endpoints: ["http://127.0.0.1:2379", "http://10.0.0.1:2379"]`, "plain text without a password")
	f(`endpoints: ["http://10.0.0.1:2379"], username: a, password_file: p`, "reads the password")
	f(`endpoints: ["https://10.0.0.1:2379"]`, "no username and no cert_file")
	f(`endpoints: ["https://10.0.0.1:2379"], username: a, password_file: p`, "")
	f(`endpoints: ["https://10.0.0.1:2379"], cert_file: c, key_file: k`, "")
}
