package main

import (
	"crypto/tls"
	"fmt"

	"sluice/edge/config"
	"sluice/edge/listen"
)

// callersTLS reads the certificate of a listener for programs that speak protocol, and how it authenticates them; nil: it
// speaks no TLS.
func callersTLS(name, protocol string, c *config.Callers) (*tls.Config, *listen.Certificates, error) {
	if c.CertFile == "" {
		return nil, nil, nil
	}
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Certificate: c.CertFile, Key: c.KeyFile, ClientCA: c.ClientCAFile})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return certificates.Config(protocol), certificates, nil
}
