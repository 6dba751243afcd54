package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sign makes a token.
func sign(t testing.TB, algorithm, id string, key any, claims map[string]any) []byte {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func file(t testing.TB, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func publicPEM(t testing.TB, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func load(t testing.TB, text []byte, c Settings, claims ...string) *Verifier {
	t.Helper()
	c.KeysFile = file(t, text)
	v, err := read(&c, new(atomic.Uint64))
	if err != nil {
		t.Fatal(err)
	}
	return v.keep(claims, nil)
}

func (c *Claims) of(claim string) []byte {
	if c == nil {
		return nil
	}
	return of(c.values, []byte(claim))
}

type claims = map[string]any

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What is believed, and when. Each token is asked for twice, because the second answer comes out of the tables.
func TestVerify(t *testing.T) {
	ours, theirs := ecKey(t), ecKey(t)
	v := load(t, publicPEM(t, ours.Public()), Settings{Algorithms: algorithms{"ES256"}, Issuer: "us", Audience: "api", Leeway: 30 * time.Second}, "sub", "n", "ok", "list")
	base := func(more claims) claims {
		c := claims{"iss": "us", "aud": []string{"other", "api"}, "sub": "anna", "exp": at.Add(time.Minute).Unix()}
		for name, value := range more {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		}
		return c
	}
	good := func(more claims) []byte { return sign(t, "ES256", "", ours, base(more)) }
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + strings.Split(string(good(nil)), ".")[1] + "."
	changed := good(nil)
	changed[len(changed)-10] ^= 1
	steps := []struct {
		name  string
		token []byte
		after time.Duration
		want  string // of sub
	}{
		{"good", good(nil), 0, "anna"},
		{"of another's key", sign(t, "ES256", "", theirs, base(nil)), 0, ""},
		{"changed", changed, 0, ""},
		{"not signed at all", []byte(none), 0, ""},
		{"signed with the public key as if it were a secret", sign(t, "HS256", "", publicPEM(t, ours.Public()), base(nil)), 0, ""},
		{"at its end, within the leeway", good(nil), 89 * time.Second, "anna"},
		{"expired", good(nil), 90 * time.Second, ""},
		{"not yet valid", good(claims{"nbf": at.Add(time.Minute).Unix()}), 29 * time.Second, ""},
		{"valid from now", good(claims{"nbf": at.Add(time.Minute).Unix()}), 30 * time.Second, "anna"},
		{"valid from the beginning of time", good(claims{"nbf": 0}), 0, "anna"},
		{"without an end", good(claims{"exp": nil}), 1000 * time.Hour, "anna"},
		{"an end that no clock reaches", good(claims{"exp": 1e18}), 0, ""},
		{"an end that would be none", good(claims{"exp": 0}), 0, ""},
		{"not valid in this life, nor as ns in 64 bits", good(claims{"nbf": 18446744074}), 0, ""},
		{"an end before all time", good(claims{"exp": -5}), 0, ""},
		{"another issuer", good(claims{"iss": "them"}), 0, ""},
		{"no issuer", good(claims{"iss": nil}), 0, ""},
		{"another audience", good(claims{"aud": "other"}), 0, ""},
		{"one audience", good(claims{"aud": "api"}), 0, "anna"},
		{"no sub", good(claims{"sub": nil}), 0, ""},
		{"a number", good(claims{"sub": json.Number("12345678901234567890")}), 0, "12345678901234567890"},
		{"a list", good(claims{"sub": []string{"a"}}), 0, ""},
		{"longer than a key may be", good(claims{"sub": strings.Repeat("a", 257)}), 0, ""},
		{"no token", []byte("abc"), 0, ""},
		{"too long", []byte(strings.Repeat("a", maxToken+1)), 0, ""},
	}
	for _, s := range steps {
		for n := range 2 {
			if got := v.Verify(s.token, at.Add(s.after)).of("sub"); string(got) != s.want {
				t.Errorf("%s, time %d: %q, want %q", s.name, n+1, got, s.want)
			}
		}
	}
	token := good(nil) // known as good, it ends all the same
	if v.Verify(token, at) == nil || v.Verify(token, at.Add(time.Hour)) != nil || v.Verify(token, at) == nil {
		t.Error("a known token is believed after its end, or not before it")
	}
	if n := testing.AllocsPerRun(100, func() { v.Verify(token, at) }); n != 0 {
		t.Errorf("a known token allocates %v times", n)
	}
}

// Keys of a set are told apart by their names, and each is for its own algorithm alone.
func TestKeySet(t *testing.T) {
	first, second := ecKey(t), ecKey(t)
	edPublic, ed, _ := ed25519.GenerateKey(rand.Reader)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: first.Public(), KeyID: "1", Use: "sig"}, {Key: second.Public(), KeyID: "2", Use: "enc"}, {Key: edPublic, KeyID: "3"},
		{Key: rsaKey.Public(), KeyID: "4", Algorithm: "RS256"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	v := load(t, set, Settings{Algorithms: algorithms{"ES256", "EdDSA", "RS256", "PS256"}}, "sub")
	who := claims{"sub": "a"}
	for _, s := range []struct {
		name  string
		token []byte
		want  bool
	}{
		{"by name", sign(t, "ES256", "1", first, who), true},
		{"without a name", sign(t, "ES256", "", first, who), true},
		{"by another's name", sign(t, "ES256", "3", first, who), false},
		{"by a name that is not there", sign(t, "ES256", "5", first, who), false},
		{"a key that is not for signatures", sign(t, "ES256", "2", second, who), false},
		{"EdDSA", sign(t, "EdDSA", "3", ed, who), true},
		{"RS256", sign(t, "RS256", "4", rsaKey, who), true},
		{"a key that is for another algorithm", sign(t, "PS256", "4", rsaKey, who), false},
	} {
		if got := v.Verify(s.token, at) != nil; got != s.want {
			t.Errorf("%s: believed %v, want %v", s.name, got, s.want)
		}
	}
}

// A secret is one, and public keys are none.
func TestKeyFiles(t *testing.T) {
	ec := ecKey(t)
	public := publicPEM(t, ec.Public())
	small, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte(strings.Repeat("s", 32) + "\n")
	set := func(k jose.JSONWebKey) []byte {
		text, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k}})
		return text
	}
	many := func(n int) (text []byte) {
		for range n {
			text = append(text, publicPEM(t, ecKey(t).Public())...)
		}
		return text
	}
	for _, s := range []struct {
		name, algorithms string
		text             []byte
		want             string // of the error; "": none
	}{
		{"a public key", "ES256", public, ""},
		{"a secret", "HS256 HS512", secret, ""},
		{"a short secret", "HS256", secret[:31], "a secret of 31 bytes"},
		{"public keys as a secret", "HS256", public, "anyone may know"},
		{"a set as a secret", "HS256", set(jose.JSONWebKey{Key: ec.Public()}), "anyone may know"},
		{"both kinds", "ES256 HS256", public, "keep one kind"},
		{"both kinds, the other way round", "HS256 ES256", secret, "keep one kind"},
		{"a key for another algorithm", "RS256", public, "no key in it is for RS256"},
		{"a private key", "ES256", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: small}), "openssl pkey -pubout"},
		{"a private key in a set", "ES256", set(jose.JSONWebKey{Key: ec}), "give the public ones"},
		{"a secret in a set", "ES256", set(jose.JSONWebKey{Key: []byte("secret")}), "give the public ones"},
		{"neither", "ES256", secret, "neither public keys"},
		{"as many keys without names as are tried", "ES256", many(maxTries), ""},
		{"more keys without names than are tried", "ES256", many(maxTries + 1), "5 keys without a name for ES256"},
		{"nothing", "ES256", nil, "neither public keys"},
		{"an empty set", "ES256", []byte(`{"keys": []}`), "no key in it"},
	} {
		of := Settings{KeysFile: file(t, s.text)}
		for a := range strings.FieldsSeq(s.algorithms) {
			of.Algorithms = append(of.Algorithms, algorithm(a))
		}
		_, err := read(&of, new(atomic.Uint64))
		if err == nil != (s.want == "") || err != nil && !strings.Contains(err.Error(), s.want) {
			t.Errorf("%s: %v, want %q", s.name, err, s.want)
		}
	}
	v := load(t, many(maxTries), Settings{Algorithms: algorithms{"ES256"}}, "sub")
	forged := sign(t, "ES256", "", ec, claims{"sub": "a"})
	for range 2 {
		if v.Verify(forged, at) != nil {
			t.Error("a token that nobody has signed is believed")
		}
	}
	if v.verified.Load() != maxTries {
		t.Errorf("a token that nobody has signed costs %d verifications, want %d", v.verified.Load(), maxTries)
	}
	v = load(t, secret, Settings{Algorithms: algorithms{"HS256"}}, "sub")
	if got := v.Verify(sign(t, "HS256", "", secret[:32], claims{"sub": "a"}), at).of("sub"); string(got) != "a" {
		t.Errorf("a token of the secret: %q, want a", got)
	}
}

