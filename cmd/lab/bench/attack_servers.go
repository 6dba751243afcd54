package bench

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"sluice/loadgen/process"
)

// server configures one of the servers: HTTP/2 over TLS as it comes, and a limit of requests for each source but the calm one.
func (h *HTTP2Attacks) server(name string, at, admin netip.AddrPort, a attack) (*process.Process, error) {
	page, err := h.p.file("429.html", strings.Repeat("x", pageBytes))
	if err != nil {
		return nil, err
	}
	to := h.p.origin
	if a.h2 {
		to = h.h2Origin
	}
	text := map[string]func(at, admin netip.AddrPort, a attack, to, page string) string{"sluice": h.sluice, "before": h.sluice, "nginx": h.nginx, "haproxy": h.haproxy}[name](at, admin, a, to, page)
	file, err := h.p.file(name+".conf", text)
	if err != nil {
		return nil, err
	}
	switch name {
	case "nginx":
		path, err := process.Find("nginx", "install it, or leave it out with --servers")
		return &process.Process{Name: name, Path: path, Args: []string{"-p", h.p.dir, "-c", file}}, err
	case "haproxy":
		path, err := process.Find("haproxy", "install it, or leave it out with --servers")
		return &process.Process{Name: name, Path: path, Args: []string{"-db", "-q", "-f", file}}, err
	}
	path := h.Sluice
	if name == "before" {
		path = h.Before
	}
	return &process.Process{Name: name, Path: path, Args: []string{"--config", file, "--log-level", "error"}}, nil
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
`, at, h.p.pem, admin, calmSources, to, attackLimit, attackWindow, scheme, more)
}

func (h *HTTP2Attacks) nginx(at, _ netip.AddrPort, a attack, to, page string) string {
	errorPage := ""
	if a.page {
		errorPage = fmt.Sprintf("error_page 429 /429.html; location = /429.html { internal; root %s; }", filepath.Dir(page))
	}
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 20000;
events { worker_connections 8192; }
http {
%[2]s  access_log off;
  geo $limited { default 1; %[3]v 0; }
  map $limited $source { 1 $binary_remote_addr; 0 ""; }
  limit_req_zone $source zone=sources:64m rate=%[4]dr/s;
  limit_req_log_level info;
  upstream origin {
    server %[5]s;
    keepalive 1024;
  }
  server {
    listen %[6]s ssl http2 backlog=4096;
    ssl_certificate %[7]s;
    ssl_certificate_key %[7]s;
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    %[9]s
    location / {
      limit_req zone=sources burst=%[8]d nodelay;
      limit_req_status 429;
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
  }
}
`, h.p.dir, process.NginxFolders(h.p.dir), calmSources, attackLimit/int(attackWindow.Seconds()), to, at, h.p.pem, attackLimit, errorPage)
}

func (h *HTTP2Attacks) haproxy(at, _ netip.AddrPort, a attack, to, page string) string {
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
`, tune, at, h.p.pem, attackWindow, calmSources, deny, attackLimit, to, proto)
}
