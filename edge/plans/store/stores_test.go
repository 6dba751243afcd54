//go:build !system

package store

import (
	"path/filepath"
	"testing"
)

// each runs a test on the store that needs no other program. With the tag "system" there is another of it, which adds
// PostgreSQL.
func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "a b?.db")) })
}
