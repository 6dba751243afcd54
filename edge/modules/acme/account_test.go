//go:build system

package acme

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/certmagic"
)

// halfWritten is a storage in which another order has made the folder of its account, and not yet the account.
type halfWritten struct{ certmagic.Storage }

func (s halfWritten) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	if strings.HasSuffix(path, "/users") {
		return []string{path + "/default"}, nil
	}
	return s.Storage.List(ctx, path, recursive)
}

func (s halfWritten) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	if strings.HasSuffix(key, "/users/default") {
		return certmagic.KeyInfo{Key: key}, nil
	}
	return s.Storage.Stat(ctx, key)
}

// An account without an address is registered without one, whatever is in the storage: the server takes no "default".
func TestAccountWithoutAddress(t *testing.T) {
	t.Parallel()
	const host = "account.example"
	storage := halfWritten{Folder(t.TempDir())}
	e, _ := startEdgeWith(t, storage, 0, host)
	if text := e.next(t); text != host+" renewal=false " {
		t.Fatal(text)
	}
	text, err := storage.Load(t.Context(), "acme/"+certmagic.StorageKeys.Safe(e.issuer.IssuerKey())+"/users/default/default.json")
	must(t, err)
	var account struct{ Contact []string }
	must(t, json.Unmarshal(text, &account))
	if len(account.Contact) != 0 {
		t.Errorf("the account's contact is %q", account.Contact)
	}
}
