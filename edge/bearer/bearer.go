// Package bearer is the token that a listener for operators or programs wants of a request:
// Authorization: Bearer TOKEN.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync/atomic"
)

// Token is what a listener wants. It may be replaced at any time: the one before is void from then
// on, also on connections that are open. A nil Token and one that was never set want nothing. It is
// safe for concurrent use.
type Token struct {
	want atomic.Pointer[[sha256.Size]byte]
}

// New wants a token; "": nothing is wanted.
func New(token string) *Token {
	t := new(Token)
	if token != "" {
		t.Set(token)
	}
	return t
}

// Set replaces the token, which is not empty, and reports whether it is another than before.
func (t *Token) Set(token string) (changed bool) {
	want := digest("Bearer " + token)
	before := t.want.Swap(&want)
	return before == nil || *before != want
}

// Wanted reports whether requests need a token.
func (t *Token) Wanted() bool { return t != nil && t.want.Load() != nil }

// Has reports whether a request has the token, and if not says in the answer's head what is wanted
// (RFC 6750). Digests are compared, so that time tells nothing.
func (t *Token) Has(w http.ResponseWriter, r *http.Request) bool {
	if !t.Wanted() {
		return true
	}
	want, got := t.want.Load(), digest(r.Header.Get("Authorization"))
	if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	return false
}

func digest(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
