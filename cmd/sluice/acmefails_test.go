//go:build system

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice/edge/changes/etcd/etcdtest"
	"sluice/edge/modules/acme/pebbletest"
)

// inTurn passes connections on to several addresses in turn, as a balancer does, until the test ends.
func inTurn(t *testing.T, at string, to ...string) (passed []*atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	must(t, err)
	for range to {
		passed = append(passed, new(atomic.Int64))
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			passed[n%len(to)].Add(1)
			all.Go(func() {
				defer c.Close()
				o, err := net.Dial("tcp", to[n%len(to)])
				for limit := time.Now().Add(5 * time.Second); err != nil; o, err = net.Dial("tcp", to[n%len(to)]) { // it starts
					if time.Now().After(limit) {
						return
					}
					runtime.Gosched()
				}
				defer o.Close()
				go func() {
					_, _ = io.Copy(o, c)
					_ = o.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(c, o)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return passed
}

// longAgo has what certmagic keeps about a certificate say that the server wanted it renewed long ago.
func longAgo(t *testing.T, text string) string {
	t.Helper()
	times := regexp.MustCompile(`"(_selectedTime|start|end)":\s*"[^"]*"`)
	if !times.MatchString(text) {
		t.Fatalf("no time of renewal in %s", text)
	}
	return times.ReplaceAllString(text, `"$1":"2020-01-02T03:04:05Z"`)
}

// Two edges that share etcd, behind one address, get one certificate with one order, whichever of them is asked for the proof, and renew it once.
func TestACMEOfTwoEdges(t *testing.T) {
	t.Parallel()
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			t.Parallel()
			const host = "both.example"
			front, secure := freePort(t), freePort(t)
			server, lines := acmeLines(t, front, secure)
			node := etcdtest.Start(t)
			var fronts, secures, files []string
			for i := range 2 {
				fronts, secures = append(fronts, freePort(t)), append(secures, freePort(t))
				files = append(files, write(t, fmt.Sprintf("edge_id: e%d\nlisten: %q\nlisten_tls: %q\netcd: {endpoints: [%q]}\nacme: {hosts: [%s], %s, challenges: [%s]}\norigins: [{servers: [%q]}]\n",
					i, fronts[i], secures[i], node.Endpoint, host, lines, challenge, origin(t))))
			}
			asked := inTurn(t, secure, secures...)
			if challenge == "http-01" {
				asked = inTurn(t, front, fronts...)
			}
			edges := []*lineage{startLineageOf(t, nil, "--config", files[0]), startLineageOf(t, nil, "--config", files[1])}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%d orders; the edges said:\n%s\n%s", server.Orders(), edges[0].text(), edges[1].text())
				}
			})
			serials := func() (list [2]string) { return [2]string{issued(secures[0], host), issued(secures[1], host)} }
			have := func(not string) func() bool {
				return func() bool {
					s := serials()
					return s[0] != "" && s[0] != not && s[0] == s[1]
				}
			}
			edges[0].until("one certificate at both edges", have(""))
			if n := server.Orders(); n != 1 {
				t.Errorf("%d orders, want 1", n)
			}
			if asked[0].Load() == 0 || asked[1].Load() == 0 {
				t.Errorf("proofs were asked for %d and %d times", asked[0].Load(), asked[1].Load())
			}
			first := serials()[0]

			client := etcdClient(t, node)
			found, err := client.Get(t.Context(), "/sluice/", clientv3.WithPrefix())
			must(t, err)
			edited := 0
			for _, kv := range found.Kvs {
				if strings.HasSuffix(string(kv.Key), host+".json") {
					_, err := client.Put(t.Context(), string(kv.Key), longAgo(t, string(kv.Value)))
					must(t, err)
					edited++
				}
			}
			if edited != 1 {
				t.Fatalf("%d certificates are in etcd", edited)
			}
			var both sync.WaitGroup
			for _, e := range edges {
				both.Go(func() { e.replace() })
			}
			both.Wait()
			edges[0].until("a new certificate at both edges", have(first))
			if n := server.Orders(); n != 2 {
				t.Errorf("%d orders, want 2", n)
			}
			for i, e := range edges {
				if _, text := e.admin("GET", "/readyz"); text != "ready\n" {
					t.Errorf("edge %d: %s", i, text)
				}
			}
		})
	}
}

