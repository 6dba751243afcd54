package flood

import (
	"context"
	"fmt"

	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/loadgen/process"
)

// start starts a server for a way, on one processor, and for the kernel's its helper.
func (f *Floods) start(ctx context.Context, way string, at netip.AddrPort) (main, helper *process.Process, err error) {
	if way == "kernel" {
		helper = &process.Process{Name: "sluice-wall", Path: f.Wall, Args: []string{"--socket", f.socket(), "--ports", fmt.Sprint(at.Port()), "--user", fmt.Sprint(os.Geteuid())}}
		if err := helper.Start(); err != nil {
			return nil, nil, err
		}
		if err := helper.Await(ctx, 10*time.Second, func() error { _, err := os.Stat(f.socket()); return err }); err != nil {
			helper.Stop(time.Second)
			return nil, nil, err
		}
	}
	if main, err = f.server(way, at); err == nil {
		if err = main.Start(); err == nil {
			err = main.Await(ctx, 10*time.Second, func() error {
				c, err := dialer(calm).Dial("tcp", at.String())
				if err == nil {
					c.Close()
				}
				return err
			})
			if err != nil {
				main.Stop(time.Second)
			}
		}
	}
	if err != nil && helper != nil {
		helper.Stop(time.Second)
	}
	return main, helper, err
}

func (f *Floods) socket() string { return filepath.Join(f.dir, "wall.sock") }

func (f *Floods) server(way string, at netip.AddrPort) (*process.Process, error) {
	p := &process.Process{Name: way}
	var text string
	var args []string
	file := filepath.Join(f.dir, "server.conf")
	switch name, _, _ := strings.Cut(way, " "); name {
	case "nginx", "haproxy":
		path, err := process.Find(name, "install it, or leave it out with --ways")
		if err != nil {
			return nil, err
		}
		if text, args = f.haproxy(at), []string{path, "-db", "-q", "-f", file}; name == "nginx" {
			text, args = f.nginx(at), []string{path, "-p", f.dir, "-c", file}
		}
	default:
		text, args = f.sluice(way, at), []string{f.Sluice, "--config", file, "--log-level", "error"}
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	var err error
	p.Path, err = process.Find("taskset", "it comes with util-linux")
	p.Args = append([]string{"-c", "0"}, args...)
	return p, err
}

func (f *Floods) sluice(way string, at netip.AddrPort) string {
	wall := ""
	if way == "kernel" {
		wall = "wall: {socket: " + f.socket() + "}\n"
	}
	return fmt.Sprintf(`listen: %s
admin: 127.0.0.1:8081
allow: [%s]
shed: %s
%sorigins: [{servers: ["http://%s"]}]
rules: [{name: sources, limit: %d, window: 1h, mitigation_timeout: 1h}]
`, at, calm, way, wall, f.origin, limit)
}

func (f *Floods) nginx(at netip.AddrPort) string {
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
http {
%[2]s  access_log off;
  geo $blocked { default 0; 198.19.0.0/16 1; }
  upstream origin { server %[3]s; keepalive 64; }
  server {
    listen %[4]s backlog=4096;
    location / {
      if ($blocked) { return 444; }
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
`, f.dir, process.NginxFolders(f.dir), f.origin, at)
}

func (f *Floods) haproxy(at netip.AddrPort) string {
	return fmt.Sprintf(`global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend edge
  bind %s backlog 4096
  tcp-request connection reject if { src 198.19.0.0/16 }
  default_backend origin
backend origin
  server origin %s
`, at, f.origin)
}
