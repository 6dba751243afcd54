//go:build system

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

const askedRules = `
rules:
- {name: user, key: "header:X-User", limit: 300, window: 1h, mitigation_timeout: 1h}
- {name: address, limit: 1000000, window: 1h}
`

// ask asks an edge's limit API, and returns what the answer says; it fails at any status but 200.
func (p *process) ask(address, body string) (allowed bool) {
	p.t.Helper()
	var a struct{ Allowed bool }
	resp, err := http.Post("http://"+address+"/v1/limit", "application/json", strings.NewReader(body))
	if err != nil { // also where another goroutine asks
		p.t.Errorf("%s: %v", body, err)
		return false
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != 200 {
		p.t.Errorf("%s: %d %v", body, resp.StatusCode, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is kept
	return a.Allowed
}

// What programs ask at two edges over real memcached and what goes through them is counted together, for one client.
func TestLimitAPIOfTwoEdges(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	var edges [2]*process
	var at [2]string
	for i := range edges {
		at[i] = freePort(t)
		edges[i] = start(t, origin(t), "--memcached", node, "--config", write(t, "limit_api: {listen: "+at[i]+"}\n"+askedRules))
	}
	admitted := 0
	edges[0].until("refusing", func() bool { // at either edge, every few milliseconds
		one, two := edges[0].ask(at[0], `{"rule":"user","key":"alice","cost":3}`), edges[1].ask(at[1], `{"rule":"user","key":"alice"}`)
		if one {
			admitted += 3
		}
		if two {
			admitted++
		}
		return !one && !two
	})
	if admitted < 290 || admitted > 450 { // by themselves they would admit twice as much
		t.Errorf("%d are admitted at two edges, want 300", admitted)
	}
	for _, e := range edges {
		e.until("refusing the client's own requests", func() bool { return e.with("X-User", "alice") == 429 })
		if got := e.with("X-User", "bob"); got != 200 {
			t.Errorf("another client gets %d", got)
		}
	}
}

// Over TLS programs show a certificate, have one call at a time on a connection, and others are not answered.
func TestLimitAPIOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue(t, "edge", net.IPv4(127, 0, 0, 1))
	addr := freePort(t)
	p := start(t, origin(t), "--config", write(t, fmt.Sprintf("limit_api: {listen: %q, cert_file: %s, key_file: %s, client_ca_file: %s}\n%s", addr, cert, key, ca.file, askedRules)))
	own, ownKey := ca.issue(t, "worker")
	shown, err := tls.LoadX509KeyPair(own, ownKey)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	ask := func(c *tls.Config) (*http.Response, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		return client.Post("https://"+addr+"/v1/limit", "application/json", strings.NewReader(`{"rule":"user","key":"alice"}`))
	}
	resp, err := ask(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{shown}})
	must(t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || resp.ProtoMajor != 1 || !strings.Contains(string(text), `"allowed":true`) {
		t.Errorf("%d over %s: %s", resp.StatusCode, resp.Proto, text)
	}
	if resp, err := ask(&tls.Config{RootCAs: roots}); err == nil {
		resp.Body.Close()
		t.Errorf("without a certificate: %d", resp.StatusCode)
	}
	p.stop(syscall.SIGTERM)
}

// An edge replaced by a new process (SIGUSR2) loses no call over connections that are kept.
func TestLimitAPISurvivesUpgrades(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	l := startLineage(t, origin(t), nil, "--config", write(t, "limit_api: {listen: "+addr+"}\n"+askedRules))
	l.ask(addr, `{"rule":"user","key":"alice","cost":300}`)
	l.ask(addr, `{"rule":"user","key":"alice"}`)
	l.answersOverUpgrades(func(n int) error {
		if !l.ask(addr, fmt.Sprintf(`{"rule":"user","key":"user-%d"}`, n)) {
			return errors.New("refused")
		}
		return nil
	}, func() bool { return !l.ask(addr, `{"rule":"user","key":"alice"}`) })
	if said := strings.Count(l.text(), " limit_api="+addr); said != 3 {
		t.Errorf("%d of 3 processes say where they listen for programs:\n%s", said, l.text())
	}
}

// answersOverUpgrades replaces a process twice, while calls are made that must not fail: who was blocked before stays so. Then it ends.
func (l *lineage) answersOverUpgrades(call func(n int) error, blocked func() bool) {
	l.t.Helper()
	stop, calls := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				calls <- n
				return
			default:
			}
			if err := call(n); err != nil {
				l.t.Errorf("call %d: %v", n, err)
			}
		}
	}()
	for range 2 {
		l.replace()
		if !blocked() {
			l.t.Error("who was blocked before is admitted")
		}
	}
	close(stop)
	if n := <-calls; n == 0 {
		l.t.Error("no call was made meanwhile")
	}
	l.signal(syscall.SIGTERM)
	l.until("stopped", func() bool { return strings.Count(l.text(), "msg=stopped") == 3 })
}

// A token, an address that others reach, and what a check says of it.
func TestLimitAPIToken(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	p := start(t, origin(t), "--config", write(t, "limit_api: {listen: "+addr+", token_file: "+write(t, "secret\n")+"}\n"+askedRules))
	for header, want := range map[string]int{"Bearer other": 401, "Bearer secret": 200} {
		if resp, text := p.request("POST", addr, "/v1/limit", `{"rule":"address","key":"192.0.2.1"}`, "Content-Type", "application/json", "Authorization", header); resp.StatusCode != want {
			t.Errorf("%s: %d %s", header, resp.StatusCode, text)
		}
	}
}