// An edge that gets no certificate, or no new one, says so wherever one looks, and serves everything else meanwhile.
func TestACMEFails(t *testing.T) {
	t.Parallel()
	const good, bad = "good.example", "bad.example"
	front, secure := freePort(t), freePort(t)
	server := pebbletest.Start(t, pebbletest.Config{HTTPPort: portOf(t, front), TLSPort: portOf(t, secure), Refused: []string{bad}})
	state := t.TempDir()
	file := write(t, fmt.Sprintf("listen: %q\nlisten_tls: %q\nstate_dir: %s\nacme: {hosts: [%s, %s], directory: %s, ca_file: %s, agree: true}\norigins: [{servers: [%q]}]\n",
		front, secure, state, good, bad, server.Directory, server.CAFile, origin(t)))
	server.Kill()
	l := startLineageOf(t, nil, "--config", file)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the edge said:\n%s", l.text())
		}
	})
	serves := func(what string) {
		t.Helper()
		resp, err := http.Get("http://" + front + "/")
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", what, resp.StatusCode)
		}
	}
	// says is whether all that operators look at has a text.
	says := func(what, text string) {
		t.Helper()
		has := func(path, text string) func() bool {
			return func() bool { _, got := l.admin("GET", path); return strings.Contains(got, text) }
		}
		l.until(what+" in /readyz", has("/readyz", text))
		l.until(what+" in events", has("/v1/events", text))
		l.until(what+" in the log", func() bool { return strings.Contains(l.text(), text) })
		if status, got := l.admin("GET", "/readyz"); status != 200 || !strings.HasPrefix(got, "ready\n") {
			t.Errorf("%s: /readyz: %d %s", what, status, got)
		}
		if code, got, errs := sluice("status", "--admin", l.back); code != 0 || !strings.Contains(got, text) {
			t.Errorf("%s: status: exit %d, has no %q:\n%s%s", what, code, text, got, errs)
		}
		if _, got := l.admin("GET", "/metrics"); strings.Contains(got, "\nsluice_acme_failures_total 0\n") {
			t.Errorf("%s: no failure in metrics", what)
		}
	}
	says("the server is away", "waiting for a certificate for "+good+": ")
	serves("without a certificate")
	if _, err := tls.Dial("tcp", secure, &tls.Config{ServerName: good, InsecureSkipVerify: true}); err == nil {
		t.Error("a handshake without a certificate")
	}

	server.Run()
	l.replace() // or it waits for a minute
	l.until("the certificate", func() bool { return issued(secure, good) != "" })
	says("the server refuses", "waiting for a certificate for "+bad+": bad.example is a forbidden domain")
	if _, text := l.admin("GET", "/readyz"); strings.Contains(text, good) {
		t.Errorf("the certificate that there is: %s", text)
	}
	expires := expiry(t, secure, good)
	_, text := l.admin("GET", "/metrics")
	if want := `sluice_certificate_expiry_timestamp_seconds{listener="listen_tls",name="` + good + `"} `; !strings.Contains(text, want) {
		t.Errorf("no %s", want)
	} else if value, err := strconv.ParseFloat(strings.Fields(text[strings.Index(text, want)+len(want):])[0], 64); err != nil || int64(value) != expires.Unix() {
		t.Errorf("metrics say %v, %v; the certificate that is shown says %d", value, err, expires.Unix())
	}
	if strings.Contains(text, `name="`+bad) {
		t.Error("metrics have an end for a certificate that there is not")
	}

	// What only the edge may read.
	keys, edited := 0, 0
	must(t, filepath.WalkDir(filepath.Join(state, "acme"), func(path string, e os.DirEntry, err error) error {
		must(t, err)
		info, err := e.Info()
		must(t, err)
		if info.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(path, ".lock") { // which says since when
			t.Errorf("%s is %v: others may read it", path, info.Mode())
		}
		if strings.HasSuffix(path, ".key") {
			keys++
		}
		if strings.HasSuffix(path, good+".json") {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, []byte(longAgo(t, string(text))), 0o600))
			edited++
		}
		return nil
	}))
	if keys < 2 || edited != 1 {
		t.Errorf("%d keys, %d certificates", keys, edited)
	}

	serial := issued(secure, good)
	server.Kill()
	l.replace()
	says("a renewal fails", "the certificate for "+good+" could not be renewed")
	if now := issued(secure, good); now != serial {
		t.Errorf("certificate %q, want the one that there was, %q", now, serial)
	}
	serves("after a renewal that failed")
	_, events := l.admin("GET", "/v1/events")
	for _, secret := range []string{"PRIVATE", "BEGIN", "eyJ"} { // of keys, and what is signed with them
		if strings.Contains(l.text()+events, secret) {
			t.Errorf("%s is printed", secret)
		}
	}
}

// expiry is when a host's certificate expires that a client is shown.
func expiry(t *testing.T, address, host string) time.Time {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	must(t, err)
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].NotAfter
}
