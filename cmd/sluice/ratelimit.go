package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"sluice/edge/config"
	"sluice/edge/listen"
	"sluice/edge/metric"
)

// callersTLS reads the certificate of a listener for programs that speak protocol, and how it
// authenticates them; nil: it speaks no TLS.
func callersTLS(name, protocol string,
	c *config.Callers) (*tls.Config, *listen.Certificates, error) {
	if c.CertFile == "" {
		return nil, nil, nil
	}
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Certificate: c.CertFile,
		Key: c.KeyFile, ClientCA: c.ClientCAFile})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return certificates.Config(protocol), certificates, nil
}

// A callService answers proxies that call over gRPC, as edge/ratelimit does.
type callService interface {
	Serve(net.Listener) error
	Drain(context.Context)
	Collect(to metric.Sink)
}
