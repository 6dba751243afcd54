package listen

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// TLSConfig is where the certificates are: one pair of files in PEM, a folder of them, or both. In
// a folder NAME.crt or NAME.pem holds a certificate with its chain, and NAME.key the key.
type TLSConfig struct {
	Certificate string `json:"certificate" want:"file"`
	Key         string `json:"key" want:"file"`
	Folder      string `json:"folder" want:"file"`
	// Certificates in PEM, one of which must have signed the client's; "": clients need none
	ClientCA string
}

// Certificates are what the edge shows to clients that speak TLS: the one for the name that the
// client requests (SNI), else the first: that of the single pair, or of the folder's first file;
// and how it authenticates clients. It is safe for concurrent use.
type Certificates struct {
	files  TLSConfig
	set    atomic.Pointer[certificateSet]
	failed atomic.Uint64

	// Issued and First, where they are not nil, are of what was got by itself: the certificate for
	// a client, which goes before those of files, and the one for a client that none is for, where
	// there are no files. Set them before the first client.
	Issued func(*tls.ClientHelloInfo) *tls.Certificate
	First  func() *tls.Certificate
}

// Expiry is when a certificate is no longer valid, or the first of its chain.
type Expiry struct {
	File string
	At   time.Time
}

// Description is a warning of a certificate that has expired, or will within Soon; "": there is
// nothing to warn of.
func (e Expiry) Description(now time.Time) string {
	on := e.At.UTC().Format("2006-01-02 15:04Z")
	switch left := e.At.Sub(now); {
	case left <= 0:
		return fmt.Sprintf("the certificate in %s has expired, on %s: clients refuse it; put a new one there", e.File, on)
	case left < Soon:
		in := "less than a day"
		if days := int(left.Hours() / 24); days == 1 {
			in = "1 day"
		} else if days > 1 {
			in = fmt.Sprintf("%d days", days)
		}
		return fmt.Sprintf("the certificate in %s expires on %s, in %s: put a new one there",
			e.File, on, in)
	}
	return ""
}

// ExpiryMetric is of when certificates that listeners show expire, by listener and name.
const (
	ExpiryMetric = "sluice_certificate_expiry_timestamp_seconds"
	ExpiryHelp   = "When a certificate that a listener shows expires, or the first of its chain; of a folder's, the 32 that expire first."
)

// Soon is how long before its end a certificate is worth a warning. ACME clients renew a month
// before.
const Soon = 14 * 24 * time.Hour

// Expiries returns the expiry of all certificates in use, in the order of the files.
func (c *Certificates) Expiries() []Expiry { return c.set.Load().expiries }

// Failures is how often files could not be read again, or were wrong.
func (c *Certificates) Failures() uint64 { return c.failed.Load() }

type certificateSet struct {
	digest [sha256.Size]byte // of all files
	first  *tls.Certificate
	names  map[string]*tls.Certificate // in lower case; "*.example.com" as well

	expiries []Expiry

	clients *x509.CertPool // nil: clients need no certificate
}

// LoadCertificates reads all of them. Errors name the file.
func LoadCertificates(c TLSConfig) (*Certificates, error) {
	all := &Certificates{files: c}
	if _, err := all.Refresh(); err != nil {
		return nil, err
	}
	return all, nil
}

// Refresh reads the files again if any of them has changed, for handshakes from now on, and reports
// whether it has. After an error the old certificates stay.
func (c *Certificates) Refresh() (changed bool, err error) {
	defer func() {
		if err != nil {
			c.failed.Add(1)
		}
	}()
	pairs, err := c.files.pairs()
	if err != nil {
		return false, err
	}
	set, digest := &certificateSet{names: make(map[string]*tls.Certificate)}, sha256.New()
	texts := make([][2][]byte, len(pairs))
	for i, pair := range pairs {
		for j, file := range pair {
			if texts[i][j], err = os.ReadFile(file); err != nil {
				return false, fmt.Errorf("edge: certificates: %w", err)
			}
			fmt.Fprintf(digest, "%s %d ", file, len(texts[i][j]))
			digest.Write(texts[i][j])
		}
	}
	var clients []byte
	if c.files.ClientCA != "" {
		if clients, err = os.ReadFile(c.files.ClientCA); err != nil {
			return false, fmt.Errorf("edge: CA of clients: %w: give the path of a readable file",
				err)
		}
		digest.Write(clients)
	}
	digest.Sum(set.digest[:0])
	if before := c.set.Load(); before != nil && before.digest == set.digest {
		return false, nil
	}
	for i, pair := range pairs {
		cert, err := tls.X509KeyPair(texts[i][0], texts[i][1])
		if err != nil {
			return false, fmt.Errorf("edge: certificate %s: %w", pair[0], err)
		}
		e := Expiry{pair[0], cert.Leaf.NotAfter}
		for _, der := range cert.Certificate[1:] {
			if above, err := x509.ParseCertificate(der); err == nil && above.NotAfter.Before(e.At) {
				e.At = above.NotAfter
			}
		}
		set.expiries = append(set.expiries, e)
		if set.first == nil {
			set.first = &cert
		}
		names := cert.Leaf.DNSNames
		if len(names) == 0 && cert.Leaf.Subject.CommonName != "" {
			names = []string{cert.Leaf.Subject.CommonName}
		}
		for _, name := range names {
			if name = strings.ToLower(name); set.names[name] == nil {
				set.names[name] = &cert
			}
		}
	}
	if c.files.ClientCA != "" {
		if set.clients = x509.NewCertPool(); !set.clients.AppendCertsFromPEM(clients) {
			return false,
				fmt.Errorf("edge: CA of clients: %s has no certificate in PEM: put the CA's there",
					c.files.ClientCA)
		}
	}
	c.set.Store(set)
	return true, nil
}

