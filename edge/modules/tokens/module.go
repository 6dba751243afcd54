// Package tokens makes claims of JSON Web Tokens (RFC 7519) keys of rules: those of a token that a
// signer which the edge trusts has signed (RFC 7515).
//
// A signature is costly to verify, so what came of it is kept by a keyed digest of the token: a
// token that is known costs a digest of its bytes and a look into a table. Only that is kept which
// does not depend on the time: whether it is believed at an instant (exp, nbf) is checked each
// time.
//
// What an attacker can make it cost: a token without a valid signature is verified once, while it
// is remembered, and each new one once. That is one verification for each request, and up to four
// where the file has several keys for an algorithm. BenchmarkVerify measures it: of a processor
// about 0.1 ms for RS256 of 2,048 bits and EdDSA, 0.17 ms for ES256, its parsing included, on a
// machine that was busy with other things. A token that is malformed, expired, of another
// algorithm, or of a key that the file has not, costs no verification but its parsing: 0.01 ms, and
// for 8 KB of nested lists up to 0.4 ms. One that is too long, or has a long header, costs nothing.
// The tables of tokens that are good and of those that are not have room for 32,768 each, so a
// flood of the one pushes nothing out of the other.
package tokens

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
	"sluice/edge/metric"
	"sluice/edge/rules/key"
)

// Settings are which tokens are believed. Without KeysFile none is.
type Settings struct {
	// Public keys in PEM, a set of them (JWKS, RFC 7517), or a secret for HMAC
	KeysFile string `json:"keys_file" want:"file"`
	// Of signatures that are taken; the key decides which of them it can be
	Algorithms algorithms `json:"algorithms" each:"once"`
	Issuer     string     `json:"issuer" want:"file"`   // what iss must be; "": anything
	Audience   string     `json:"audience" want:"file"` // what aud must have; "": anything
	// Where the token is; "": in Authorization, unless it is in a cookie
	Header header `json:"header" want:"name or none"`
	Cookie cookie `json:"cookie" want:"name or none"`
	// How far clocks may differ, for exp and nbf
	Leeway time.Duration `json:"leeway" want:"0, or 1s to 10m"`
}

// Check returns what is wrong with the settings together.
func (s *Settings) Check() error {
	switch {
	case s.KeysFile == "" && s.Issuer+s.Audience+string(s.Header)+string(s.Cookie) != "":
		return errors.New("no keys_file: give the file with the keys that sign the tokens")
	case s.Header != "" && s.Cookie != "":
		return errors.New("header and cookie together: the token is in one of them: keep one")
	}
	return nil
}

// place is the part of a request that has the token.
func (s *Settings) place() *key.Part {
	switch {
	case s.Cookie != "":
		return &key.Part{Kind: key.Cookie, Name: []byte(s.Cookie)}
	case s.Header != "":
		return &key.Part{Kind: key.Header, Name: []byte(s.Header)}
	}
	return &key.Part{Kind: key.Header, Name: []byte(authorization)}
}

// possible are the algorithms of signatures that can be taken. There is no "none", and never will
// be.
var possible = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
	"ES512", "EdDSA", "HS256", "HS384", "HS512"}

type algorithm string

func (a *algorithm) UnmarshalText(text []byte) error {
	*a = algorithm(text)
	switch {
	case strings.EqualFold(string(text), "none"):
		return errors.New("none would believe every token: remove it")
	case !slices.Contains(possible, string(text)):
		return fmt.Errorf("%q is not possible: want some of %s", text, strings.Join(possible, ", "))
	}
	return nil
}

// isSecret reports whether an algorithm's key is a secret (HMAC), and not public.
func isSecret[T ~string](algorithm T) bool { return strings.HasPrefix(string(algorithm), "HS") }

type algorithms []algorithm

// CheckLast returns what is wrong with the last beside the others.
func (l algorithms) CheckLast() error {
	if last := l[len(l)-1]; isSecret(l[0]) != isSecret(last) {
		return fmt.Errorf("%s and %s together: anyone who knows a public key could sign with it as if it were the secret: keep one kind", l[0], last)
	}
	return nil
}

