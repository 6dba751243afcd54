package etcd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/edge"
	"sluice/edge/changes/etcd"
	"sluice/edge/config"
	"sluice/pop/secret"
)

// Whoever can write into etcd changes the rules of every edge: what lets others do that is said.
func TestEtcdWarnings(t *testing.T) {
	p := config.Parser{Modules: edge.Modules{Module()}.Config()}
	f := func(etcd, want string) {
		t.Helper()
		c, err := p.Parse("", []byte("state_dir: /s\netcd: {"+etcd+"}"))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, w := range c.Warnings() {
			if strings.HasPrefix(w, "etcd: ") {
				got += w
			}
		}
		c.StateDir = ""
		if !strings.Contains(strings.Join(c.Warnings(), "\n"), "etcd: without state_dir") {
			t.Errorf("%s: without state_dir: %q", etcd, c.Warnings())
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", etcd, got, want)
		}
	}
	f(`endpoints: ["http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379"]`, "")
	f(`endpoints: ["http://10.0.0.1:2379"]`, "plain text without a password")
	f(`endpoints: ["http://127.0.0.1:2379", "http://10.0.0.1:2379"]`, "plain text without a password")
	f(`endpoints: ["http://10.0.0.1:2379"], username: a, password_file: p`, "reads the password")
	f(`endpoints: ["https://10.0.0.1:2379"]`, "no username and no cert_file")
	f(`endpoints: ["https://10.0.0.1:2379"], username: a, password_file: p`, "")
	f(`endpoints: ["https://10.0.0.1:2379"], cert_file: c, key_file: k`, "")
}

// Rules are kept in etcd where there is one, those under another prefix in another file. Who can
// read its secrets is asked either way.
func TestPlace(t *testing.T) {
	use := edge.Modules{Module()}
	for text, want := range map[string]string{
		"state_dir: /s": "",
		"etcd: {endpoints: [], username: a, password_file: p}":               "",
		"etcd: {endpoints: ['https://a:1'], cert_file: c, key_file: k}":      "etcd%2Fsluice%2F",
		"etcd: {endpoints: ['https://a:1'], prefix: '/a%b/'}":                "etcd%2Fa%25b%2F",
		"etcd: {endpoints: ['https://a:1'], username: a, password_file: /x}": "etcd%2Fsluice%2F",
	} {
		c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		place, got := use.Rules(c), ""
		if place != nil {
			got = place.File
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		is := config.SettingsOf[etcd.Config](c, "etcd")
		if diff := cmp.Diff([]config.File{{Setting: "etcd.password_file", Path: is.PasswordFile, Secret: true},
			{Setting: "etcd.key_file", Path: is.KeyFile, Secret: true}}, c.Files()); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if is.PasswordFile != "/x" {
			continue
		}
		if _, err := place.Open(secret.Of([]byte("k")), 1, nil); err == nil ||
			!strings.HasPrefix(err.Error(), "etcd.password_file: open /x: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
