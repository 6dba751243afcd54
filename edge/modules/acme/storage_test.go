package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
)

// pair is a certificate for a.example with its key, in PEM, that so much of its time is left of.
func pair(t *testing.T, left time.Duration) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	end := time.Now().Add(left)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotBefore: end.Add(-90 * 24 * time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func newManager(t *testing.T, storage certmagic.Storage) *Manager {
	t.Helper()
	m, err := New(Options{Config: Config{Hosts: []string{"a.example"}, Directory: "https://ca.example/dir"}, Storage: storage})
	must(t, err)
	t.Cleanup(m.cache.Stop)
	return m
}

// readOnly is a storage that cannot be written.
type readOnly struct{ certmagic.Storage }

func (readOnly) Store(context.Context, string, []byte) error {
	return errors.New("read-only file system")
}

// A renewal that is late is told, though no order has failed: where the storage cannot be written none begins.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		name    string
		left    time.Duration
		storage certmagic.Storage
		failed  error
		want    string
	}{
		{"not yet", 29 * day, readOnly{Folder(t.TempDir())}, nil, ""},
		{"late", 26 * day, readOnly{Folder(t.TempDir())}, nil, "the storage cannot be written: read-only file system"},
		{"over", -day, readOnly{Folder(t.TempDir())}, errors.New("before"), "the storage cannot be written: read-only file system"},
		{"no attempt", 26 * day, Folder(t.TempDir()), nil, errLate.Error()},
		{"another reason", 26 * day, Folder(t.TempDir()), errors.New("the server is away"), "the server is away"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newManager(t, test.storage)
			cert, key := pair(t, test.left)
			shown, err := tls.X509KeyPair(cert, key)
			must(t, err)
			_, err = m.magic.CacheUnmanagedTLSCertificate(t.Context(), shown, nil)
			must(t, err)
			if test.failed != nil {
				m.fail("a.example", test.failed, true)
			}
			m.attend(t.Context())
			if s := m.Status()[0]; s.Error != test.want {
				t.Errorf("%q, want %q", s.Error, test.want)
			}
		})
	}
}

// What is stored of a host and is no certificate with its key is removed, or none would be ordered again.
func TestDiscard(t *testing.T) {
	t.Parallel()
	cert, key := pair(t, time.Hour)
	_, other := pair(t, time.Hour)
	for _, test := range []struct {
		name, cert, key, meta string
		stays                 bool
	}{
		{"whole", string(cert), string(key), "{}", true},
		{"the key of another", string(cert), string(other), "{}", false},
		{"no certificate", "", string(key), "{}", false},
		{"half a key", string(cert), string(key[:40]), "{}", false},
		{"half a text", string(cert), string(key), `{"sans":`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			storage := Folder(t.TempDir())
			m := newManager(t, storage)
			for end, text := range map[string]string{".crt": test.cert, ".key": test.key, ".json": test.meta} {
				must(t, storage.Store(t.Context(), "certificates/ca.example-dir/a.example/a.example"+end, []byte(text)))
			}
			m.discard(t.Context(), "a.example")
			list, _ := storage.List(t.Context(), "certificates", true)
			if stays := strings.Contains(strings.Join(list, " "), ".key"); stays != test.stays {
				t.Errorf("stays: %v; %q", stays, list)
			}
		})
	}
}
