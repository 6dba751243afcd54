package rival

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"sluice/loadgen/process"
)

// nginx starts instances that know nothing of each other: limit_req keeps its zone in the memory of
// one machine, so each allows the limit, as a source whose connections all reach one of them must
// be allowed it.
func (s *starter) nginx() error {
	path, err := process.Find("nginx",
		"install it (apt-get install nginx), or leave it out of --limiter")
	if err != nil {
		return err
	}
	part := Part{Name: "nginx"}
	if part.Version, err = process.Version(s.ctx, path, "-v"); err != nil {
		return err
	}
	if err := s.serveOrigin(); err != nil {
		return err
	}
	for i, at := range s.targets() {
		name := fmt.Sprint("nginx/", i)
		dir := filepath.Join(s.site.dir, name)
		file, err := s.file(filepath.Join(name, "nginx.conf"), nginxConfig(dir, at, s.origin,
			s.Limit, s.Window))
		if err != nil {
			return err
		}
		p := &process.Process{Name: name, Path: path, Args: []string{"-p", dir, "-c", file}}
		if err := s.launch(p, listens(at)); err != nil {
			return err
		}
		part.PIDs = append(part.PIDs, p.PID())
	}
	s.site.Parts = []Part{part}
	s.site.Configured = fmt.Sprintf("limit_req rate=%s, %s: a bucket that holds the limit and drains it evenly in a window, so that nobody within the limit is refused; "+
		"each instance counts alone", nginxRate(s.Limit,
		s.Window), strings.TrimSpace(nginxBurst(s.Limit)+" nodelay"))
	return nil
}

// nginxRate is the limit in a window as nginx can say it, in whole requests a second or a minute,
// and not less than the limit.
func nginxRate(limit uint32, window time.Duration) string {
	if second := float64(limit) / window.Seconds(); second == math.Trunc(second) {
		return fmt.Sprintf("%.0fr/s", second)
	}
	return fmt.Sprintf("%.0fr/m", math.Ceil(float64(limit)/window.Minutes()))
}

// nginxBurst has the bucket hold the limit: the first request of a source is not in it.
func nginxBurst(limit uint32) string {
	if limit == 1 {
		return ""
	}
	return fmt.Sprintf("burst=%d", limit-1)
}

func nginxConfig(dir string, at, origin netip.AddrPort, limit uint32, window time.Duration) string {
	burst := nginxBurst(limit)
	if burst != "" {
		burst = " " + burst + " nodelay"
	}
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
%[2]s  access_log off;
  keepalive_requests 1000000000;
  limit_req_zone $binary_remote_addr zone=sources:64m rate=%[3]s;
  limit_req_log_level info;
  upstream origin {
    server %[4]s;
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen %[5]s backlog=4096;
    location / {
      limit_req zone=sources%[6]s;
      limit_req_status 429;
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }
  }
}
`, dir, process.NginxFolders(dir), nginxRate(limit, window), origin, at, burst)
}