// A header that is long costs nothing, because reading one costs more than a signature.
func TestLongHeader(t *testing.T) {
	key := ecKey(t)
	v := load(t, publicPEM(t, key.Public()), Settings{Algorithms: algorithms{"ES256"}}, "sub")
	with := func(fields int) []byte {
		more := &jose.SignerOptions{}
		for i := range fields {
			more.WithHeader(jose.HeaderKey(fmt.Sprint(i)), []int{})
		}
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, more)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.Signed(s).Claims(claims{"sub": "a"}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return []byte(text)
	}
	if v.Verify(with(20), at) == nil {
		t.Error("a header of 250 bytes is not read")
	}
	long := with(500)
	if v.Verify(long, at) != nil {
		t.Error("a header of 6,000 bytes is read")
	}
	if n := testing.AllocsPerRun(10, func() { v.Verify(long, at) }); n != 0 {
		t.Errorf("that allocates %v times", n)
	}
}

// What is known is kept over a reload that changes nothing, and not over one that changes the keys.
func TestReload(t *testing.T) {
	ours, theirs := ecKey(t), ecKey(t)
	c := Settings{KeysFile: file(t, publicPEM(t, ours.Public())), Algorithms: algorithms{"ES256"}}
	reload := func(before *Verifier) *Verifier {
		t.Helper()
		v, err := read(&c, new(atomic.Uint64))
		if err != nil {
			t.Fatal(err)
		}
		return v.keep([]string{"sub"}, before)
	}
	v := reload(nil)
	token := sign(t, "ES256", "", ours, claims{"sub": "a"})
	if v.Verify(token, at) == nil {
		t.Fatal("not believed")
	}
	if reload(v) != v {
		t.Error("read again: another")
	}
	if err := os.WriteFile(c.KeysFile, publicPEM(t, theirs.Public()), 0o600); err != nil {
		t.Fatal(err)
	}
	if reload(v).Verify(token, at) != nil {
		t.Error("a token of a key that is gone is believed")
	}
}

