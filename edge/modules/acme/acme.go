// Package acme gets certificates from an ACME server (RFC 8555), such as Let's Encrypt, and renews
// them: certmagic does the work, and this is what an edge needs of it. The server asks the edge for
// a proof, at one of its own listeners: a text under /.well-known/acme-challenge/ (HTTP-01), which
// Answer has, or a certificate for the protocol acme-tls/1 (TLS-ALPN-01, RFC 8737), which
// Certificate has.
//
// Certificates, keys, accounts and proofs under way are in a Storage, which edges may share: then
// one of them orders, under a lock, the others take what it got, and each answers for proofs that
// another began.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"

	"sluice/edge"
	"sluice/edge/control"
)

// Challenges are the ways to prove that a host is ours.
const (
	HTTP    = "http-01"
	TLSALPN = "tls-alpn-01"
)

// Protocol is what a server of ACME speaks that asks for a proof by TLS-ALPN-01.
const Protocol = "acme-tls/1"

// LetsEncrypt is the directory of a Config that names none.
const LetsEncrypt = certmagic.LetsEncryptProductionCA

// Config is for which hosts certificates are wanted, and from whom.
type Config struct {
	Hosts      []string // in lower case, without wildcards
	Email      string   // "": none is given
	Directory  string   // URL of the server; "": LetsEncrypt
	CAFile     string   // of the server's own certificate, in PEM; "": those of the system
	Agree      bool     // to the server's terms
	Challenges []string // HTTP, TLSALPN or both
}

// A Manager gets certificates and keeps them. It is safe for concurrent use.
type Manager struct {
	config Config
	hosts  map[string]bool
	cache  *certmagic.Cache
	magic  *certmagic.Config
	issuer *certmagic.ACMEIssuer
	event  func(host, reason string, renewal bool) // Options.Event

	mu       sync.Mutex
	failures uint64
	failed   map[string]control.Certificate // hosts whose latest attempt has failed
}

// Options is what a Manager is made of.
type Options struct {
	Config
	Storage certmagic.Storage
	// Ports are where the edge listens, and so where certmagic need not listen itself to give a proof:
	// where there is none, there is no such proof.
	Ports edge.Ports
	// Event, if not nil, is called when a host has got a certificate, or, with a reason, when an
	// attempt has failed.
	Event func(host, reason string, renewal bool)
}

// New makes a manager, and reaches for nothing.
func New(o Options) (*Manager, error) {
	m := &Manager{config: o.Config, hosts: make(map[string]bool), event: o.Event,
		failed: make(map[string]control.Certificate)}
	for _, h := range o.Hosts {
		m.hosts[h] = true
	}
	quiet := zap.NewNop() // what it would say, events do
	m.cache = certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return m.magic, nil }, Logger: quiet})
	m.magic = certmagic.New(m.cache, certmagic.Config{Storage: &proofs{Storage: o.Storage,
		looked: make(map[string]look)}, Logger: quiet, OnEvent: m.happened,
		// Whoever has it ask would have a start wait for it
		OCSP: certmagic.OCSPConfig{DisableStapling: true}})
	issuer := certmagic.ACMEIssuer{CA: o.Directory, Email: o.Email, Agreed: o.Agree, Logger: quiet,
		ListenHost: o.Ports.Host, AltHTTPPort: o.Ports.HTTP, AltTLSALPNPort: o.Ports.TLS,
		DisableHTTPChallenge: o.Ports.HTTP == 0 ||
			!slices.Contains(o.Challenges, HTTP), DisableTLSALPNChallenge: o.Ports.TLS == 0 ||
			!slices.Contains(o.Challenges, TLSALPN)}
	issuer.NewAccountFunc = func(_ context.Context, _ *certmagic.ACMEIssuer,
		a acme.Account) (acme.Account, error) {
		// The folder of an account without an address is called default. Where that has no account,
		// as while the order of another host writes it, certmagic takes the name for an address,
		// and servers refuse it.
		a.Contact = slices.DeleteFunc(a.Contact,
			func(c string) bool { return c == "mailto:default" })
		return a, nil
	}
	if issuer.CA == "" {
		issuer.CA = LetsEncrypt
	}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("acme.ca_file: %w: give the path of a readable file", err)
		}
		issuer.TrustedRoots = x509.NewCertPool()
		if !issuer.TrustedRoots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("acme.ca_file: %s has no certificate in PEM: put the CA's there",
				o.CAFile)
		}
	}
	m.issuer = certmagic.NewACMEIssuer(m.magic, issuer)
	m.magic.Issuers = []certmagic.Issuer{m.issuer}
	return m, nil
}