// Check returns what is wrong with all of them.
func (l algorithms) Check() error {
	if len(l) == 0 {
		return fmt.Errorf("an empty list believes no token: want some of %s",
			strings.Join(possible, ", "))
	}
	return nil
}

const authorization = "authorization"

// header is the name of one in small letters.
type header string

func (h *header) UnmarshalText(text []byte) error {
	name := strings.ToLower(string(text))
	if name != "" && (!message.IsToken([]byte(name)) ||
		message.KindOf([]byte(name)) != message.Other) {
		return fmt.Errorf("%q cannot hold a token: want Authorization, or a header of your own", name)
	}
	*h = header(name)
	return nil
}

type cookie string

func (c *cookie) UnmarshalText(text []byte) error {
	if *c = cookie(text); len(text) > 0 && !message.IsName(text) {
		return fmt.Errorf("%q is not the name of a cookie", text)
	}
	return nil
}

const name = "jwt"

type module struct {
	verified atomic.Uint64
	verifier *Verifier // in force last; nil: none was
}

// Module makes claims keys of rules.
func Module() edge.Module {
	m := new(module)
	return edge.Module{Name: name, Prepare: m.prepare, Collect: m.collect, Config: config.Module{
		Settings: func() any {
			return &Settings{Algorithms: algorithms{"RS256", "ES256", "EdDSA"},
				Leeway: 30 * time.Second}
		},
		Facts: []*key.Fact{claim()},
		Lacks: func(c *config.Config, _, claim string) error { return lacks(c, claim) },
		Files: files,
	}}
}

// claim is a fact of requests, by its name. Its digests are those of versions to which it was none.
func claim() *key.Fact {
	return &key.Fact{Name: name, Argument: "CLAIM", Who: "a token's claim", Slow: true, Kind: 7,
		Of: of, Parse: func(text string) (string, error) {
			if len(text) > maxClaim {
				return "", fmt.Errorf("it is longer than %d bytes, which no rule counts by", maxClaim)
			}
			return text, nil
		}}
}

func lacks(c *config.Config, claim string) error {
	if s := config.SettingsOf[Settings](c, name); s != nil && s.KeysFile != "" {
		return nil
	}
	return fmt.Errorf("jwt:%s: nothing says which tokens are believed: give jwt: {keys_file: FILE}",
		claim)
}

func files(c *config.Config) []config.File {
	s := config.SettingsOf[Settings](c, name)
	if s == nil || s.KeysFile == "" {
		return nil
	}
	return []config.File{{Setting: "jwt.keys_file", Path: s.KeysFile,
		Secret: isSecret(s.Algorithms[0]), Reloads: true}}
}

func (m *module) prepare(s *edge.Setup) (edge.Points, error) {
	f := claim()
	f.Lacks = func(claim string) error { return lacks(s.Config, claim) }
	p := edge.Points{Facts: []*key.Fact{f}}
	said := config.SettingsOf[Settings](s.Config, name)
	if said == nil || said.KeysFile == "" {
		return p, nil
	}
	v, err := read(said, &m.verified) // without a rule as well: a wrong file is reported
	if err != nil {
		return p, err
	}
	f.From = v.place
	f.Find = func(buf []byte, q *key.View) []byte { return v.find(buf, q) }
	p.InForce = func() {
		v = v.keep(s.Made.Arguments(f), m.verifier)
		m.verifier = v
	}
	return p, nil
}

func (m *module) collect(to metric.Sink) {
	to.Count(m.verified.Load(), "sluice_token_verifications_total",
		"Signatures of tokens that were verified: once for each token, as long as it is remembered.")
}

// appendClaim appends a claim to those of a token.
func appendClaim(to []byte, claim string, value []byte) []byte {
	to = append(append(to, byte(len(claim))), claim...) // of 128 bytes at most
	return append(binary.LittleEndian.AppendUint16(to, uint16(len(value))), value...)
}

// of is the value of one of the claims that appendClaim has appended; nil: it is not among them.
func of(claims, claim []byte) []byte {
	for len(claims) > 0 {
		end := 1 + int(claims[0])
		from := end + 2
		to := from + int(binary.LittleEndian.Uint16(claims[end:]))
		if bytes.Equal(claims[1:end], claim) {
			return claims[from:to:to]
		}
		claims = claims[to:]
	}
	return nil
}
