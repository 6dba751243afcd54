//go:build system

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	programs "sluice/loadgen/process"
)

// An imported configuration is one of another program, what it says of the address it listens at and of its folder left open.
type imported struct {
	program, file string
	requests      []string // METHOD HOST PATH HEADER=VALUE, which are sent one after the other
	refused       int      // the status by which both refuse
}

// What import makes of a configuration refuses the requests that the program itself refuses: both get the same ones, at once, so that no rate matters.
func TestImportedRulesRefuseTheSame(t *testing.T) {
	t.Parallel()
	burst := func(n int, request string) (all []string) {
		for range n {
			all = append(all, request)
		}
		return all
	}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	const nginx = `daemon off; worker_processes 1; pid DIR/pid; error_log DIR/errors;
events { worker_connections 64; }
http {
	access_log off;
	client_body_temp_path DIR/a; proxy_temp_path DIR/b; fastcgi_temp_path DIR/c; uwsgi_temp_path DIR/d; scgi_temp_path DIR/e;
	limit_req_status 429;
	%s
}
`
	const haproxy = "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\nfrontend f\n bind ADDRESS\n default_backend o\n%s\nbackend o\n server o ORIGIN\n"
	for name, x := range map[string]imported{
		"a burst": {"nginx", fmt.Sprintf(nginx, `limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;
	server { listen ADDRESS; limit_req zone=a burst=3 nodelay; location / { proxy_pass http://ORIGIN; } }`),
			burst(7, "GET a.example /"), 429},
		"no burst": {"nginx", fmt.Sprintf(nginx, `limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;
	server { listen ADDRESS; location / { limit_req zone=a; proxy_pass http://ORIGIN; } }`),
			burst(3, "GET a.example /"), 429},
		"locations": {"nginx", fmt.Sprintf(nginx, `limit_req_zone $binary_remote_addr zone=api:1m rate=2r/m;
	limit_req_zone $binary_remote_addr zone=login:1m rate=1r/m;
	server { listen ADDRESS; proxy_pass_request_headers on;
		location /api/ { limit_req zone=api burst=2 nodelay; proxy_pass http://ORIGIN; }
		location = /api/login { limit_req zone=login burst=1 nodelay; proxy_pass http://ORIGIN; }
		location / { proxy_pass http://ORIGIN; } }`),
			join(burst(4, "GET a.example /api/login"), burst(5, "GET a.example /api/x"), burst(4, "GET a.example /"), burst(2, "GET a.example /api/login")), 429},
		"servers and keys": {"nginx", fmt.Sprintf(nginx, `limit_req_zone $http_x_api_key zone=keys:1m rate=1r/m;
	limit_req_zone $binary_remote_addr zone=all:1m rate=1r/m;
	server { listen ADDRESS; server_name a.example; limit_req zone=keys burst=1 nodelay; location / { proxy_pass http://ORIGIN; } }
	server { listen ADDRESS default_server; limit_req zone=all burst=2 nodelay; location / { proxy_pass http://ORIGIN; } }`),
			join(burst(4, "GET a.example / X-Api-Key=1"), burst(4, "GET a.example / X-Api-Key=2"), burst(4, "GET a.example /"), burst(5, "GET b.example /")), 429},
		"exceptions": {"nginx", fmt.Sprintf(nginx, `geo $known { default 1; 127.0.0.0/8 0; }
	map $known $key { 0 ""; 1 $binary_remote_addr; }
	map $request_method $posts { default ""; POST $binary_remote_addr; }
	limit_req_zone $key zone=a:1m rate=1r/m;
	limit_req_zone $posts zone=b:1m rate=1r/m;
	server { listen ADDRESS; limit_req zone=a; limit_req zone=b burst=1 nodelay; location / { proxy_pass http://ORIGIN; } }`),
			join(burst(3, "GET a.example /"), burst(4, "POST a.example /")), 429},
		"a rate": {"haproxy", fmt.Sprintf(haproxy, " stick-table type ip size 1k expire 1h store http_req_rate(1h)\n http-request track-sc0 src\n http-request deny deny_status 429 if { sc_http_req_rate(0) gt 3 }"),
			burst(6, "GET a.example /"), 429},
		"conditions": {"haproxy", fmt.Sprintf(haproxy, ` stick-table type ip size 1k expire 1h store http_req_rate(1h)
 acl login path_beg /login
 http-request allow if { path /health }
 http-request track-sc0 src if login
 http-request deny if login { sc_http_req_rate(0) ge 3 }`),
			join(burst(3, "GET a.example /"), burst(4, "GET a.example /login/x"), burst(3, "GET a.example /health")), 403},
		"keys": {"haproxy", fmt.Sprintf(haproxy, ` stick-table type string len 32 size 1k expire 1h store http_req_rate(1h)
 http-request track-sc0 req.hdr(X-Api-Key)
 http-request return status 429 if { sc_http_req_rate(0) gt 2 }`),
			join(burst(4, "GET a.example / X-Api-Key=1"), burst(3, "GET a.example / X-Api-Key=2"), burst(4, "GET a.example /")), 429},
	} {
		t.Run(x.program+" "+name, func(t *testing.T) {
			t.Parallel()
			// Its own origin: requests of one program are not those of the other.
			origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(origin.Close)
			dir, theirs := t.TempDir(), freePort(t)
			file := filepath.Join(dir, "theirs")
			must(t, os.WriteFile(file, []byte(strings.NewReplacer("ADDRESS", theirs, "DIR", dir, "ORIGIN", strings.TrimPrefix(origin.URL, "http://")).Replace(x.file)), 0o644))
			runOther(t, x.program, dir, file, theirs)

			code, rules, errs := sluice("import", x.program, file)
			if code != 0 {
				t.Fatalf("import: exit %d: %s", code, errs)
			}
			ours := freePort(t)
			startLineageOf(t, nil, "--listen", ours, "--origin", origin.URL, "--config", write(t, rules))

			passed, refused := 0, 0
			for i, request := range x.requests {
				a, b := statusOf(t, theirs, request), statusOf(t, ours, request)
				if a != b || a != 200 && a != x.refused {
					t.Errorf("request %d, %s: %s answers %d, Sluice %d\n%s", i, request, x.program, a, b, rules)
				}
				if a == 200 {
					passed++
				} else {
					refused++
				}
			}
			if passed == 0 || refused == 0 {
				t.Errorf("%d passed, %d refused: want some of both", passed, refused)
			}
		})
	}
}

// runOther starts nginx or HAProxy, and waits until it listens.
func runOther(t *testing.T, program, dir, file, address string) {
	t.Helper()
	path, err := programs.Find(program, "install it")
	must(t, err)
	p := &programs.Process{Name: program, Path: path, Args: []string{"-p", dir, "-c", file}}
	if program == "haproxy" {
		p.Args = []string{"-db", "-f", file}
	}
	must(t, p.Start())
	t.Cleanup(func() { p.Stop(time.Second) })
	must(t, p.Await(t.Context(), patience, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	}))
}

// statusOf is the status of a request, on a connection of its own.
func statusOf(t *testing.T, address, request string) int {
	t.Helper()
	words := strings.Fields(request)
	r, err := http.NewRequest(words[0], "http://"+address+words[2], nil)
	must(t, err)
	r.Host, r.Close = words[1], true
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	resp.Body.Close()
	return resp.StatusCode
}
