//go:build !minimal

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/admin"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/edgetest/golden"
	"sluice/edge/modules/geo/geotest"
	"sluice/mitigation"
)

// What help shows of each command.
func TestHelpTexts(t *testing.T) {
	var b strings.Builder
	ask := func(words ...string) {
		code, out, errs := sluice(words...)
		if code != 0 || errs != "" {
			t.Errorf("%q: exit %d, %s", words, code, errs)
		}
		fmt.Fprintf(&b, "$ sluice %s\n%s\n", strings.Join(words, " "), out)
	}
	ask("help")
	for _, c := range commands() {
		ask("help", c.Name)
	}
	golden.Check(t, "help.txt", []byte(b.String()))
}

// What sluice config shows of a configuration: of the least, of the longest example, and of one
// that has every field.
func TestConfigShown(t *testing.T) {
	folder := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	keys := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	edgetest.WriteCertificate(t, filepath.Join(folder, "edge"), "edge")
	files := map[string]string{"partners.txt": "ip\n192.0.2.7\n", "later.html": "later\n", "keys.pem": string(keys),
		"least.yaml": "origins: [{servers: [\"http://127.0.0.1:3000\"]}]\n"}
	for name, from := range map[string]string{
		"example.yaml": "../../examples/algorithms.yaml", "everything.yaml": "testdata/everything.yaml",
	} {
		text, err := os.ReadFile(from)
		must(t, err)
		files[name] = strings.ReplaceAll(string(text), "FOLDER", folder)
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	geotest.Countries(t, folder+"/country.mmdb", map[string]string{"192.0.2.0/24": "DE"})
	geotest.Systems(t, folder+"/asn.mmdb", map[string]uint32{"192.0.2.0/24": 64500})
	for _, name := range []string{"least", "example", "everything"} {
		file := filepath.Join(folder, name+".yaml")
		use := modules(true, nil)
		c, err := (config.Parser{Modules: use.Config()}).Parse(file, []byte(files[name+".yaml"]))
		must(t, err)
		s, err := edge.New(edge.Options{Config: c, Use: use,
			Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(1024, nil)})
		must(t, err)
		api := httptest.NewServer(admin.New(admin.Options{Edge: s, Address: c.Admin}))
		t.Cleanup(api.Close)
		code, out, errs := sluice("config", "--admin", api.Listener.Addr().String())
		if code != 0 {
			t.Fatal(errs)
		}
		out = strings.ReplaceAll(out, folder, "/etc/sluice")
		golden.Check(t, "config-"+name+".yaml", []byte(out))
		if name == "everything" {
			var shown any
			must(t, yaml.Unmarshal([]byte(out), &shown))
			lacks(t, "", fieldsOf(t), []any{shown})
		}
	}
}

func fieldsOf(t *testing.T) (schema map[string]any) {
	must(t, json.Unmarshal(config.Schema, &schema))
	return schema
}

// exclusive are fields of which a configuration has another in its place.
var exclusive = []string{"include", "jwt.cookie", "lists.url", "tls.folder"}

// The file that has every field has every field.
func TestEverythingIsEverything(t *testing.T) {
	text, err := os.ReadFile("testdata/everything.yaml")
	must(t, err)
	var all any
	must(t, yaml.Unmarshal(text, &all))
	lacks(t, "", fieldsOf(t), []any{all})
}

// lacks reports fields of a schema that none of some values has. A list stands for what is in it.
func lacks(t *testing.T, path string, schema map[string]any, values []any) {
	t.Helper()
	for _, v := range values {
		if list, is := v.([]any); is {
			values = append(values, list...)
		}
	}
	others, _ := schema["anyOf"].([]any)
	for _, other := range append(others, schema["items"]) {
		if other, is := other.(map[string]any); is {
			lacks(t, path, other, values)
		}
	}
	fields, _ := schema["properties"].(map[string]any)
	for name, field := range fields {
		at, within := strings.TrimPrefix(path+"."+name, "."), []any(nil)
		for _, v := range values {
			if object, is := v.(map[string]any); is && object[name] != nil {
				within = append(within, object[name])
			}
		}
		switch {
		case slices.Contains(exclusive, at):
		case within == nil:
			t.Errorf("%s is not there", at)
		default:
			lacks(t, at, field.(map[string]any), within)
		}
	}
}
