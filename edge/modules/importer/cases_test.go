package importer

import (
	"errors"
	"strings"
	"testing"
)

// The shapes of configurations that are easily taken for something else. What is wanted are lines of what is made, without their indentation; a ! says that
// there is no such line.
func TestImportSays(t *testing.T) {
	const (
		zones   = "limit_req_zone $binary_remote_addr zone=a:1m rate=10r/s;\nlimit_req_zone $binary_remote_addr zone=b:1m rate=5r/m;\nlimit_req_zone $binary_remote_addr zone=c:1m rate=50r/s;\n"
		counted = "frontend f\n stick-table type ip size 1m expire 1m store http_req_rate(10s)\n http-request track-sc0 src\n"
		limited = " rate_limit: {unit: second, requests_per_unit: 5}\n"
	)
	for _, x := range []struct {
		kind, text string
		want       []string
	}{
		// A request is in one location.
		{"nginx", zones + "server { location /a/ { limit_req zone=a; } location /a/b/ { return 200; } }", []string{"path: /a/*", "path: /a/b/*", "!mode: shadow"}},
		{"nginx", zones + "server { location / { limit_req zone=a; } location = /health { return 200; } }", []string{"path: /health", "!mode: shadow"}},
		{"nginx", zones + "server { limit_req zone=a;\nlocation /b { limit_req zone=c; } }", []string{"path: /b*", "!# note: a shadow"}},
		{"nginx", zones + "server { limit_req zone=a;\nlocation /b { limit_req zone=b; }\nlocation /c { limit_req zone=b; } }",
			[]string{"- /b*", "- /c*", "!mode: shadow"}},
		{"nginx", zones + "server { location / { limit_req zone=a; } location /b { return 200; } location ~ png$ { return 200; } }",
			[]string{"- /b*", "- ~png$", "!mode: shadow"}},
		{"nginx", zones + "server { location /b { limit_req zone=a; } location ~ png$ { return 200; } }",
			[]string{"path: ~png$", "!mode: shadow"}},
		{"nginx", zones + "server { location ^~ /b { limit_req zone=a; } location ~ png$ { return 200; } }", []string{"!path: ~png$"}},
		// Robots, by maps of expressions.
		{"nginx", "map $http_user_agent $who { default \"\"; ~*(spider|crawl) $binary_remote_addr; ~Fetch/ $binary_remote_addr; good ''; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }",
			[]string{"User-Agent: ~(?i:(spider|crawl))|(?:Fetch/)", "User-Agent: ~^(?i:good)$", "!mode: shadow"}},
		{"nginx", "map $http_user_agent $who { default $binary_remote_addr; ~*spider \"\"; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"not:", "User-Agent: ~(?i:spider)", "!mode: shadow"}},
		{"nginx", "map $http_user_agent $who { default \"\"; ~(?!a)b $binary_remote_addr; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"mode: shadow"}},
		{"nginx", "map $cookie_sid $who { default $cookie_sid; '' $remote_addr; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"- cookie:sid", "!mode: shadow", "!cookies:",
			"# note: who has no cookie:sid counts by address, as in nginx; who has an empty one has one counter with all such"}},
		{"nginx", "map $http_user_agent $who { default \"\"; ~*spider $http_user_agent; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"User-Agent: ~(?i:spider)", "- header:User-Agent", "!mode: shadow"}},
		// What names the client in front of a proxy is no header by which requests differ.
		{"nginx", "map $http_x_forwarded_for $who { default \"\"; 192.0.2.1 $binary_remote_addr; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }",
			[]string{"mode: shadow", "!source: 192.0.2.1"}},
		// Variables have names of any case, and a server has one of its names.
		{"nginx", "limit_req_zone $binary_remote_addr$arg_orderId zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"- query:orderId", `orderId: "*"`, "!mode: shadow"}},
		{"nginx", "limit_req_zone $binary_remote_addr$Request_URI zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"mode: shadow"}},
		{"nginx", "limit_req_zone $HTTP_X_Forwarded_For zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"mode: shadow"}},
		{"nginx", "limit_req_zone $Cookie_Sid zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"- cookie:Sid", "!mode: shadow"}},
		{"nginx", "limit_req_zone $Http_X_Key zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"- header:X-Key", "!mode: shadow"}},
		{"nginx", "limit_req_zone $server_name zone=a:1m rate=9r/s;\nserver { server_name a.example b.example; limit_req zone=a; }", []string{"- b.example", "- global", "!- host"}},
		{"nginx", "limit_req_zone $binary_remote_addr$server_name zone=a:1m rate=9r/s;\nserver { server_name a.example; limit_req zone=a; }", []string{"- a.example", "!key:"}},
		{"nginx", "limit_req_zone $server_name zone=a:1m rate=9r/s;\nserver { server_name _; limit_req zone=a; }", []string{"- host"}},
		// And in one server.
		{"nginx", zones + "server { server_name a.example; return 200; }\nserver { limit_req zone=a; }", []string{"not:", "- a.example"}},
		{"nginx", zones + "server { listen 81; server_name a.example; return 200; }\nserver { limit_req zone=a; }", []string{"!not:"}},
		{"nginx", "http {" + zones + "limit_req zone=a;\nserver { server_name a.example; limit_req zone=c; }\nserver { server_name b.example; } }", []string{"not:", "- a.example"}},
		{"nginx", "http {" + zones + "limit_req zone=a;\nserver { server_name b.example; location / { limit_req zone=c; } } }",
			[]string{"not:", "- b.example", "# line 5: limit_req zone=a does not hold for b.example here: locations of it have others, and nginx has it hold for the rest"}},
		{"nginx", "http {" + zones + "limit_req zone=a;\nserver { location / { limit_req zone=c; } } }", []string{"mode: shadow", "# note: a shadow, because this has no equal, or is not understood: that the server of line 5, which names no host, has others"}},
		{"nginx", zones + "server { limit_req zone=a; location ~ (?!x)y { return 200; } location ~ (?!x)z { limit_req zone=c; } }", []string{"mode: shadow", "# note: a shadow, because this has no equal, or is not understood: nginx leaves out ~ (?!x)z"}},
		{"nginx", zones + "server { location /a { limit_req zone=a; }\nlocation /b { limit_req zone=a; } }", []string{"# note: nginx counts this together with line 5, in one zone; here each rule counts for itself"}},
		{"nginx", zones + "server { limit_req zone=a burst=${BURST}; }", []string{"# line 4: left out: limit_req zone=a burst=$${BURST}: $${BURST} is no number"}},
		{"nginx", zones + "limit_req_status 444;\nserver { limit_req zone=a; }", []string{"action: close", "!status: 444"}},
		{"nginx", "stream { limit_conn_zone $binary_remote_addr zone=a:1m;\nserver { limit_conn a 1; } }", []string{"# line 1: left out: stream: it is not about HTTP", "!rules:"}},
		{"nginx", "geo $who { default $binary_remote_addr; 10.0.0.0/8 \"\"; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }",
			[]string{"# note: nginx takes $binary_remote_addr in a geo as it is written, so all of these share one counter there; here each has its own, as was meant"}},

		// What names the client is the client of a proxy that is trusted, and a balancer's address as long as none is.
		{"nginx", strings.Replace(zones, "$binary_remote_addr", "$http_true_client_ip", 1) + "server { limit_req zone=a; }",
			[]string{"# note: " + namesClient("$http_true_client_ip"), "mode: shadow", "!key:"}},
		{"nginx", strings.Replace(zones, "$binary_remote_addr", "$host$proxy_add_x_forwarded_for", 1) + "server { limit_req zone=a; }",
			[]string{"# note: " + namesClient("$proxy_add_x_forwarded_for"), "mode: shadow"}},
		{"nginx", "geo $who { default $http_x_real_ip; 10.0.0.0/8 \"\"; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }",
			[]string{"# note: " + namesClient("$http_x_real_ip"), "mode: shadow"}},
		// What is not known may say whom a limit spares.
		{"nginx", "limit_req_zone $binary_remote_addr $uri zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"mode: shadow",
			"# note: a shadow, because this has no equal, or is not understood: $uri in limit_req_zone $binary_remote_addr $uri zone=a:1m rate=1r/s"}},
		{"nginx", zones + "server { limit_req zone=a burst=5 spare=office; }", []string{"mode: shadow", "# note: a shadow, because this has no equal, or is not understood: spare=office"}},
		{"nginx", zones + "server { limit_req zone=a; }\nserver { server_name b.example; limit_req_spare office; }", []string{"mode: shadow",
			"# line 5: limit_req_spare office is not known, so all limits of the file become shadows"}},
		{"nginx", zones + "limit_req_log_level warn;\nserver { limit_req zone=a; location /a { limit_except GET { deny all; } } }", []string{"!mode: shadow"}},
		{"haproxy", strings.Replace(counted, "src", "hdr_ip(X-Forwarded-For,-1)", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }",
			[]string{"mode: shadow", "# note: " + namesClient("X-Forwarded-For")}},
		{"haproxy", strings.Replace(counted, "src", "req.hdr(x-real-ip)", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }",
			[]string{"mode: shadow", "# note: " + namesClient("x-real-ip"), "limit: 5"}},
		// A converter makes another key, or carries the count.
		{"haproxy", strings.Replace(counted, "src", "src,ipmask(24)", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow", "limit: 5"}},
		{"haproxy", strings.Replace(counted, "src", "hdr(X-A,1)", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow", "!key: header:X-A"}},
		{"haproxy", counted + " acl many src,ipmask(24),table_http_req_rate(f) gt 7\n http-request deny if many { path /a }", []string{"mode: shadow", "limit: 7", "window: 10s", "path: /a",
			"# note: a variable or a converter of HAProxy carries this limit: 7 is what this file shows of it"}},
		// That of an address is the same as src_http_req_rate.
		{"haproxy", counted + " acl many src,table_http_req_rate(f) gt 7\n http-request deny if many { path /a }", []string{"!mode: shadow", "limit: 7", "window: 10s", "path: /a"}},
		{"haproxy", "frontend f\n http-request deny if { src,table_http_req_rate(away) gt 7 }\n", []string{"# 1 of 1 limit: 0 rules, 0 shadows, 1 note",
			"# line 2: left out: http-request deny if { src,table_http_req_rate(away) gt 7 }: no line of this file counts addresses in the table away, so it refuses nobody"}},
		// Of several conditions of one name one is enough, and so it is of what || parts.
		{"haproxy", counted + " acl in path_beg /in\n acl in path_beg /sign-in\n http-request deny if in METH_PUT { sc_http_req_rate(0) gt 5 }", []string{"path: ~^(?:/in|/sign-in)", "- PUT", "!mode: shadow"}},
		{"haproxy", counted + " acl in path /in\n acl in hdr(x-in) yes\n http-request deny if in { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow"}},
		{"haproxy", counted + " acl in src 192.0.2.1\n acl in src 192.0.2.2\n http-request deny if !in { sc_http_req_rate(0) gt 5 }", []string{"- 192.0.2.1", "- 192.0.2.2", "not:", "!mode: shadow"}},
		{"haproxy", counted + " http-request deny if { path /a } { sc_http_req_rate(0) gt 5 } || { path /b } { sc_http_req_rate(0) gt 9 } or { path /c }", []string{"# 1 of 1 limit: 1 rule, 0 shadows, 0 notes",
			"path: /a", "path: /b", "limit: 5", "limit: 9", "!mode: shadow", "# line 4: left out of http-request deny if { path /a } { sc_http_req_rate(0) gt 5 } || { path /b } { sc_http_req_rate(0) gt 9 } or { path /c }: { path /c }: it is about no counter, and refuses always"}},
		// Values as HAProxy compares them.
		{"haproxy", counted + " http-request deny if { hdr_sub(User-Agent) -i spider crawl } { sc_http_req_rate(0) gt 5 }", []string{"contains:", "- spider", "- crawl", "!mode: shadow"}},
		{"haproxy", counted + " http-request deny if { req.hdr(User-Agent) -m sub Spider } { sc_http_req_rate(0) gt 5 }", []string{"User-Agent: ~(?:Spider)", "!mode: shadow"}},
		{"haproxy", counted + " http-request deny if !{ req.cook(sid) -m end .ok } { sc_http_req_rate(0) gt 5 }", []string{"not:", "suffix: .ok", "!mode: shadow"}},
		{"haproxy", counted + " http-request deny if { url_param(q) -m reg -i ^a+$ } !{ path_end .png .css } { sc_http_req_rate(0) gt 5 }", []string{"q: ~(?i)^a+$", `path: "~(?:\\.png|\\.css)$"`, "!mode: shadow"}},
		{"haproxy", counted + " http-request deny if { hdr(X-A,2) -m sub a } { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow"}},
		{"haproxy", "global\n set-var proc.most str(m),map_str(/etc/most.map,40)\n" + counted + " http-request set-var(txn.made) src,table_http_req_rate(f)\n http-request deny if { var(proc.most),sub(txn.made) lt 0 }", []string{"mode: shadow", "limit: 40"}},
		{"haproxy", counted + " http-request deny if { sc_http_req_rate(0) gt 5 }\n stick-table type ip size 1m expire 1m store http_req_rate(60s)", []string{"!rules:",
			"# line 4: left out: http-request deny if { sc_http_req_rate(0) gt 5 }: the section f has two stick tables, and may have one"}},
		// Tables of peers, and what nobody uses.
		{"haproxy", "peers both\n peer a 192.0.2.1:1\n table seen type ip size 1m expire 1m store http_req_rate(20s)\nfrontend f\n http-request track-sc0 src table both/seen\n http-request deny if { sc_http_req_rate(0) gt 5 }",
			[]string{"limit: 5", "window: 20s", "# 1 of 1 limit: 1 rule, 0 shadows, 0 notes"}},
		{"haproxy", counted + " filter bwlim-out slow limit 1m key src\n maxconn 9\n", []string{"# 3 of 3 limits: 0 rules, 0 shadows, 3 notes",
			"# line 2: left out: stick-table type ip size 1m expire 1m store http_req_rate(10s): no line of this file refuses by it"}},
		{"haproxy", counted + " http-request set-var(txn.most) path,map_beg(/etc/most.map,30)\n http-request set-var(txn.made) src,table_http_req_rate(f)\n" +
			" http-request deny if { var(txn.most),sub(txn.made) lt 0 }", []string{"mode: shadow", "limit: 30", "window: 10s",
			"# note: a variable or a converter of HAProxy carries this limit: 30 is what this file shows of it"}},
		{"haproxy", counted + " http-request set-var(txn.made) sc_http_req_rate(0)\n http-request deny if { var(txn.made) gt 9 }", []string{"mode: shadow", "limit: 9"}},
		{"haproxy", counted + " http-request deny if { src,table_gpc0(f) gt 0 }", []string{"# line 4: left out: http-request deny if { src,table_gpc0(f) gt 0 }: what it counts is not understood"}},

		{"haproxy", counted + " http-request deny if { sc_http_req_rate(0) lt 5 }", []string{"# line 4: left out: http-request deny if { sc_http_req_rate(0) lt 5 }: want gt or ge, and one number, for a limit", "!rules:"}},
		{"haproxy", counted + " http-request deny if { req.hdr(X-A) -m found } { sc_http_req_rate(0) gt 5 }", []string{`X-A: "*"`, "# note: HAProxy counts the client's other requests too; here the rule counts those that it may refuse"}},
		{"haproxy", counted + " http-request deny if { hdr(host) -m sub evil } { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow", "!- sub"}},
		{"haproxy", counted + " http-request deny if { path_beg -i /Admin } { sc_http_req_rate(0) gt 5 }", []string{"path: ~(?i)^(?:/Admin)"}},
		{"haproxy", counted + " http-request deny if { path_beg /a /b } { sc_http_req_rate(0) gt 5 }", []string{"path: ~^(?:/a|/b)"}},
		{"haproxy", counted + " http-request allow if { src 10.0.0.0/8 }\n http-request deny if !{ src 192.0.2.1 } { sc_http_req_rate(0) gt 5 }", []string{"- 192.0.2.1", "- 10.0.0.0/8", "!mode: shadow"}},
		{"haproxy", counted + " http-request allow if { src -f good }\n http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"mode: shadow"}},
		{"haproxy", counted + " http-request allow\n http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"# line 5: left out: http-request deny if { sc_http_req_rate(0) gt 5 }: a line above it lets all requests pass"}},
		{"haproxy", counted + " http-request return status 429 if { sc_http_req_rate(0) gt 5 }", []string{"limit: 5", "!status: 429"}},
		{"haproxy", counted + " http-request return status 200 if { sc_http_req_rate(0) gt 5 }", []string{"# line 4: left out: http-request return status 200 if { sc_http_req_rate(0) gt 5 }: it looks at a counter, and does not refuse requests"}},
		{"haproxy", counted + " acl many sc_http_req_rate(0) gt 5\n use_backend slow if many", []string{"# line 5: left out: use_backend slow if many: it looks at a counter, and does not refuse requests"}},
		{"haproxy", counted + " acl few sc_http_req_rate(0) lt 5\n http-request deny unless few", []string{"# line 5: left out: http-request deny unless few: what it counts is not understood"}},
		{"haproxy", counted + " acl a path /a\n acl b path /b\n http-request deny unless a b { sc_http_req_rate(0) gt 5 }", []string{"!rules:"}},
		{"haproxy", strings.Replace(counted, "src\n", "src unless { src 10.0.0.0/8 }\n", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"not:", "- 10.0.0.0/8", "!mode: shadow"}},
		{"haproxy", counted + " acl many sc_http_req_rate(0) gt 5\n acl many sc_http_req_rate(1) gt 5\n http-request deny if many", []string{"# line 6: left out: http-request deny if many: what it counts is not understood"}},
		{"haproxy", "frontend f\n stick-table type ip size 1m expire 1m store http_req_rate(10s)\n http-request deny if { src_http_req_rate(f) gt 5 }",
			[]string{"# line 3: left out: http-request deny if { src_http_req_rate(f) gt 5 }: no line of this file counts addresses in the table f, so it refuses nobody"}},
		{"haproxy", counted + " http-request track-sc0 hdr(X-A)\n http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"# line 4: left out: http-request track-sc0 hdr(X-A): a line above it has filled sc0 for all requests", "!key: header:X-A"}},
		{"haproxy", strings.Replace(counted, "src", "hdr(X-A)", 1) + " http-request deny if { sc_http_req_rate(0) gt 5 }", []string{"key: header:X-A", `X-A: "*"`}},

		{"envoy-ratelimit", "domain: d\ndescriptors:\n- key: a\n  Value: b\n " + limited, []string{"# line 3: left out, with the descriptors within it: key a: 5 in a second: there is no field Value in a configuration of Envoy's ratelimit", "!rules:"}},
		{"envoy-ratelimit", "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: fortnight, requests_per_unit: 5}\n", []string{`# line 3: left out: key a: 5 in a fortnight: the unit "fortnight" is none of Envoy's ratelimit`}},
		{"envoy-ratelimit", "domain: d\ndescriptors:\n- key: a\n  value: b\n  rate_limit: {unlimited: true}\n", []string{"limit: 1000000000"}},
		{"envoy-ratelimit", "kind: ConfigMap\ndata:\n  c.yaml: |\n    domain: d\n    descriptors:\n    - key: a\n     " + limited, []string{"# line 6: key a: 5 in a second"}},
		// Values are text, whatever YAML makes of them, and merges are as ratelimit reads them.
		{"envoy-ratelimit", "domain: d\ndescriptors:\n- {key: a, value: 2.50, rate_limit: {unit: hour, requests_per_unit: 4}}\n- {key: b, value: 010, rate_limit: {unit: hour, requests_per_unit: 4}}\n- {key: c, value: No, rate_limit: {unit: hour, requests_per_unit: 4}}\n- {key: d, value: null, rate_limit: {unit: hour, requests_per_unit: 4}}\n",
			[]string{`value: "2.50"`, `value: "010"`, `value: "No"`, "# line 6: key d: 4 in a hour", "# 4 of 4 limits: 4 rules, 0 shadows, 0 notes"}},
		{"envoy-ratelimit", "domain: d\ndescriptors:\n- key: a\n  rate_limit: &most {unit: day, requests_per_unit: 9}\n- key: b\n  rate_limit:\n    requests_per_unit: 8\n    <<: *most\n- key: c\n  rate_limit:\n    <<: [*most]\n    unit: hour\n",
			[]string{"# line 5: key b: 8 in a day", "# line 9: key c: 9 in a hour", "limit: 8", "window: 24h"}},
		{"envoy-ratelimit", "kind: ConfigMap\ndata: {a.yaml: \"domain: d\\ndescriptors:\\n- key: a\\n  rate_limit: {unit: second, requests_per_unit: 5}\\n\"}\n", []string{"# line 2: key a: 5 in a second"}},
		{"envoy-ratelimit", "redis: {host: a}\nratelimit:\n  config:\n  - domain: d\n    descriptors:\n    - {key: a, rate_limit: {unit: second, requests_per_unit: 4000000000}}\n", []string{"limit: 1000000000"}},
		// Two that hold together here, of which Envoy takes one; and one that refuses nobody there.
		{"envoy-ratelimit", "domain: d\ndescriptors:\n- {key: a, rate_limit: {name: most, unit: hour, requests_per_unit: 4}}\n- {key: b, rate_limit: {unit: hour, requests_per_unit: 400, replaces: [{name: most}]}}\n- {key: c, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 6}}\n",
			[]string{"# 3 of 3 limits: 1 rule, 2 shadows, 0 notes", "# note: a shadow, because this has no equal, or is not understood: that another limit replaces most where both are about a request",
				"# note: a shadow, because this has no equal, or is not understood: quota_mode, in which Envoy refuses nobody"}},

		{"envoy-ratelimit", "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: month, requests_per_unit: 4}}\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 4}}\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n",
			[]string{"# 3 of 3 limits: 1 rule, 0 shadows, 2 notes", "limit: 4", "# line 5: left out: key a: 9 in a hour: a limit above it has the same entries, and Envoy's ratelimit refuses two"}},

		// A map compares texts without case, whatever it is of.
		{"nginx", "map $http_x_plan $who { default $binary_remote_addr; gold \"\"; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"not:", "X-Plan: ~^(?i:gold)$", "!mode: shadow"}},
		{"nginx", "map $cookie_plan $who { default \"\"; a $binary_remote_addr; b $binary_remote_addr; }\nlimit_req_zone $who zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"cookies:", "plan: ~^(?i:a)$|^(?i:b)$", "!mode: shadow"}},
		{"nginx", "limit_req_zone zone=a:1m rate=1r/s;\nserver { limit_req zone=a; }", []string{"# 2 of 2 limits: 0 rules, 0 shadows, 2 notes", "# line 1: left out: limit_req_zone zone=a:1m rate=1r/s: it has no key or no zone"}},
		// What several conditions leave out is left out by the rule.
		{"haproxy", counted + " http-request allow if METH_OPTIONS\n http-request deny if !{ path /a } !{ path /b } { sc_http_req_rate(0) gt 5 }", []string{"not:", "- /a", "- /b", "- OPTIONS", "!mode: shadow"}},
		{"haproxy", counted + " http-request set-var(txn.made) sc_http_req_rate(0)\n http-request deny if !{ var(txn.made) gt 9 }", []string{"!rules:", "# line 5: left out: http-request deny if !{ var(txn.made) gt 9 }: what it counts is not understood"}},

		// Programs are passed over by their braces, and what they limit is said.
		{"nginx", zones + "init_by_lua_block { local a = { b = '}' } -- } \n --[[ } ]] }\nserver { limit_req zone=a;\naccess_by_lua_block { local limit = require \"resty.limit.req\" } }",
			[]string{"# 4 of 4 limits: 1 rule, 0 shadows, 3 notes", "# line 4: init_by_lua_block is a program, and is not read",
				"# line 7: left out: access_by_lua_block: it is a program that limits requests, and is not read"}},
		{"nginx", zones + "server { location /a { limit_req zone=a; } location /b { limit_req off; limit_conn d 5; } }", []string{"# line 4: limit_req off has no rule: it ends the limits around it here",
			"# line 4: left out: limit_conn d 5: its zone d is not in this file", "# 5 of 5 limits: 1 rule, 0 shadows, 4 notes"}},
		// A path has no query, so all that differs there would be one.
		{"nginx", strings.Replace(zones, "$binary_remote_addr", "$binary_remote_addr$request_uri", 1) + "server { limit_req zone=a; }", []string{"mode: shadow", "# note: " + requestURI}},
	} {
		r, err := Import(x.kind, "f", []byte(x.text), nil)
		if err != nil {
			t.Errorf("%s: %v", x.text, err)
			continue
		}
		lines := make(map[string]bool)
		for line := range strings.Lines(r.YAML) {
			lines[strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- name: f"))] = true
			lines[strings.TrimSpace(line)] = true
		}
		for _, want := range x.want {
			if want, not := strings.CutPrefix(want, "!"); lines[want] == not {
				t.Errorf("%s\n%q: %v; it is\n%s", x.text, want, !not, r.YAML)
			}
		}
	}
}

// What a file of nginx includes stands in the place where it does so, whether it is found beside the file or in what nginx -T prints.
func TestImportOfIncludes(t *testing.T) {
	files := map[string]string{
		"nginx.conf":    "http {\n limit_req_status 429;\n limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n include sites/*.conf;\n}\n",
		"sites/a.conf":  "server {\n server_name a.example;\n location /x { include limit.conf; }\n}\n",
		"limit.conf":    "limit_req zone=a burst=4 nodelay;\n",
		"itself.conf":   "include itself.conf;\n",
		"missing.conf":  "include nowhere.conf;\n",
		"half.conf":     "include halfof.conf;\n",
		"halfof.conf":   "http {\n",
		"sites/z.other": "server {\n",
	}
	open := func(pattern string) ([]File, error) {
		if pattern == "sites/*.conf" {
			pattern = "sites/a.conf"
		}
		text, is := files[pattern]
		if !is {
			return nil, errors.New("there is none here")
		}
		return []File{{Name: pattern, Text: []byte(text)}}, nil
	}
	printed := "nginx: the configuration file /etc/nginx/nginx.conf syntax is ok\n"
	for _, name := range []string{"nginx.conf", "sites/a.conf", "limit.conf"} {
		printed += "# configuration file /etc/nginx/" + name + ":\n" + files[name] + "\n"
	}
	for what, x := range map[string]struct {
		text, folder string
		open         Open
	}{"beside it": {files["nginx.conf"], "", open}, "printed": {printed, "/etc/nginx/", nil}} {
		r, err := Import("nginx", "f", []byte(x.text), x.open)
		if err != nil || len(r.Rules) != 1 || len(r.Notes) != 0 {
			t.Errorf("%s: %v, %+v", what, err, r)
			continue
		}
		for _, want := range []string{"# " + x.folder + "limit.conf line 1: limit_req zone=a burst=4 nodelay\n", "path: /x*\n", "- a.example\n", "burst: 5\n"} {
			if !strings.Contains(r.YAML, want) || strings.Contains(r.YAML, "response") {
				t.Errorf("%s: want %q in\n%s", what, want, r.YAML)
			}
		}
	}
	for name, want := range map[string]string{"itself.conf": "itself.conf includes itself", "half.conf": "halfof.conf line 2: the file ends within a block"} {
		if _, err := Import("nginx", "f", []byte(files[name]), open); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for text, open := range map[string]Open{files["missing.conf"]: open, files["nginx.conf"]: nil, "# configuration file /a:\n" + files["missing.conf"]: nil} {
		if r, err := Import("nginx", "f", []byte(text), open); err != nil || !strings.Contains(r.YAML, " is not read: ") {
			t.Errorf("%s: %v: %+v", text, err, r)
		}
	}
	many := func(string) ([]File, error) {
		return []File{{Name: "a"}, {Name: "b", Text: []byte("include x;")}, {Name: "c", Text: []byte("include x;")}}, nil
	}
	if _, err := Import("nginx", "f", []byte("include x;"), many); err == nil {
		t.Error("files that include each other are read for ever")
	}
}
