package bench

import (
	"fmt"

	"sluice/loadgen/process"
)

// An nginxServer is an nginx of one worker that limits requests by a key and passes them on.
type nginxServer struct {
	connections int    // at once
	http        string // lines before its limit
	key, rate   string
	burst       string // as limit_req takes it
	status      int    // of a refusal
	origin      string
	listen      string // address and options
	server      string // lines of the server
	keep        string // requests of a connection; "": its default
}

func (b *bed) nginx(n nginxServer) string {
	keepClients, keepOrigin := "", ""
	if n.keep != "" {
		keepClients, keepOrigin = "  keepalive_requests "+n.keep+";\n",
			"    keepalive_requests "+n.keep+";\n"
	}
	return fmt.Sprintf(`daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile %[2]d;
events { worker_connections %[3]d; }
http {
%[4]s  access_log off;
%[5]s%[6]s  limit_req_zone %[7]s zone=sources:64m rate=%[8]s;
  limit_req_log_level info;
  upstream origin {
    server %[9]s;
    keepalive 1024;
%[10]s  }
  server {
    listen %[11]s backlog=4096;
%[12]s    location / {
      limit_req zone=sources%[13]s;
      limit_req_status %[14]d;
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
  }
}
`, b.dir, 2*n.connections, n.connections, process.NginxFolders(b.dir), keepClients, n.http, n.key, n.rate, n.origin, keepOrigin, n.listen, n.server, n.burst, n.status)
}

// tls are its lines for a certificate.
func (b *bed) tls() string {
	return fmt.Sprintf(`    ssl_certificate %[1]s;
    ssl_certificate_key %[1]s;
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
`, b.pem)
}
