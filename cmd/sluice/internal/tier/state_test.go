package tier

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/edge/changes/rulelist"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// A list that can be read is enough to start with: that the disk has filled up since is told, and no reason to serve nobody. What was
// never kept must be possible to keep.
func TestStateOnAFullDisk(t *testing.T) {
	dir, key := t.TempDir(), secret.Of([]byte("a secret of some length"))
	name := strings.Repeat("x", 255) // that of a draft beside it is too long, so it cannot be written
	said := rulelist.New(key, 1)
	if _, err := said.Add(operatorlog.Order{Rule: "login", Kind: operatorlog.Change, Start: time.Now(), Text: `{"does":"removed"}`}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(dir, name, said); err == nil || !strings.Contains(err.Error(), "state_dir") {
		t.Fatalf("it can be kept: %v", err)
	}
	text, _ := said.Encoded(time.Now())
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
	next := rulelist.New(key, 2)
	f, err := openState(dir, name, next)
	if err != nil {
		t.Fatal(err)
	}
	if list, _, _ := next.Changes(); len(list) != 1 {
		t.Errorf("%d changes", len(list))
	}
	if err := f.save(); err == nil {
		t.Error("nobody is told that it cannot be kept")
	}
}
