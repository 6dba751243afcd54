package importer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/edge/edgetest/golden"
)

// What is made of each file, with its notes, is a golden file; Import holds it to be a configuration.
func TestImport(t *testing.T) {
	for file, kind := range map[string]string{"nginx.conf": "nginx", "haproxy.cfg": "haproxy", "ratelimit.yaml": "envoy-ratelimit"} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Import(kind, file, text, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		golden.Check(t, file+".sluice", []byte(r.YAML))
		says := map[string]string{"nginx": `(?m)^[^#\n]*\blimit_(?:req|conn|rate) `,
			"haproxy":         `(?:deny|tarpit|silent-drop|reject) .*(?:_rate|_cur|gpc0|if fast)|\bmaxconn`,
			"envoy-ratelimit": `\brate_limit:`}[kind]
		if n := len(regexp.MustCompile(says).FindAll(text, -1)); n != r.Account.Limits {
			t.Errorf("%s says a limit %d times: %v", file, n, r.Account)
		}
	}
}

// A file of another program, or half a file, is an error with its line.
func TestImportOfSomethingElse(t *testing.T) {
	for _, x := range [][3]string{
		{"nginx", "http {\n  server {\n", "line 3: the file ends within a block or a directive"},
		{"nginx", "frontend a\n  bind :80\n", "ends within a block or a directive"},
		{"nginx", "a: {b: \"c}\n", "a quote has no end"},
		{"haproxy", "http {\n}\n", "line 1: http stands in no section"},
		{"haproxy", "frontend a\n  acl x hdr(a) 'b\n", "line 2: a quote has no end"},
		{"envoy-ratelimit", "rules: []\n", "has no domain"},
		{"envoy-ratelimit", "a: [\n", "is no YAML"},
		{"caddy", "", "want nginx, haproxy or envoy-ratelimit"},
	} {
		if _, err := Import(x[0], "f", []byte(x[1]), nil); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%s %q: %v; want %q", x[0], x[1], err, x[2])
		}
	}
}

// A header that the edge would not take names no client: proxies are then not trusted either.
func TestImportOfAHeaderThatNamesNobody(t *testing.T) {
	for _, header := range []string{"Cookie", "X-Forwarded-"} {
		r, err := Import("nginx", "f", []byte("http {\n set_real_ip_from 10.0.0.0/8;\n real_ip_header "+header+";\n}\n"), nil)
		if err != nil || strings.Contains(r.YAML, "trust") || !strings.Contains(r.YAML, "# line 3: left out") {
			t.Errorf("%q: %v:\n%s", header, err, r.YAML)
		}
	}
}

// Whatever a file says, it is read to its end or refused, and what comes of it is a configuration.
func FuzzImport(f *testing.F) {
	for file, kind := range map[string]string{"nginx.conf": "nginx", "haproxy.cfg": "haproxy", "ratelimit.yaml": "envoy-ratelimit"} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, string(text))
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		r, err := Import(kind, "f", []byte(text), nil)
		if err != nil && strings.Contains(err.Error(), "is no configuration") {
			t.Errorf("%v\n%v", err, r)
		}
		if err == nil && r.Account.Rules+r.Account.Shadows+r.Account.Notes != r.Account.Limits {
			t.Errorf("%v of\n%s", r.Account, text)
		}
	})
}
