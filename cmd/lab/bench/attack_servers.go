package bench

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"sluice/loadgen/process"
)

// server configures one of the servers: HTTP/2 over TLS as it comes, and a limit of requests for
// each source but the calm one.
func (h *HTTP2Attacks) server(name string, at, admin netip.AddrPort,
	a attack) (*process.Process, error) {
	page, err := h.file("429.html", strings.Repeat("x", pageBytes))
	if err != nil {
		return nil, err
	}
	to := h.origin()
	if a.h2 {
		to = h.h2Origin
	}
	switch name {
	case "nginx":
		return h.bed.server(name, "", h.nginx(at, a, to, page))
	case "haproxy":
		return h.bed.server(name, "", h.haproxy(at, a, to, page))
	}
	path := h.Sluice
	if name == "before" {
		path = h.Before
	}
	return h.bed.server(name, path, h.sluice(at, admin, a, to, page))
}

func (h *HTTP2Attacks) sluice(at, admin netip.AddrPort, a attack, to, page string) string {
	scheme, more := "http", ""
	if a.h2 {
		scheme = "h2c"
	}
	if a.limit > 0 {
		more += fmt.Sprintf("limits: {memory: %d}\n", a.limit)
	}
	if a.page {
		more += fmt.Sprintf("pages: [{status: [429], type: application/json, file: %s}, {status: [429], type: text/html, file: %s}]\n", page, page)
	}
	return fmt.Sprintf(`listen: 127.0.0.1:0
listen_tls: %[1]s
tls: {certificate: %[2]s, key: %[2]s}
admin: %[3]s
allow: [%[4]v]
origins: [{servers: ["%[8]s://%[5]s"]}]
%[9]srules: [{name: sources, limit: %[6]d, window: %[7]v, mitigation_timeout: 1m}]
`, at, h.pem, admin, calmSources, to, attackLimit, attackWindow, scheme, more)
}

func (h *HTTP2Attacks) nginx(at netip.AddrPort, a attack, to, page string) string {
	n := nginxServer{connections: 10_000, origin: to, listen: at.String() + " ssl http2",
		server: h.tls(), status: 429,
		http: fmt.Sprintf("  geo $limited { default 1; %v 0; }\n  map $limited $source { 1 $binary_remote_addr; 0 \"\"; }\n", calmSources),
		key:  "$source", rate: fmt.Sprintf("%dr/s", attackLimit/int(attackWindow.Seconds())),
		burst: fmt.Sprintf(" burst=%d nodelay", attackLimit)}
	if a.page {
		n.server += fmt.Sprintf("    error_page 429 /429.html;\n    location = /429.html { internal; root %s; }\n", filepath.Dir(page))
	}
	return h.bed.nginx(n)
}

func (h *HTTP2Attacks) haproxy(at netip.AddrPort, a attack, to, page string) string {
	tune, deny, proto := "", "", ""
	if a.limit > 0 {
		tune = "\n  tune.bufsize 98304" // or it takes neither such heads nor such pages
	}
	if a.page {
		deny = " content-type text/html file " + page
	}
	if a.h2 {
		proto = " proto h2"
	}
	return fmt.Sprintf(`global
  nbthread 1
  maxconn 8192%s
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout http-request 10s
  http-reuse always
frontend edge
  bind %s backlog 4096 ssl crt %s alpn h2 ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256
  stick-table type ip size 1m expire 60s store http_req_rate(%v)
  http-request track-sc0 src unless { src %v }
  http-request deny deny_status 429%s if { sc_http_req_rate(0) gt %d }
  default_backend origin
backend origin
  option forwardfor
  server origin %s%s
`, tune, at, h.pem, attackWindow, calmSources, deny, attackLimit, to, proto)
}
