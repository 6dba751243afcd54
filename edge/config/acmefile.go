package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/listen"
	"sluice/edge/message"
)

// ACME is for which hosts certificates are got from a server of ACME, such as Let's Encrypt. The
// zero ACME is none.
type ACME struct {
	Hosts      []string // in canonical form
	Email      string
	Directory  string // URL of the server
	CAFile     string // of its certificate; "": those of the system
	Agree      bool   // to its terms
	Challenges []string
}

func (r *reader) acme(n ast.Node, a *ACME) {
	r.mapping(n, "acme", fields{
		"hosts":     listOf(r, "acme.hosts", parseCertifiedHost, &a.Hosts),
		"email":     r.orNone("acme.email", &a.Email),
		"directory": r.checked("acme.directory", checkDirectory, &a.Directory),
		"ca_file":   r.orNone("acme.ca_file", &a.CAFile),
		"agree":     r.boolean("acme.agree", &a.Agree),
		"challenges": func(n ast.Node) {
			a.Challenges = nil
			r.texts("acme.challenges", func(n ast.Node, text string) {
				var one string
				if oneOf(r, "acme.challenges", &one, "http-01", "tls-alpn-01")(n); one != "" {
					a.Challenges = append(a.Challenges, one)
				}
			})(n)
			if list, ok := n.(*ast.SequenceNode); ok && len(list.Values) == 0 {
				r.fail(n, "acme.challenges: the list is empty: give http-01, tls-alpn-01, or both")
			}
		},
	})
}

func checkDirectory(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" ||
		u.User != nil {
		return fmt.Errorf("%q is not the directory of a server of ACME: want a URL with https",
			text)
	}
	return nil
}

// parseCertifiedHost reads the name of a host. A wildcard can be proven over DNS only, which is not
// done here.
func parseCertifiedHost(text string) (string, error) {
	host, err := message.ParseHostPattern(text)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(host, "*"):
		return "",
			fmt.Errorf("%q: a wildcard can be proven over DNS only: name each host, or get that certificate with another client and put it under tls", text)
	case net.ParseIP(host) != nil:
		return "",
			fmt.Errorf("%q is an address: servers such as Let's Encrypt are asked for names only: want one such as www.example.com", text)
	case !strings.Contains(host, ".") && host != "localhost" || strings.HasPrefix(host, "["):
		return "", fmt.Errorf("%q is not the name of a host: want one such as www.example.com",
			text)
	}
	return host, nil
}

// checkACME reports what no single field of it shows.
func (c *Config) checkACME() error {
	switch a := &c.ACME; {
	case len(a.Hosts) == 0 && (a.Agree || a.Email != "" || a.CAFile != ""):
		return errors.New("acme names no host: give acme.hosts")
	case len(a.Hosts) == 0:
		return nil
	case !a.Agree:
		return errors.New("acme.agree is not true: read the terms of the server at " + a.Directory +
			", and say agree: true")
	case len(c.ListenTLS) == 0:
		return errors.New("acme gets certificates but nothing listens for TLS: give listen_tls, such as \":443\"")
	case !slices.ContainsFunc(c.ListenTLS,
		func(l Listener) bool { return l.TLS == (listen.TLSConfig{}) }):
		return errors.New("acme gets certificates but no listener shows them: each of listen_tls has its own; give one without tls")
	case c.StateDir == "" && len(c.Etcd.Endpoints) == 0:
		return errors.New("acme has no place for certificates and keys: give state_dir, or, for edges that share them, etcd")
	}
	return nil
}
