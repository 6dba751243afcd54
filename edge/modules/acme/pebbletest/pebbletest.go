// Package pebbletest starts Pebble, the ACME server that Let's Encrypt tests with, on free ports of
// this machine, and ends it with the test. Every name is this machine's.
package pebbletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/loadgen/process"
)

// Config is what the server asks and gives.
type Config struct {
	HTTPPort, TLSPort int           // where it asks for proofs
	Lifetime          time.Duration // of certificates; 0: 90 days
	Refused           []string      // hosts for which it gives none
}

// Server is one that has forgotten everything when it is run again.
type Server struct {
	Directory string
	CAFile    string // of its own certificate

	t         testing.TB
	listening string
	args      []string
	cmd       *exec.Cmd
	log       string
}

// Orders is how many were made. It forgets none when it is run again.
func (s *Server) Orders() int {
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(text), "POST /order-plz ->")
}

// Start returns a server that listens.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	free, err := process.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	dir, at, dns := t.TempDir(), free[0].String(), free[1].String()
	s := &Server{t: t, Directory: "https://" + at + "/dir", CAFile: filepath.Join(dir, "cert.pem"),
		listening: at, log: filepath.Join(dir, "log")}
	key := filepath.Join(dir, "key.pem")
	if err := selfSigned(s.CAFile, key); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pebble.json")
	refused, err := json.Marshal(append([]string{}, c.Refused...))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"pebble": {"listenAddress": %q, "managementListenAddress": "", "certificate": %q, "privateKey": %q, "httpPort": %d, "tlsPort": %d, "domainBlocklist": %s, "profiles": {"default": {"description": "", "validityPeriod": %d}}}}`,
		at, s.CAFile, key, c.HTTPPort, c.TLSPort, refused, int(c.Lifetime.Seconds()))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"-config", config, "-dnsserver", dns}
	names := start(t, io.Discard, "pebble-challtestsrv", "-defaultIPv4", "127.0.0.1",
		"-defaultIPv6", "", "-dnsserver", dns, "-doh", "", "-http01", "", "-https01", "",
		"-tlsalpn01", "", "-management", free[2].String())
	t.Cleanup(func() { end(names) })
	t.Cleanup(s.Kill)
	s.Run()
	return s
}

// Run starts a server that was killed.
func (s *Server) Run() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = start(s.t, log, "pebble", s.args...)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; <-tick.C {
		if c, err := net.Dial("tcp", s.listening); err == nil {
			c.Close()
			return
		}
		if time.Now().After(limit) {
			s.t.Fatal("pebble does not listen")
		}
	}
}

// Kill ends the server without notice.
func (s *Server) Kill() { end(s.cmd) }

// start runs a program of Pebble's, which the build's cache keeps.
func start(t testing.TB, log io.Writer, name string, args ...string) *exec.Cmd {
	t.Helper()
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "tool", "-n", "-modfile=peers.mod", name)
	build.Dir = filepath.Dir(strings.TrimSpace(string(module)))
	path, err := build.Output()
	if err != nil {
		t.Fatalf("%s: %v", build, err)
	}
	cmd := exec.Command(strings.TrimSpace(string(path)), args...)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func end(cmd *exec.Cmd) {
	if cmd != nil && cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// selfSigned writes a certificate for this machine that is its own CA.
func selfSigned(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "pebble"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		return err
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		0o600); err != nil {
		return err
	}
	return os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		0o600)
}
