package ja4_test

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/modules/ja4"
)

func start(t *testing.T, yaml string) *edgetest.Edge {
	t.Helper()
	use := edge.Modules{ja4.Module()}
	c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte(yaml))
	edgetest.Must(t, err)
	c.Origins = edgetest.WithoutRules(t, edgetest.StartRecorder(t, edgetest.Hello).URL()).Origins
	return edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(use...)))
}

// Clients of one TLS library are counted together, and those of another apart.
func TestKeyOfLibrary(t *testing.T) {
	e, folder := start(t, "rules: [{name: r, key: ja4, limit: 2, window: 1h}]"), t.TempDir()
	edgetest.WriteCertificate(t, filepath.Join(folder, "a"), "a.example")
	at := e.OverTLS(edgetest.CertificatesIn(t, folder))
	for _, most := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		for i, want := range []int{200, 200, 429} {
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
				ServerName: "a.example", MaxVersion: most}}
			resp, err := (&http.Client{Transport: tr}).Get("https://" + at + "/")
			edgetest.Must(t, err)
			resp.Body.Close()
			tr.CloseIdleConnections()
			if resp.StatusCode != want {
				t.Errorf("version %x, request %d: %d, want %d", most, i, resp.StatusCode, want)
			}
		}
	}
}

// What a trusted proxy says of its client counts, and nobody else's word.
func TestHeaderOfTrustedProxy(t *testing.T) {
	const name = "t13d1516h2_8daaf6152771_e5627efa2ab1"
	const rules = "ja4: {header: X-JA4}\n" +
		"rules: [{name: r, match: {ja4: [" + name + "]}, limit: 1, window: 1h}]\n"
	for trust, want := range map[string]int{"127.0.0.1": 429, "192.0.2.1": 200} {
		e := start(t, "source: {trust: ["+trust+"]}\n"+rules)
		e.Get("/", "X-JA4: "+name)
		if resp, _ := e.Get("/", "X-JA4: "+name); resp.StatusCode != want {
			t.Errorf("trusted is %s: %d, want %d", trust, resp.StatusCode, want)
		}
		if resp, _ := e.Get("/", "X-JA4: "+strings.Replace(name, "t13", "t12", 1)); resp.StatusCode != 200 {
			t.Errorf("trusted is %s: another library is refused: %d", trust, resp.StatusCode)
		}
	}
	for yaml, want := range map[string]string{
		"ja4: {header: X-JA4}\n":                                      "give source.trust",
		"source: {trust: [127.0.0.1]}\nja4: {header: Cookie}\n":       "names no client's TLS library",
		"rules: [{name: r, limit: 1, match: {ja4: [chrome]}}]\n":      "is no JA4",
		"rules: [{name: r, limit: 1, match: {ja4: [" + name + "_]}}]": "is no JA4",
	} {
		use := edge.Modules{ja4.Module()}
		c, err := (config.Parser{Modules: use.Config()}).Parse("f",
			[]byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\n"+yaml))
		if err == nil {
			err = c.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", yaml, err, want)
		}
	}
}
