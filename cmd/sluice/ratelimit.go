package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"sluice/edge/config"
	"sluice/edge/listen"
)

// rateLimitTLS reads what the rate limit service shows to proxies, and by what it knows them; nil: it speaks no TLS.
func rateLimitTLS(s config.RateLimitService) (*tls.Config, *listen.Certificates, error) {
	if s.CertFile == "" {
		return nil, nil, nil
	}
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Certificate: s.CertFile, Key: s.KeyFile})
	if err != nil {
		return nil, nil, fmt.Errorf("rate_limit_service: %w", err)
	}
	c := certificates.Config()
	c.NextProtos = []string{"h2"}
	if s.ClientCAFile == "" {
		return c, certificates, nil
	}
	text, err := os.ReadFile(s.ClientCAFile)
	if err != nil {
		return nil, nil, fmt.Errorf("rate_limit_service.client_ca_file: %w: give the path of a readable file", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, nil, errors.New("rate_limit_service.client_ca_file: " + s.ClientCAFile + " has no certificate in PEM")
	}
	return c, certificates, nil
}
