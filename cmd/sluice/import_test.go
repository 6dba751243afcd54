//go:build !minimal

package main

import (
	"strings"
	"testing"
)

// What sluice import prints is a configuration that sluice check takes; what is no file of that program, and a program
// that it does not know, are errors.
func TestImportIsChecked(t *testing.T) {
	for file, kind := range map[string]string{"nginx.conf": "nginx", "haproxy.cfg": "haproxy", "ratelimit.yaml": "envoy-ratelimit"} {
		code, out, errs := sluice("import", kind, "../../edge/modules/importer/testdata/"+file)
		if code != 0 || errs != "" {
			t.Errorf("%s: exit %d: %s", kind, code, errs)
		}
		if code, _, errs := sluice("check", write(t, out)); code != 0 {
			t.Errorf("%s: check: exit %d: %s\n%s", kind, code, errs, out)
		}
	}
	for _, x := range []struct {
		code int
		want string
		args []string
	}{
		{1, "is this a file of HAProxy?", []string{"import", "haproxy", "../../edge/modules/importer/testdata/nginx.conf"}},
		{2, "want nginx, haproxy or envoy-ratelimit", []string{"import", "caddy", "Caddyfile"}},
		{1, "give the path of a readable file", []string{"import", "nginx", "nowhere.conf"}},
	} {
		if code, _, errs := sluice(x.args...); code != x.code || !strings.Contains(errs, x.want) {
			t.Errorf("%q: exit %d: %s", x.args, code, errs)
		}
	}
}
