package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Callers is a listener for programs that call a module. The settings of such a module embed it.
// The zero value is nowhere.
type Callers struct {
	Listen       string `json:"listen" want:"address or none"` // "": nowhere
	CertFile     string `json:"cert_file" want:"file"`         // "": no TLS
	KeyFile      string `json:"key_file" want:"file"`
	ClientCAFile string `json:"client_ca_file" want:"file"` // of those that may call
	// It may be listened for beyond this machine whoever may call
	Insecure bool `json:"insecure"`
}

// A Service is what programs call at a module's listener.
type Service struct {
	Name string // the module's
	Callers
	TokenFile *string // of what callers must send; "": nothing; nil: they never send any
	Protocol  string  // over TLS (ALPN)
	Example   string  // an address for it
	Who       string  // what errors name a caller
}

// Services are those of all modules, also of those that listen nowhere.
func (c *Config) Services() (list []Service) {
	for _, m := range c.Modules {
		if m.Service != nil {
			s := m.Service(c)
			s.Name = m.Name
			list = append(list, s)
		}
	}
	return list
}

// NoOrigin reports whether nothing would come of a request, or of a call.
func (c *Config) NoOrigin() bool {
	return len(c.Origins) == 0 && c.CheckPath == "" &&
		!slices.ContainsFunc(c.Services(), func(s Service) bool { return s.Listen != "" })
}

// checkServices reports what no single field of a service shows.
func (c *Config) checkServices() error {
	all := c.Services()
	for i, s := range all {
		if err := s.checkFiles(); err != nil {
			return err
		}
		if s.Listen == "" {
			continue
		}
		if c.isTaken(s.Listen) || !strings.HasSuffix(s.Listen, ":0") &&
			slices.ContainsFunc(all[:i], func(o Service) bool { return o.Listen == s.Listen }) {
			return fmt.Errorf("%s.listen is %s, where something else listens already: give it an address of its own", s.Name, s.Listen)
		}
		if err := s.CheckAddress(s.Listen); err != nil {
			return err
		}
	}
	return nil
}

// isTaken reports whether requests, operators or peers are listened for at an address.
func (c *Config) isTaken(address string) bool {
	if strings.HasSuffix(address, ":0") {
		return false
	}
	return c.forClients(address) || address == c.Admin || address == c.PoP.PeersListen
}

// checkFiles reports files that do not go together.
func (s *Service) checkFiles() error {
	files := s.CertFile + s.KeyFile + s.ClientCAFile
	if s.TokenFile != nil {
		files += *s.TokenFile
	}
	switch {
	case s.Listen == "" && files != "":
		return fmt.Errorf("%s has files but listens nowhere: give %s.listen, such as %q", s.Name,
			s.Name, s.Example)
	case (s.CertFile == "") != (s.KeyFile == ""):
		return fmt.Errorf("%s: cert_file and key_file belong together: give both", s.Name)
	case s.ClientCAFile != "" && s.CertFile == "":
		return fmt.Errorf("%s.client_ca_file: a %s shows a certificate over TLS only: give cert_file and key_file", s.Name, s.Who)
	}
	return nil
}

// CheckAddress reports whether programs may be listened for at an address: beyond this machine they
// must have a token or a certificate, because anyone who reaches the service counts for others, and
// so can have any source blocked.
func (s *Service) CheckAddress(address string) error {
	if s.TokenFile != nil && *s.TokenFile != "" || s.ClientCAFile != "" || s.Insecure ||
		IsLocal(address) {
		return nil
	}
	remedy := "give cert_file"
	if s.TokenFile != nil {
		remedy = "give " + s.Name + ".token_file, or cert_file"
	}
	return errors.New(s.Name + ".listen is " + address +
		", which others than this machine may reach, and anyone who does may count for any source, until it is blocked: " +
		remedy + ", key_file and client_ca_file, listen on 127.0.0.1, or say insecure: true")
}
