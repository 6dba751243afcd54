package tokens

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const (
	minSecret = 32      // bytes
	maxKeys   = 64      // in a file
	maxFile   = 1 << 20 // bytes
)

// A trusted key can verify signatures.
type trusted struct {
	id         string // "": it is not said
	algorithms []string
	key        any
}

// fits reports whether a token with this header may be signed with the key. One that names no key
// may be with any.
func (k *trusted) fits(id, algorithm string) bool {
	return (id == "" || k.id == "" || id == k.id) && slices.Contains(k.algorithms, algorithm)
}

// parseKeys reads a file of keys: each is for those of the algorithms that it can be for, and there
// is one at least.
//
// If algorithms with a secret were taken beside those with public keys, anyone with the public key
// could sign with it as if it were the secret. So they are never taken together, and a file of
// public keys is no secret.
func parseKeys(text []byte, algorithms []string) (keys []trusted, err error) {
	text = bytes.TrimSpace(text)
	isPEM, isSet := bytes.Contains(text, []byte("-----BEGIN ")), json.Valid(text) && text[0] == '{'
	switch {
	case len(algorithms) == 0:
		return nil, errors.New("no algorithms")
	case len(text) > maxFile:
		return nil, fmt.Errorf("%d bytes: want %d at most", len(text), maxFile)
	case slices.ContainsFunc(algorithms, isSecret):
		switch {
		case !isSecret(algorithms[0]) ||
			!slices.Equal(slices.DeleteFunc(slices.Clone(algorithms),
				func(a string) bool { return !isSecret(a) }), algorithms):
			return nil,
				errors.New("algorithms with a secret and with public keys together: anyone who knows a public key could sign with it: keep one kind")
		case isPEM || isSet:
			return nil,
				errors.New("the file has public keys, which anyone may know, and the algorithms want a secret: give a file of at least 32 random bytes")
		case len(text) < minSecret:
			return nil,
				fmt.Errorf("a secret of %d bytes: want at least %d: head -c 48 /dev/urandom | base64 makes a good one", len(text), minSecret)
		}
		return []trusted{{algorithms: algorithms, key: text}}, nil
	case isPEM:
		keys, err = parsePEM(text)
	case isSet:
		keys, err = parseSet(text)
	default:
		err = errors.New("it has neither public keys in PEM nor a set of keys in JSON (JWKS)")
	}
	if err != nil {
		return nil, err
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: want %d at most", len(keys), maxKeys)
	}
	fit := keys[:0]
	for _, k := range keys {
		k.algorithms = slices.DeleteFunc(k.algorithms,
			func(a string) bool { return !slices.Contains(algorithms, a) })
		if len(k.algorithms) > 0 {
			fit = append(fit, k)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("no key in it is for %s", strings.Join(algorithms, ", "))
	}
	for _, a := range algorithms {
		nameless := 0
		for i := range fit {
			if fit[i].id == "" && slices.Contains(fit[i].algorithms, a) {
				nameless++
			}
		}
		if nameless > maxTries { // tokens of the last would not be believed
			return nil,
				fmt.Errorf("%d keys without a name for %s: want %d at most, because any could have signed a token: remove those that are retired, or give a set (JWKS) with names", nameless, a, maxTries)
		}
	}
	return fit, nil
}

// parsePEM reads public keys and certificates, of which only the keys are taken.
func parsePEM(text []byte) (keys []trusted, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		var public any
		switch block.Type {
		case "PUBLIC KEY":
			public, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			public, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var c *x509.Certificate
			if c, err = x509.ParseCertificate(block.Bytes); err == nil {
				public = c.PublicKey
			}
		default:
			return nil,
				fmt.Errorf("a block is a %s: want PUBLIC KEY: openssl pkey -pubout makes it",
					block.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("a block is malformed: %w", err)
		}
		k := trusted{key: public}
		if k.algorithms, err = suited(public); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("no block of it is a public key")
	}
	return keys, nil
}

// parseSet reads a JWKS. Keys of unknown kinds, and those that are not for signatures, are skipped
// (RFC 7517, 5).
func parseSet(text []byte) (keys []trusted, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New(`it is no set of keys: want {"keys": […]}`)
	}
	for _, raw := range set.Keys {
		var fields struct {
			Kind string `json:"kty"`
			D    string `json:"d"`
		}
		_ = json.Unmarshal(raw, &fields)
		var j jose.JSONWebKey
		switch {
		case fields.Kind == "oct" || fields.D != "":
			return nil,
				errors.New("it has a secret or private key: leave those with the signer, and give the public ones")
		case j.UnmarshalJSON(raw) != nil || j.Use != "" && j.Use != "sig":
			continue
		}
		k := trusted{id: j.KeyID, key: j.Key}
		if k.algorithms, err = suited(j.Key); err != nil {
			return nil, err
		}
		if j.Algorithm != "" {
			k.algorithms = slices.DeleteFunc(k.algorithms,
				func(a string) bool { return a != j.Algorithm })
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// suited are the algorithms that a public key can be for.
func suited(public any) ([]string, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < 2048 || n > 8192 {
			return nil, fmt.Errorf("an RSA key of %d bits: want 2048 to 8192", n)
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return []string{"ES256"}, nil
		case 384:
			return []string{"ES384"}, nil
		case 521:
			return []string{"ES512"}, nil
		}
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	}
	return nil, fmt.Errorf("a key of a kind that signs no tokens (%T)", public)
}
