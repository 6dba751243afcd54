// Package token is JSON Web Tokens (RFC 7519) as rules and files need them: which are believed, and
// what one claims. Package verify reads and verifies them.
package token

import (
	"strings"
	"time"
)

// Config is which tokens are believed. The zero Config is none.
type Config struct {
	// Public keys in PEM, a set of them (JWKS, RFC 7517), or a secret for HMAC
	KeysFile string
	// Of signatures that are taken; the key decides which of them it can be
	Algorithms []string
	Issuer     string        // what iss must be; "": anything
	Audience   string        // what aud must have; "": anything
	Header     string        // where the token is, after Bearer in Authorization; "": there
	Cookie     string        // or in this cookie
	Leeway     time.Duration // how far clocks may differ, for exp and nbf
}

// Is reports whether there are tokens to verify.
func (c *Config) Is() bool { return c.KeysFile != "" }

// Algorithms are those of signatures that can be taken. There is no "none", and never will be.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
	"ES512", "EdDSA", "HS256", "HS384", "HS512"}

// IsSecret reports whether an algorithm's key is a secret (HMAC), and not public.
func IsSecret(algorithm string) bool { return strings.HasPrefix(algorithm, "HS") }

// Claims are the claims of a believed token that rules use. Nobody changes them.
type Claims struct {
	Values      map[string][]byte
	From, Until int64 // when it is valid, in ns since the epoch; 0: no such bound
}

// Of is a claim as text: a string, a number as it was written, or true or false. It is nil if there
// is none, or if it is something else. Of a nil Claims there is none.
func (c *Claims) Of(name []byte) []byte {
	if c == nil {
		return nil
	}
	return c.Values[string(name)]
}

// At reports whether a token is valid at an instant.
func (c *Claims) At(now time.Time, leeway time.Duration) bool {
	ns := now.UnixNano()
	return (c.From == 0 || ns >= c.From-int64(leeway)) && (c.Until == 0 ||
		ns < c.Until+int64(leeway))
}
