package main

import (
	"crypto/tls"
	"fmt"

	"sluice/edge/config"
	"sluice/edge/listen"
)

// rateLimitTLS reads the certificate of the rate limit service, and how it authenticates proxies; nil: it speaks no
// TLS.
func rateLimitTLS(s config.RateLimitService) (*tls.Config, *listen.Certificates, error) {
	return serviceTLS("rate_limit_service", "h2", listen.TLSConfig{Certificate: s.CertFile, Key: s.KeyFile, ClientCA: s.ClientCAFile})
}

// limitAPITLS is the same of the limit API and its programs.
func limitAPITLS(l config.LimitAPI) (*tls.Config, *listen.Certificates, error) {
	return serviceTLS("limit_api", "http/1.1", listen.TLSConfig{Certificate: l.CertFile, Key: l.KeyFile, ClientCA: l.ClientCAFile})
}

func serviceTLS(name, protocol string, files listen.TLSConfig) (*tls.Config, *listen.Certificates, error) {
	if files.Certificate == "" {
		return nil, nil, nil
	}
	certificates, err := listen.LoadCertificates(files)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return certificates.Config(protocol), certificates, nil
}