const (
	// startTime is how long a start waits for the storage.
	startTime = 2 * time.Second
	// retryAfter is when an order is tried again that the storage did not answer for; then it is
	// twice as long each time, up to retryAtMost. Where it is the server that is away, or refuses,
	// certmagic tries again itself: after a minute, then later and later.
	retryAfter  = 5 * time.Second
	retryAtMost = time.Hour
)

// Load takes the certificates that are stored, so that those are shown from the first client on.
func (m *Manager) Load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var under sync.WaitGroup
	for _, host := range m.config.Hosts {
		// Keep tells why not
		under.Go(func() { _, _ = m.magic.CacheManagedCertificate(ctx, host) })
	}
	under.Wait()
}

// Run has those ordered in the background that Load has not found, and all renewed, until ctx is
// done. It ends when all locks are given up.
//
// certmagic's ManageAsync is not used: it forgets a host whose storage does not answer when it is
// first asked.
func (m *Manager) Run(ctx context.Context) {
	defer m.cache.Stop()
	var under sync.WaitGroup
	for _, host := range m.config.Hosts {
		under.Go(func() { m.keep(ctx, host) })
	}
	m.renew(ctx) // what came near its end while no edge ran
	for tick := time.NewTicker(certmagic.DefaultRenewCheckInterval); ; {
		select {
		case <-ctx.Done():
			under.Wait()
			return
		case <-tick.C:
			m.attend(ctx)
		}
	}
}

