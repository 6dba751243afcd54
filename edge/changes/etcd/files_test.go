package etcd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that cannot be read is told at the start, with its name.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		c    Config
		says string
	}{
		{Config{Endpoints: []string{"http://a:1"}, Username: "a", PasswordFile: dir + "/none"}, "etcd.password_file: open " + dir + "/none"},
		{Config{Endpoints: []string{"http://a:1"}, Username: "a", PasswordFile: empty}, "is empty"},
		{Config{Endpoints: []string{"https://a:1"}, CAFile: dir + "/none"}, "etcd.ca_file: open"},
		{Config{Endpoints: []string{"https://a:1"}, CAFile: empty}, "has no certificate"},
		{Config{Endpoints: []string{"https://a:1"}, CertFile: empty, KeyFile: empty}, "etcd.cert_file, key_file: "},
	} {
		if _, err := New(test.c, "", ""); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v, want %s", test.c, err, test.says)
		}
	}
}
