// Package verify reads the claims of a JSON Web Token (RFC 7519), if a signer that the edge trusts
// has signed it (RFC 7515).
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
package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"sluice/edge/message"
	"sluice/edge/token"
)

const (
	maxToken = 8 << 10 // bytes of a token
	// Bytes of it before the first dot: one of thousands costs more to read than a signature to
	// verify
	maxHeader = 512
	maxClaim  = 256     // bytes of a claim that is a key
	maxTries  = 4       // keys that are tried with a token that names none
	tableSize = 1 << 15 // of each of the two tables
)

// A Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	config     token.Config
	algorithms []jose.SignatureAlgorithm
	keys       []key
	text       []byte         // of the file
	claims     []string       // that are kept, sorted
	cookie     message.Lookup // its name
	good, bad  *table
	verified   atomic.Uint64
}

// Verified is how many signatures of tokens were verified.
func (v *Verifier) Verified() uint64 { return v.verified.Load() }

// Load makes a Verifier that keeps these claims of a token. It is before if nothing has changed,
// which then keeps what it knows.
func Load(c token.Config, claims []string, before *Verifier) (*Verifier, error) {
	text, err := os.ReadFile(c.KeysFile)
	if err != nil {
		return nil, fmt.Errorf("jwt.keys_file: %w: give a readable file with public keys", err)
	}
	claims = slices.Compact(slices.Sorted(slices.Values(claims)))
	if b := before; b != nil && equal(&b.config, &c) && bytes.Equal(b.text, text) &&
		slices.Equal(b.claims, claims) {
		return before, nil
	}
	v := &Verifier{config: c, text: text, claims: claims, good: newTable(), bad: newTable()}
	for _, a := range c.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	if c.Cookie != "" {
		v.cookie.Add([]byte(c.Cookie))
	}
	if before != nil {
		v.verified.Store(before.Verified()) // a count never falls
	}
	if v.keys, err = parseKeys(text, c.Algorithms); err != nil {
		return nil, fmt.Errorf("jwt.keys_file: %s: %w", c.KeysFile, err)
	}
	return v, nil
}

func equal(c, o *token.Config) bool {
	a, b := *c, *o
	a.Algorithms, b.Algorithms = nil, nil
	return slices.Equal(c.Algorithms, o.Algorithms) && a.KeysFile == b.KeysFile &&
		a.Issuer == b.Issuer && a.Audience == b.Audience &&
		a.Header == b.Header && a.Cookie == b.Cookie && a.Leeway == b.Leeway
}

// Find is the token of a request, for which there is room in buf; nil: it has none. It reports
// false if there are several, or one in a form that origins may not read alike.
//
// A client with a believed token must not be able to write it so that the origin takes it and the
// edge does not. So it is found wherever origins look: after Bearer, another scheme or none, as a
// parameter of that name, in a cookie as servers decode it. That is no laxer, because it has to be
// signed all the same.
func (v *Verifier) Find(buf []byte, q *message.Request) (text, _ []byte, ok bool) {
	buf = buf[:0]
	if v.config.Cookie == "" {
		text, _, ok = q.Head.Header([]byte(v.Header()))
	} else {
		ok = true
		v.cookie.Cookies(&q.Head, func(f message.Found) {
			ok = ok && !f.Odd && (text == nil || bytes.Equal(text, f.Value))
			text = f.Value
		})
		if ok && text != nil {
			buf, ok = message.AppendCookie(buf, text)
			text = buf
		}
	}
	if !ok || text == nil {
		return nil, buf, ok
	}
	from := len(buf)
	buf, at, ok := message.AppendCredentials(buf, text)
	if !ok || at == message.NoClient {
		return nil, buf, ok
	}
	return buf[from+at:], buf, true
}

// Header is the name of the header that has the token; "": it is in a cookie.
func (v *Verifier) Header() string {
	if v.config.Header == "" && v.config.Cookie == "" {
		return "authorization"
	}
	return v.config.Header
}

// Cookie is the name of the cookie that has the token; "": it is in a header.
func (v *Verifier) Cookie() string { return v.config.Cookie }

// Verify is what a token claims; nil if it is not believed at now. A known token allocates nothing.
func (v *Verifier) Verify(text []byte, now time.Time) *token.Claims {
	if header := bytes.IndexByte(text, '.'); header <= 0 || header > maxHeader ||
		len(text) > maxToken {
		return nil
	}
	digest := v.good.digest(text)
	c, known := v.good.get(digest)
	if !known {
		if _, known = v.bad.get(digest); known {
			return nil
		}
		var verdict verdict
		if c, verdict = v.verify(string(text), now); verdict != believed {
			if verdict == forged {
				v.bad.put(digest, nil)
			}
			return nil
		}
		v.good.put(digest, c)
	}
	if !c.At(now, v.config.Leeway) {
		return nil
	}
	return c
}

type verdict uint8

const (
	believed verdict = iota
	forged           // a signature was verified, and is not one
	odd              // that was seen without verifying one
)

// verify reads a token, and verifies its signature if nothing else is wrong with it.
func (v *Verifier) verify(text string, now time.Time) (*token.Claims, verdict) {
	t, err := jwt.ParseSigned(text, v.algorithms)
	if err != nil || len(t.Headers) != 1 {
		return nil, odd
	}
	var claims struct {
		Issuer   string           `json:"iss"`
		Audience jwt.Audience     `json:"aud"`
		From     *jwt.NumericDate `json:"nbf"`
		Until    *jwt.NumericDate `json:"exp"`
	}
	if err := t.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return nil, odd
	}
	if claims.From != nil && *claims.From == 0 { // some say so for no bound
		claims.From = nil
	}
	c := &token.Claims{Values: make(map[string][]byte, len(v.claims))}
	if c.From, err = instant(claims.From); err == nil {
		c.Until, err = instant(claims.Until)
	}
	if err != nil || !c.At(now, v.config.Leeway) || v.config.Issuer != "" &&
		claims.Issuer != v.config.Issuer ||
		v.config.Audience != "" && !claims.Audience.Contains(v.config.Audience) {
		return nil, odd
	}
	tries := 0
	for i := range v.keys {
		k := &v.keys[i]
		if !k.fits(t.Headers[0].KeyID, t.Headers[0].Algorithm) {
			continue
		}
		if tries++; tries > maxTries {
			break
		}
		var all map[string]json.RawMessage
		v.verified.Add(1)
		if t.Claims(k.key, &all) != nil {
			continue
		}
		for _, name := range v.claims {
			if value := plain(all[name]); value != nil {
				c.Values[name] = value
			}
		}
		return c, believed
	}
	if tries == 0 {
		return nil, odd
	}
	return nil, forged
}

// latest is the last instant that ns since the epoch can hold, in seconds, with room for a leeway.
const latest = 1<<33 - 1

// instant is a date of a token; 0 if there is none. One that is before 1970 or does not fit is an
// error.
func instant(d *jwt.NumericDate) (int64, error) {
	if d == nil {
		return 0, nil
	}
	if *d <= 0 || *d > latest {
		return 0, fmt.Errorf("%d is no date", *d)
	}
	return int64(*d) * int64(time.Second), nil
}

// plain is the value of a claim that can be a key, as text; nil: it cannot.
func plain(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return nil
	}
	var text []byte
	switch raw[0] {
	case '{', '[', 'n':
		return nil
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil
		}
		text = []byte(s)
	default:
		text = bytes.Clone(raw)
	}
	if len(text) > maxClaim {
		return nil
	}
	return append([]byte{}, text...)
}
