package admin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"

	"sluice/edge/control"
	"sluice/edge/route"
)

// clientsAtOnce is how many clients an answer shows if the question does not say. The tier is asked
// about each.
const clientsAtOnce = 100

// Clients is a page of those of whom operators said something.
type Clients struct {
	Clients []control.ListedClient `json:"clients"`
	// What ?after= wants for the next page; "": this is the last
	Next string `json:"next,omitempty"`
}

// listQuotas shows clients of whom something is said, or those with a quota of ?plan=: ?n= of them,
// after where a page before has ended.
func (a api) listQuotas() http.HandlerFunc {
	pages := newCursor()
	return func(w http.ResponseWriter, r *http.Request) {
		n, ok := most(w, r, clientsAtOnce)
		if !ok {
			return
		}
		after, err := pages.open(r.URL.Query().Get("after"))
		if err != nil {
			route.Failed(w, err)
			return
		}
		stored, err := a.Plans.List(r.Context(), after, r.URL.Query().Get("plan"), n+1)
		if err != nil {
			route.Failed(w, err)
			return
		}
		var page Clients
		if len(stored) > n {
			stored = stored[:n]
			page.Next = pages.seal(stored[n-1])
		}
		ctx, cancel := context.WithTimeout(r.Context(), tierTime)
		defer cancel()
		page.Clients, err = a.Edge.ListClients(ctx, stored)
		route.Answer(w, page, err)
	}
}

// A cursor is where a page ends, which is a client's key: URLs are in logs, so it is sealed, by a
// key that this process alone has.
type cursor struct{ cipher.AEAD }

func newCursor() cursor {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return cursor{sealed}
}

func (c cursor) seal(key string) string {
	return base64.RawURLEncoding.EncodeToString(c.Seal(nil, nil, []byte(key), nil))
}

var errCursor = errors.New("after is not possible: want what an earlier answer of this edge had as next, since it was started")

func (c cursor) open(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", errCursor
	}
	key, err := c.Open(nil, nil, sealed, nil)
	if err != nil {
		return "", errCursor
	}
	return string(key), nil
}
