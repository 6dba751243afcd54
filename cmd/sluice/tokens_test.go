//go:build system

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A signer signs tokens as the examples want them, and has its public key in a file.
type signer struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	file string
}

// signingKey is that of all signers.
var signingKey = sync.OnceValues(func() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) })

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := signingKey()
	must(t, err)
	s := signer{t, key, filepath.Join(t.TempDir(), "jwt.pem")}
	s.publish(key)
	return s
}

// publish writes the public key into the file.
func (s signer) publish(key *ecdsa.PrivateKey) {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	must(s.t, err)
	must(s.t, os.WriteFile(s.file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
}

func (s signer) sign(sub string) string {
	s.t.Helper()
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, nil)
	must(s.t, err)
	text, err := jwt.Signed(with).Claims(map[string]any{"iss": "https://login.example.com", "aud": "api", "sub": sub, "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	must(s.t, err)
	return text
}

// asked sends a request through an edge, and returns its answer's status and what is left.
func (p *process) asked(path string, header ...string) (status int, left string) {
	p.t.Helper()
	req, err := http.NewRequest("GET", "http://"+p.front+path, nil)
	must(p.t, err)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining")
}

// Two edges of a PoP, over a real node, count by the claim of a token, in what requests cost, and tag at one what has been counted at the other.
func TestTokensCostsAndTagsOverATier(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	var mu sync.Mutex
	received := make(map[string]string) // by path, what the origin was told
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] = r.Header.Get("X-Over")
		w.Header().Set("X-Request-Cost", r.URL.Query().Get("cost"))
	}))
	t.Cleanup(o.Close)
	file := write(t, `
jwt: {keys_file: `+s.file+`, issuer: "https://login.example.com"}
rules:
- {name: who, match: {path: /who}, key: "jwt:sub", limit: 100000, window: 1h, cost: {header: X-Request-Cost}}
- {name: soft, match: {path: "/soft/*"}, limit: 1000, window: 1h, cost: 600, action: tag, tag: {header: X-Over, value: "yes"}}
`)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // a young file is read again anyhow
		t.Fatal(err)
	}
	node := startMemcached(t)
	a, b := start(t, o.URL, "--config", file, "--memcached", node), start(t, o.URL, "--config", file, "--memcached", node)
	anna := "Authorization: Bearer " + s.sign("anna")
	if status, left := a.asked("/who?cost=90000", anna); status != 200 || left != "10000" {
		t.Errorf("%d, %s left, want 200, 10000", status, left)
	}
	b.until("told what the first edge has counted for anna", func() bool {
		_, left := b.asked("/who?cost=1", anna)
		n, err := strconv.Atoi(left)
		return err == nil && n < 10000
	})
	if status, left := b.asked("/who?cost=1", "Authorization: Bearer "+s.sign("bert")); status != 200 || left != "99999" {
		t.Errorf("bert: %d, %s left, want 200, 99999", status, left)
	}
	for n, want := range []string{"", "yes"} {
		path := fmt.Sprint("/soft/a", n)
		if status, _ := a.asked(path, "X-Over: no"); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		mu.Lock()
		if received[path] != want {
			t.Errorf("%s: the origin was told %q, want %q", path, received[path], want)
		}
		mu.Unlock()
	}
	n := 0
	b.until("told that the source is over at the first edge", func() bool {
		n++
		path := fmt.Sprint("/soft/b", n)
		if status, _ := b.asked(path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		mu.Lock()
		defer mu.Unlock()
		return received[path] == "yes"
	})
	for _, p := range []*process{a, b} {
		_, body := p.admin("GET", "/metrics")
		for verdict, n := range map[string]int{"tagged": 1, "limited": 0, "mitigated": 0} {
			if line := fmt.Sprintf("sluice_requests_total{rule=\"soft\",verdict=%q} %d\n", verdict, n); !strings.Contains(body, line) {
				t.Errorf("the metrics do not say %s", line)
			}
		}
	}

	// Another key in the same file holds without a word to the edge.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a.asked("/who") // what nobody believed counts together, and not as the first
	s.publish(other)
	a.until("the file with keys is read again", func() bool {
		_, left := a.asked("/who?cost=1", "Authorization: Bearer "+signer{t, other, ""}.sign("carl"))
		return left == "99999"
	})
	if status, left := a.asked("/who?cost=1", anna); status != 200 || len(left) < 5 {
		t.Errorf("a token of the old key: %d, %s left, as if it still counted for anna", status, left)
	}
	s.publish(s.key) // once more: what an edge looks at when it starts is over
	a.until("the file with keys is read once more", func() bool {
		_, left := a.asked("/who?cost=1", anna)
		return len(left) < 5
	})
}
