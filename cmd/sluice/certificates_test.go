package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/edge/listen"
)

// The series of a listener are bounded, and are of those certificates that expire first.
func TestExpiriesThatAreShown(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []listen.Expiry
	for i := range 3 * shownExpiries {
		all = append(all, listen.Expiry{File: fmt.Sprint(i), At: day.AddDate(0, 0, -i)})
	}
	shown := firstToExpire(all)
	if len(shown) != shownExpiries || shown[0] != all[len(all)-1] || shown[1] != all[len(all)-2] || all[0].File != "0" {
		t.Errorf("%d: %v", len(shown), shown)
	}
	if one := firstToExpire(all[:1]); len(one) != 1 {
		t.Errorf("%v", one)
	}
}

// An authority makes certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	dir  string
	last int64
	left time.Duration // that what it issues is valid; 0: a year
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), last: 1}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

// issue makes a certificate and its key, and returns their files.
func (a *authority) issue(t *testing.T, name string, addresses ...net.IP) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.last++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: addresses, NotAfter: time.Now().Add(cmp.Or(a.left, 365*24*time.Hour))}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", secret)
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
