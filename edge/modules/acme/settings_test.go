package acme

import (
	"testing"

	"sluice/edge"
	"sluice/edge/config"
)

// Errors of acme say where, or, of what no single field shows, what to give.
func TestACMEErrors(t *testing.T) {
	p := config.Parser{Modules: edge.Modules{Module()}.Config()}
	parse := func(yaml, want string) {
		t.Helper()
		if _, err := p.Parse("f.yaml", []byte(yaml)); err == nil || err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", yaml, err, want)
		}
	}
	parse("acme: {hosts: [a.example, '*.example.com']}\n", `f.yaml:1:27: acme.hosts: "*.example.com": a wildcard can be proven over DNS only: name each host, or get that certificate with another client and put it under tls`)
	parse("acme: {hosts: [intranet]}\n", `f.yaml:1:16: acme.hosts: "intranet" is not the name of a host: want one such as www.example.com`)
	parse("acme: {hosts: [192.0.2.1]}\n", `f.yaml:1:16: acme.hosts: "192.0.2.1" is an address: servers such as Let's Encrypt are asked for names only: want one such as www.example.com`)
	parse("acme: {challenges: [dns-01]}\n", "f.yaml:1:21: acme.challenges: \"dns-01\" is not possible: want http-01 or tls-alpn-01")
	parse("acme: {challenges: []}\n", "f.yaml:1:20: acme.challenges: the list is empty: give http-01, tls-alpn-01, or both")
	parse("acme: {directory: 'http://acme.example/dir'}\n", `f.yaml:1:19: acme.directory: "http://acme.example/dir" is not the directory of a server of ACME: want a URL with https`)

	check := func(yaml, want string) {
		t.Helper()
		c, err := p.Parse("f.yaml", []byte("origins: [{servers: ['http://127.0.0.1:1']}]\n"+yaml))
		if err == nil {
			err = c.Check()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", yaml, err, want)
		}
	}
	const listens, kept = "listen_tls: ':443'\n", "state_dir: /var/lib/sluice\n"
	check(listens+kept+"acme: {hosts: [a.example]}\n", "acme.agree is not true: read the terms of the server at https://acme-v02.api.letsencrypt.org/directory, and say agree: true")
	check(listens+"acme: {hosts: [a.example], agree: true}\n", "acme has no place for certificates and keys: give state_dir, or, for edges that share them, etcd")
	check(kept+"acme: {hosts: [a.example], agree: true}\n", `acme gets certificates but nothing listens for TLS: give listen_tls, such as ":443"`)
	check("listen_tls: [{address: ':443', tls: {folder: a}}, {address: ':444', tls: {folder: b}}]\n"+kept+"acme: {hosts: [a.example], agree: true}\n", "acme gets certificates but no listener shows them: each of listen_tls has its own; give one without tls")
	check("acme: {agree: true}\n", "acme names no host: give acme.hosts")
}
