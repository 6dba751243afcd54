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
	if s.CertFile == "" {
		return nil, nil, nil
	}
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Certificate: s.CertFile, Key: s.KeyFile, ClientCA: s.ClientCAFile})
	if err != nil {
		return nil, nil, fmt.Errorf("rate_limit_service: %w", err)
	}
	return certificates.Config("h2"), certificates, nil
}
