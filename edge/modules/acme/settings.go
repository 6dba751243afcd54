package acme

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/edge/listen"
	"sluice/edge/message"
)

// Settings are what the section says. Without hosts no certificate is got.
type Settings struct {
	Hosts      []host     `json:"hosts"`
	Email      string     `json:"email" want:"file"`
	Directory  directory  `json:"directory"`
	CAFile     string     `json:"ca_file" want:"file"`
	Agree      bool       `json:"agree"`
	Challenges challenges `json:"challenges"`
}

const name = "acme"

// section is the part of configuration files that the module has.
func section() config.Module {
	return config.Module{
		Settings: func() any {
			return &Settings{Directory: LetsEncrypt, Challenges: challenges{HTTP, TLSALPN}}
		},
		AtStart: true, Check: check,
		Certifies: func(c *config.Config) bool { return len(Of(c).Hosts) > 0 },
	}
}

// Of is for which hosts of a configuration certificates are wanted, and from whom.
func Of(c *config.Config) (to Config) {
	s := config.SettingsOf[Settings](c, name)
	if s == nil {
		return to
	}
	to = Config{Email: s.Email, Directory: string(s.Directory), CAFile: s.CAFile, Agree: s.Agree}
	for _, h := range s.Hosts {
		to.Hosts = append(to.Hosts, string(h))
	}
	for _, c := range s.Challenges {
		to.Challenges = append(to.Challenges, string(c))
	}
	return to
}

// A directory is the URL of a server.
type directory string

func (d *directory) UnmarshalText(text []byte) error {
	*d = directory(text)
	if u, err := url.Parse(string(text)); err != nil || u.Scheme != "https" || u.Host == "" ||
		u.User != nil {
		return fmt.Errorf("%q is not the directory of a server of ACME: want a URL with https",
			text)
	}
	return nil
}

// A host is the name of one, in canonical form. A wildcard can be proven over DNS only, which is
// not done here.
type host string

func (h *host) UnmarshalText(text []byte) error {
	name, err := message.ParseHostPattern(string(text))
	switch {
	case err != nil:
		return err
	case strings.Contains(name, "*"):
		return fmt.Errorf("%q: a wildcard can be proven over DNS only: name each host, or get that certificate with another client and put it under tls", text)
	case net.ParseIP(name) != nil:
		return fmt.Errorf("%q is an address: servers such as Let's Encrypt are asked for names only: want one such as www.example.com", text)
	case !strings.Contains(name, ".") && name != "localhost" || strings.HasPrefix(name, "["):
		return fmt.Errorf("%q is not the name of a host: want one such as www.example.com", text)
	}
	*h = host(name)
	return nil
}

// challenges are the ways to prove that a host is ours: at least one.
type challenges []challenge

func (c challenges) Check() error {
	if len(c) == 0 {
		return errors.New("the list is empty: give http-01, tls-alpn-01, or both")
	}
	return nil
}

type challenge string

func (c *challenge) UnmarshalText(text []byte) error {
	if *c = challenge(text); *c != HTTP && *c != TLSALPN {
		return fmt.Errorf("%q is not possible: want %s or %s", text, HTTP, TLSALPN)
	}
	return nil
}

// check reports what no single field shows.
func check(c *config.Config) error {
	switch a := Of(c); {
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
		func(l config.Listener) bool { return l.TLS == (listen.TLSConfig{}) }):
		return errors.New("acme gets certificates but no listener shows them: each of listen_tls has its own; give one without tls")
	case c.StateDir == "" && etcd.Of(c) == nil:
		return errors.New("acme has no place for certificates and keys: give state_dir, or, for edges that share them, etcd")
	}
	return nil
}
