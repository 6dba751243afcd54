package tokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"sluice/edge/message"
	"sluice/edge/rules/key"
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
	config     *Settings
	place      *key.Part // of requests, that has the token
	algorithms []jose.SignatureAlgorithm
	keys       []trusted
	text       []byte         // of the file
	claims     []string       // that are kept, sorted
	cookie     message.Lookup // its name
	good, bad  *table
	verified   *atomic.Uint64 // signatures
}

// read makes a Verifier with the keys of the file. It counts the signatures that it verifies.
func read(c *Settings, verified *atomic.Uint64) (*Verifier, error) {
	text, err := os.ReadFile(c.KeysFile)
	if err != nil {
		return nil, fmt.Errorf("jwt.keys_file: %w: give a readable file with public keys", err)
	}
	v := &Verifier{config: c, place: c.place(), text: text, verified: verified}
	var names []string
	for _, a := range c.Algorithms {
		v.algorithms, names = append(v.algorithms, jose.SignatureAlgorithm(a)), append(names, string(a))
	}
	if c.Cookie != "" {
		v.cookie.Add(v.place.Name)
	}
	if v.keys, err = parseKeys(text, names); err != nil {
		return nil, fmt.Errorf("jwt.keys_file: %s: %w", c.KeysFile, err)
	}
	return v, nil
}

// keep has v, before its first token, keep these claims of each. It returns before if that is no
// other, and so keeps what it knows.
func (v *Verifier) keep(claims []string, before *Verifier) *Verifier {
	v.claims = slices.Compact(slices.Sorted(slices.Values(claims)))
	if before != nil && reflect.DeepEqual(before.config, v.config) &&
		bytes.Equal(before.text, v.text) && slices.Equal(before.claims, v.claims) {
		return before
	}
	v.good, v.bad = newTable(), newTable()
	return v
}

// find appends what the token of a request claims, if there is one that is believed.
func (v *Verifier) find(buf []byte, q *key.View) []byte {
	from := len(buf)
	text, buf, ok := v.Find(buf, q.Request)
	if q.Unclear = !ok; text == nil {
		return buf[:from]
	}
	c := v.Verify(text, q.At)
	if buf = buf[:from]; c != nil {
		buf = append(buf, c.values...)
	}
	return buf
}

// Find is the token of a request, which may be in what buf has more then; nil: it has none. It
// reports false if there are several, or one in a form that origins may not read alike.
//
// A client with a believed token must not be able to write it so that the origin takes it and the
// edge does not. So it is found wherever origins look: after Bearer, another scheme or none, as a
// parameter of that name, in a cookie as servers decode it. That is no laxer, because it has to be
// signed all the same.
func (v *Verifier) Find(buf []byte, q *message.Request) (text, _ []byte, ok bool) {
	from := len(buf)
	if v.config.Cookie == "" {
		text, _, ok = q.Head.Header(v.place.Name)
	} else {
		ok = true
		v.cookie.Cookies(&q.Head, func(f message.Found) {
			ok = ok && !f.Odd && (text == nil || bytes.Equal(text, f.Value))
			text = f.Value
		})
		if ok && text != nil {
			buf, ok = message.AppendCookie(buf, text)
			text = buf[from:]
		}
	}
	if !ok || text == nil {
		return nil, buf, ok
	}
	from = len(buf)
	buf, at, ok := message.AppendCredentials(buf, text)
	if !ok || at == message.NoClient {
		return nil, buf, ok
	}
	return buf[from+at:], buf, true
}

// Verify is what a token claims; nil if it is not believed at now. A known token allocates nothing.
func (v *Verifier) Verify(text []byte, now time.Time) *Claims {
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
	if !c.at(now, v.config.Leeway) {
		return nil
	}
	return c
}

// Claims are the claims of a believed token that rules use. Nobody changes them.
type Claims struct {
	values      []byte // see appendClaim
	from, until int64  // when it is valid, in ns since the epoch; 0: no such bound
}

// at reports whether a token is valid at an instant.
func (c *Claims) at(now time.Time, leeway time.Duration) bool {
	ns := now.UnixNano()
	return (c.from == 0 || ns >= c.from-int64(leeway)) && (c.until == 0 ||
		ns < c.until+int64(leeway))
}

type verdict uint8

const (
	believed verdict = iota
	forged           // a signature was verified, and is not one
	odd              // that was seen without verifying one
)

// verify reads a token, and verifies its signature if nothing else is wrong with it.
func (v *Verifier) verify(text string, now time.Time) (*Claims, verdict) {
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
	c := new(Claims)
	if c.from, err = instant(claims.From); err == nil {
		c.until, err = instant(claims.Until)
	}
	if err != nil || !c.at(now, v.config.Leeway) || v.config.Issuer != "" &&
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
				c.values = appendClaim(c.values, name, value)
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

// plain is the value of a claim that can be a key, as text: a string, a number as it was written,
// or true or false; nil: it cannot.
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
	return text
}