// A flood of tokens that nobody signed pushes out none that is good, and the tables do not grow.
func TestFlood(t *testing.T) {
	v := load(t, publicPEM(t, ecKey(t).Public()), Settings{Algorithms: algorithms{"ES256"}})
	known := v.good.digest([]byte("good"))
	v.good.put(known, &Claims{})
	for i := range 3 * tableSize {
		v.bad.put(v.bad.digest(fmt.Append(nil, i)), nil)
	}
	if _, there := v.good.get(known); !there {
		t.Error("a good token is forgotten")
	}
	n := 0
	for i := range v.bad.shards {
		n += len(v.bad.shards[i].at)
	}
	if n != tableSize {
		t.Errorf("%d bad tokens are kept, want %d", n, tableSize)
	}
}

// BenchmarkVerify is what a token costs: fresh, which takes a verification, and known.
func BenchmarkVerify(b *testing.B) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	for of, key := range map[string]crypto.Signer{"ES256": ecKey(b), "RS256": rsaKey, "EdDSA": ed} {
		v := load(b, publicPEM(b, key.Public()), Settings{Algorithms: algorithms{algorithm(of)}}, "sub")
		token := sign(b, of, "", key, claims{"sub": "anna", "iss": "us", "exp": at.Add(time.Hour).Unix()})
		b.Run(of+"/fresh", func(b *testing.B) {
			for b.Loop() {
				if _, verdict := v.verify(string(token), at); verdict != believed {
					b.Fatal("not believed")
				}
			}
		})
		b.Run(of+"/known", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v.Verify(token, at) == nil {
					b.Fatal("not believed")
				}
			}
		})
	}
}
