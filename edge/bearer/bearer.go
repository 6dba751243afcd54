// Package bearer is the token that a listener for operators or programs wants of a request: Authorization: Bearer TOKEN.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// Wanted returns what reports whether a request has the token, and if not says in the answer's head what is wanted (RFC 6750). An empty token is none: every
// request has it. Digests are compared, so that time tells nothing.
func Wanted(token string) func(http.ResponseWriter, *http.Request) bool {
	if token == "" {
		return func(http.ResponseWriter, *http.Request) bool { return true }
	}
	want := sha256.Sum256([]byte("Bearer " + token))
	return func(w http.ResponseWriter, r *http.Request) bool {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			return true
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		return false
	}
}
