//go:build system

package acme

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"sluice/edge"
	"sluice/edge/control"
	"sluice/edge/modules/acme/pebbletest"
)

// A listening is a manager, and the listener at which it gives proofs.
type listening struct {
	*Manager
	address string
	events  chan string
}

// startEdge starts one with a server that gives certificates for a while.
func startEdge(t *testing.T, lifetime time.Duration, hosts ...string) (*listening, *pebbletest.Server) {
	t.Helper()
	return startEdgeWith(t, Folder(t.TempDir()), lifetime, hosts...)
}

func startEdgeWith(t *testing.T, storage certmagic.Storage, lifetime time.Duration, hosts ...string) (*listening, *pebbletest.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	server := pebbletest.Start(t, pebbletest.Config{TLSPort: port, HTTPPort: port, Lifetime: lifetime})
	e := &listening{address: l.Addr().String(), events: make(chan string, 100)}
	e.Manager, err = New(Options{Config: Config{Hosts: hosts, Directory: server.Directory, CAFile: server.CAFile, Agree: true, Challenges: []string{TLSALPN}},
		Storage: storage, Ports: edge.Ports{Host: "127.0.0.1", TLS: port},
		Event: func(host, reason string, renewal bool) {
			e.events <- fmt.Sprintf("%s renewal=%v %s", host, renewal, reason)
		}})
	must(t, err)
	secure := &http.Server{TLSConfig: &tls.Config{NextProtos: []string{"http/1.1", Protocol}, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return e.Certificate(hello), nil
	}}}
	var both sync.WaitGroup
	both.Go(func() { _ = secure.ServeTLS(l, "", "") })
	ctx, cancel := context.WithCancel(t.Context())
	e.Load(ctx)
	both.Go(func() { e.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		secure.Close()
		both.Wait()
	})
	return e, server
}

// next is the next event.
func (e *listening) next(t *testing.T) string {
	t.Helper()
	select {
	case text := <-e.events:
		return text
	case <-time.After(time.Minute):
		t.Fatal("no event")
		return ""
	}
}

// shown is the certificate that a client is shown.
func (e *listening) shown(host string) (serial string, until time.Time, err error) {
	c, err := tls.Dial("tcp", e.address, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return "", until, err
	}
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	return leaf.SerialNumber.String(), leaf.NotAfter, leaf.VerifyHostname(host)
}

// until waits for what the cache does after its event.
func (e *listening) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// short is a lifetime of which the server says at once that it is time for a new certificate (RFC 9773).
const short = 5 * time.Minute

// A certificate is renewed while clients come, and none of them is refused. A renewal that fails is told, with what there is meanwhile.
func TestRenewal(t *testing.T) {
	t.Parallel()
	host := strings.ToLower(rand.Text()) + ".example" // certmagic remembers for a minute, for the whole process, whose renewal has failed
	e, server := startEdge(t, short, host)
	if text := e.next(t); text != host+" renewal=false " {
		t.Fatal(text)
	}
	e.until(t, "a certificate", func() bool { return !e.Status()[0].Until.IsZero() })
	before, _, err := e.shown(host)
	must(t, err)

	var clients sync.WaitGroup
	stop := make(chan struct{})
	clients.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, _, err := e.shown(host); err != nil {
				t.Errorf("a client was refused while the certificate was renewed: %v", err)
				return
			}
		}
	})
	e.renew(t.Context())
	text := e.next(t)
	now, until := before, time.Time{}
	e.until(t, "the new certificate is shown", func() bool {
		now, until, err = e.shown(host)
		return err != nil || now != before
	})
	close(stop)
	clients.Wait()
	if err != nil || text != host+" renewal=true " {
		t.Fatalf("event %q, %v", text, err)
	}
	if s := e.Status(); len(s) != 1 || s[0] != (control.Certificate{Host: host, Until: until}) || e.Failures() != 0 {
		t.Errorf("status %+v, %d failures, want until %v", s, e.Failures(), until)
	}

	server.Kill()
	e.renew(t.Context())
	if text := e.next(t); !strings.HasPrefix(text, host+" renewal=true ") || !strings.Contains(text, "connection refused") {
		t.Errorf("a renewal that failed is told so: %q", text)
	}
	if s := e.Status()[0]; !s.Until.Equal(until) || !strings.Contains(s.Error, "connection refused") || s.FailedAt.IsZero() || e.Failures() != 1 {
		t.Errorf("status %+v, %d failures", s, e.Failures())
	}
	if again, _, err := e.shown(host); err != nil || again != now {
		t.Errorf("the certificate that there is: %s, %v, want %s", again, err, now)
	}
}
