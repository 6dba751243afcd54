//go:build system

package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// Several listeners, each with what is its own: a redirect, certificates, a name in metrics, status and log. A process that takes over
// keeps the sockets of each, in whatever order its file has them, opens those that are new, and closes those that are gone.
func TestSeveralListeners(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	siteCert, siteKey := ca.issue(t, "site")
	ownCert, ownKey := ca.issue(t, "own")
	plain, redirects, added, site, own := freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)
	server := origin(t)
	config := func(listen string) string {
		return fmt.Sprintf("listen: [%s]\nlisten_tls:\n  - %q\n  - {address: %q, tls: {certificate: %s, key: %s}}\ntls: {certificate: %s, key: %s}\nhsts: {max_age: 1h}\norigins: [{servers: [%q]}]\n",
			listen, site, own, ownCert, ownKey, siteCert, siteKey, server)
	}
	file := write(t, config(fmt.Sprintf("%q, {address: %q, redirect: true}", plain, redirects)))
	rewrite := func(listen string) { must(t, os.WriteFile(file, []byte(config(listen)), 0o600)) }
	l := startLineageOf(t, nil, "--config", file)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	expect := func(url string, status int, location, shows string) {
		t.Helper()
		resp, err := client.Get(url)
		must(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("Location"); resp.StatusCode != status || got != location {
			t.Errorf("%s: %d %q, want %d %q", url, resp.StatusCode, got, status, location)
		}
		if resp.TLS != nil && resp.TLS.PeerCertificates[0].Subject.CommonName != shows {
			t.Errorf("%s: shows %s, want %s", url, resp.TLS.PeerCertificates[0].Subject.CommonName, shows)
		}
		if hsts := resp.Header.Get("Strict-Transport-Security"); (hsts == "max-age=3600") != (resp.TLS != nil) {
			t.Errorf("%s: Strict-Transport-Security %q", url, hsts)
		}
	}
	_, port, _ := strings.Cut(site, ":")
	all := func() {
		t.Helper()
		expect("http://"+plain+"/x", 200, "", "")
		expect("http://"+redirects+"/x?y", 308, "https://127.0.0.1:"+port+"/x?y", "")
		expect("https://"+site+"/", 200, "", "site")
		expect("https://"+own+"/", 200, "", "own")
	}
	all()
	_, metrics := l.admin("GET", "/metrics")
	for _, want := range []string{
		fmt.Sprintf("sluice_connections_accepted_total{address=%q,listener=\"listen\"} 1", plain), fmt.Sprintf("sluice_connections_accepted_total{address=%q,listener=\"listen\"} 1", redirects),
		fmt.Sprintf("sluice_connections_accepted_total{address=%q,listener=\"listen_tls\"} 1", own),
		fmt.Sprintf("listener=\"listen_tls %s\",name=%q", own, ownCert), fmt.Sprintf("listener=\"listen_tls\",name=%q", siteCert),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if log := l.text(); !strings.Contains(log, fmt.Sprintf("listen=%q listen_tls=%q", plain+" "+redirects, site+" "+own)) {
		t.Errorf("the log does not name the listeners:\n%s", log)
	}

	rewrite(fmt.Sprintf("{address: %q, redirect: true}, %q, %q", redirects, added, plain))
	l.replace()
	l.until("the older process has left", func() bool { return strings.Contains(l.text(), "msg=stopped") })
	all()
	expect("http://"+added+"/x", 200, "", "")

	rewrite(fmt.Sprintf("%q, {address: %q, redirect: true}", plain, redirects))
	l.replace()
	l.until("the older process has left", func() bool { return strings.Count(l.text(), "msg=stopped") == 2 })
	all()
	if _, err := client.Get("http://" + added + "/"); err == nil {
		t.Error("a listener that is gone still answers")
	}
}
