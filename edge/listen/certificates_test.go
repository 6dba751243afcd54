package listen

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExpirySays(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		-time.Second:       " has expired, on 2026-01-02 03:04Z:",
		5 * time.Hour:      ", in less than a day: put",
		30 * time.Hour:     ", in 1 day: put",
		50 * time.Hour:     ", in 2 days: put",
		Soon + time.Second: "",
	} {
		if got := (Expiry{File: "a.crt", At: now.Add(left)}).Description(now); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q, want %q", left, got, want)
		}
	}
}

// writeHTTPTestCertificate writes the certificate and the key of net/http/httptest to base.crt and base.key.
func writeHTTPTestCertificate(t *testing.T, base string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, ".key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(base+ext, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// It is known when each certificate expires, and how often files could not be read again; a warning begins two weeks before.
func TestCertificatesExpire(t *testing.T) {
	folder := t.TempDir()
	writeHTTPTestCertificate(t, filepath.Join(folder, "a"))
	certificates, err := LoadCertificates(TLSConfig{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	all := certificates.Expiries()
	if len(all) != 1 || all[0].File != filepath.Join(folder, "a.crt") || certificates.Failures() != 0 {
		t.Fatalf("%+v, %d failures", all, certificates.Failures())
	}
	e := all[0]
	for left, want := range map[time.Duration]string{-time.Second: "has expired", 25 * time.Hour: "in 1 day:", Soon - time.Second: "expires on", Soon: ""} {
		if says := e.Description(e.At.Add(-left)); want == "" && says != "" || !strings.Contains(says, want) {
			t.Errorf("%v before: %q", left, says)
		}
	}
	if err := os.Remove(filepath.Join(folder, "a.key")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := certificates.Refresh(); err == nil {
			t.Error("a key that is away is no failure")
		}
	}
	if certificates.Failures() != 2 || len(certificates.Expiries()) != 1 {
		t.Errorf("%d failures, %+v", certificates.Failures(), certificates.Expiries())
	}
}
