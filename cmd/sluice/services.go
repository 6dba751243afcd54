package main

import (
	"fmt"
	"net"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/config"
	"sluice/edge/listen"
)

// A called is what a module has programs call, with what its listener needs.
type called struct {
	config.Service
	token        *bearer.Token
	certificates *listen.Certificates // nil: it speaks no TLS
	at           net.Listener
	answers      edge.Service
}

// calledOf are those of a configuration that listen somewhere.
func calledOf(c *config.Config) (list []*called) {
	for _, s := range c.Services() {
		if s.Listen != "" {
			list = append(list, &called{Service: s})
		}
	}
	return list
}

// readToken reads what callers must send. file is "" if they send nothing.
func (s *called) readToken() (setting, file string, err error) {
	if s.TokenFile == nil {
		return "", "", nil
	}
	setting, file = s.Name+".token_file", *s.TokenFile
	text, err := settings.ReadToken(setting, file)
	s.token = bearer.New(text)
	return setting, file, err
}

// readCertificates reads the certificate of the listener, and how it authenticates programs.
func (s *called) readCertificates() (err error) {
	if s.CertFile == "" {
		return nil
	}
	s.certificates, err = listen.LoadCertificates(listen.TLSConfig{Certificate: s.CertFile,
		Key: s.KeyFile, ClientCA: s.ClientCAFile})
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// makeServices makes what answers programs. Their listeners are open.
func (d *daemon) makeServices() {
	for _, s := range d.services {
		calls := edge.Calls{Token: s.token, Log: d.log}
		if s.certificates != nil {
			calls.TLS = s.certificates.Config(s.Protocol)
		}
		s.answers = d.modules.Serve(s.Name, calls)
	}
}

// serviceNames are those of all that may listen.
func serviceNames(c *config.Config) (list []string) {
	for _, s := range c.Services() {
		list = append(list, s.Name)
	}
	return list
}