// keep orders the certificate of a host, unless it is there, until it is. From then on the cache
// has it renewed.
func (m *Manager) keep(ctx context.Context, host string) {
	for wait := retryAfter; m.of(host) == nil; wait = min(2*wait, retryAtMost) {
		err := m.magic.ObtainCertAsync(ctx, host)
		if err == nil {
			_, err = m.magic.CacheManagedCertificate(ctx, host)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		m.fail(host, err, false)
		if wait > retryAfter { // else another edge may be about to store the rest
			m.discard(ctx, host)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// discard removes what is stored of a host if that is no certificate with its key, as after a crash
// between the two: certmagic orders none as long as there is something.
func (m *Manager) discard(ctx context.Context, host string) {
	of, names := m.issuer.IssuerKey(), certmagic.StorageKeys
	var text [3][]byte
	for i, key := range []string{names.SiteCert(of, host), names.SitePrivateKey(of, host),
		names.SiteMeta(of, host)} {
		var err error
		if text[i], err = m.magic.Storage.Load(ctx, key); err != nil {
			return // the storage is away, or there is less than all, which is ordered
		}
	}
	if _, err := tls.X509KeyPair(text[0], text[1]); err != nil || !json.Valid(text[2]) {
		_ = m.magic.Storage.Delete(ctx, names.CertsSitePrefix(of, host)) // else next time
	}
}

// attend tells of certificates whose renewal is late. certmagic tells of a server that is away or
// refuses, but writes only to its log if it does not get as far as that: the storage cannot be
// written, or nobody gives up a lock.
func (m *Manager) attend(ctx context.Context) {
	for _, host := range m.config.Hosts {
		c := m.of(host)
		if c == nil || time.Until(c.NotAfter).Seconds() > late*c.NotAfter.Sub(c.NotBefore).
			Seconds() {
			continue
		}
		if err := m.write(ctx); err != nil && ctx.Err() == nil {
			m.fail(host, fmt.Errorf("the storage cannot be written: %w", err), true)
		} else if !m.hasFailed(host) {
			m.fail(host, errLate, true)
		}
	}
}

// late is the part of a certificate's time that is left when its renewal is late: it begins when a
// third is.
const late = 0.3

var errLate = errors.New("no attempt has come to an end: look for a lock in the storage that nobody gives up")

// write reports why the storage cannot be written.
func (m *Manager) write(ctx context.Context) error {
	const key = "written"
	if err := m.magic.Storage.Store(ctx, key, nil); err != nil {
		return err
	}
	return m.magic.Storage.Delete(ctx, key)
}

func (m *Manager) hasFailed(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed[host].Error != ""
}

// renew has those ordered again that are near their end, or takes what another edge got.
// It returns no error
func (m *Manager) renew(ctx context.Context) { _ = m.cache.RenewManagedCertificates(ctx) }

// fail notes that a host has got no certificate. The same reason is told once.
func (m *Manager) fail(host string, err error, renewal bool) {
	s := control.Certificate{Host: host, Until: until(m.of(host)), Error: reason(err), FailedAt: time.Now()}
	m.mu.Lock()
	m.failures++
	again := m.failed[host].Error == s.Error
	m.failed[host] = s
	m.mu.Unlock()
	if m.event != nil && !again {
		m.event(host, s.Error, renewal)
	}
}

// happened takes certmagic's events.
func (m *Manager) happened(_ context.Context, name string, data map[string]any) error {
	host, _ := data["identifier"].(string)
	renewal, _ := data["renewal"].(bool)
	switch name {
	case "cert_obtained":
		m.mu.Lock()
		delete(m.failed, host)
		m.mu.Unlock()
		if m.event != nil {
			m.event(host, "", renewal)
		}
	case "cert_failed":
		err, _ := data["error"].(error)
		if err == nil {
			err = errors.New("no reason is known")
		}
		m.fail(host, err, renewal)
	}
	return nil
}

// reason is an error in a line: what the server says, if it is the one that says no.
func reason(err error) string {
	var p acme.Problem
	if errors.As(err, &p) {
		for _, s := range p.Subproblems {
			if s.Detail != "" {
				return s.Detail
			}
		}
		if p.Detail != "" {
			return p.Detail
		}
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// Status is how the certificate of each host is, in the order of the configuration.
func (m *Manager) Status() []control.Certificate {
	all := make([]control.Certificate, 0, len(m.config.Hosts))
	for _, host := range m.config.Hosts {
		m.mu.Lock()
		s := m.failed[host]
		m.mu.Unlock()
		if now := until(m.of(host)); !now.Equal(s.Until) {
			s = control.Certificate{Until: now} // since it failed here, another edge got one
		}
		s.Host = host
		all = append(all, s)
	}
	return all
}

// until is when a certificate expires; zero: there is none.
func until(c *x509.Certificate) (at time.Time) {
	if c != nil {
		at = c.NotAfter
	}
	return at
}

// of is the leaf of a host's certificate; nil: there is none.
func (m *Manager) of(host string) *x509.Certificate {
	for _, c := range m.cache.AllMatchingCertificates(host) {
		if c.Leaf != nil {
			return c.Leaf
		}
	}
	return nil
}

// Failures is how often an attempt has failed.
func (m *Manager) Failures() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failures
}

// Certificate is what a client is shown: a proof, where that is asked for, else the certificate of
// a host that this is for; nil: it is for another, or there is none yet.
func (m *Manager) Certificate(hello *tls.ClientHelloInfo) *tls.Certificate {
	host := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if !m.hosts[host] {
		return nil
	}
	c, err := m.magic.GetCertificate(hello)
	if err != nil {
		return nil
	}
	return c
}

// First is the certificate of the first host that has one, for clients that ask for no host, or for
// one that nobody has.
func (m *Manager) First() *tls.Certificate {
	for _, host := range m.config.Hosts {
		for _, c := range m.cache.AllMatchingCertificates(host) {
			return &c.Certificate
		}
	}
	return nil
}

// Answer is the proof that a server of ACME asks a host for at a path (RFC 8555, 8.3); nil: none is
// under way there.
func (m *Manager) Answer(ctx context.Context, host, path string) []byte {
	if !m.hosts[host] {
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return nil
	}
	w := &answer{header: make(http.Header)}
	if !m.issuer.HandleHTTPChallenge(w, r) {
		return nil
	}
	return w.body
}

// An answer is what certmagic answers.
type answer struct {
	header http.Header
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(int)     {}
func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

// Folder is a Storage in a folder, which the edges of one machine may share.
func Folder(path string) certmagic.Storage { return &certmagic.FileStorage{Path: path} }