// pairs are the files of certificates and their keys.
func (c TLSConfig) pairs() (pairs [][2]string, err error) {
	if c.Certificate != "" {
		pairs = append(pairs, [2]string{c.Certificate, c.Key})
	}
	if c.Folder == "" {
		return pairs, nil
	}
	files, err := os.ReadDir(c.Folder) // sorted
	if err != nil {
		return nil, fmt.Errorf("edge: certificates: %w", err)
	}
	for _, f := range files {
		ext := filepath.Ext(f.Name())
		if f.IsDir() || ext != ".crt" && ext != ".pem" {
			continue
		}
		base := filepath.Join(c.Folder, strings.TrimSuffix(f.Name(), ext))
		pairs = append(pairs, [2]string{base + ext, base + ".key"})
	}
	if len(pairs) == 0 {
		return nil, errors.New("edge: certificates: " + c.Folder +
			" has no NAME.crt or NAME.pem: put certificates with their NAME.key there")
	}
	return pairs, nil
}

// ProofProtocol is what a server of ACME speaks that asks for a proof (RFC 8737): nothing comes
// after its handshake.
const ProofProtocol = "acme-tls/1"

// Config is for listeners that speak these protocols, those that are liked best first: each
// handshake finds what was read last. A session that is resumed is held against the CA of clients
// as it is then.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	if c.Issued != nil {
		protocols = append(slices.Clip(protocols), ProofProtocol)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     protocols,
		GetCertificate: c.choose,
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if g, is := hello.Conn.(*greeted); is {
			g.client.Hello = g.find(hello)
		}
		weak := slices.Contains(protocols, "h2") && c.isWeak(hello)
		if !weak && c.files.ClientCA == "" {
			return nil, nil // as it is
		}
		now := config.Clone()
		now.GetConfigForClient = nil
		if weak {
			now.NextProtos = slices.DeleteFunc(slices.Clone(protocols),
				func(p string) bool { return p == "h2" })
			now.SessionTicketsDisabled = true // else it could be taken up again, and HTTP/2 with it
		}
		if c.files.ClientCA != "" {
			now.ClientCAs, now.ClientAuth = c.set.Load().clients, tls.RequireAndVerifyClientCert
		}
		return now, nil
	}
	return config
}

// isWeak reports whether a handshake will end in a cipher that HTTP/2 is not spoken over (RFC 9113,
// appendix A): of those that TLS 1.2 has here, all without AEAD. Go prefers those with it, where
// client and certificate have one in common.
func (c *Certificates) isWeak(hello *tls.ClientHelloInfo) bool {
	if slices.Contains(hello.SupportedVersions, tls.VersionTLS13) {
		return false
	}
	cert, err := c.choose(hello)
	if err != nil || cert == nil {
		return false // there will be no connection
	}
	strong := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}
	if _, ok := cert.PrivateKey.(*rsa.PrivateKey); ok {
		strong = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}
	}
	return !slices.ContainsFunc(hello.CipherSuites,
		func(id uint16) bool { return slices.Contains(strong, id) })
}

func (c *Certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.Issued != nil {
		if cert := c.Issued(hello); cert != nil {
			return cert, nil
		}
	}
	set, name := c.set.Load(), strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if cert := set.names[name]; cert != nil {
		return cert, nil
	}
	if i := bytes.IndexByte([]byte(name), '.'); i > 0 {
		if cert := set.names["*"+name[i:]]; cert != nil {
			return cert, nil
		}
	}
	if set.first == nil && c.First != nil {
		return c.First(), nil
	}
	return set.first, nil
}
