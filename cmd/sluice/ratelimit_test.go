//go:build system

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A proxy asks an edge's rate limit service, as Envoy does: over one connection that it makes again when it has to.
type proxy struct {
	t *testing.T
	service.RateLimitServiceClient
}

func dialService(t *testing.T, addr string, c credentials.TransportCredentials) *proxy {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &proxy{t, service.NewRateLimitServiceClient(conn)}
}

// describe is a request of a domain, each descriptor as "key=value key=value".
func describe(domain string, texts ...string) *service.RateLimitRequest {
	q := &service.RateLimitRequest{Domain: domain}
	for _, text := range texts {
		d := new(descriptor.RateLimitDescriptor)
		for word := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, &descriptor.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		q.Descriptors = append(q.Descriptors, d)
	}
	return q
}

// ask asks, also of a service that is about to listen.
func (p *proxy) ask(q *service.RateLimitRequest) (*service.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.ShouldRateLimit(ctx, q, grpc.WaitForReady(true))
}

func (p *proxy) code(q *service.RateLimitRequest) service.RateLimitResponse_Code {
	p.t.Helper()
	a, err := p.ask(q)
	if err != nil {
		p.t.Fatal(err)
	}
	return a.OverallCode
}

const (
	within = service.RateLimitResponse_OK
	over   = service.RateLimitResponse_OVER_LIMIT
)

const describedRules = `
rules:
- {name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 300, window: 1h, mitigation_timeout: 1h}
- {name: address, match: {descriptors: {domain: web, entries: [{key: remote_address}]}}, limit: 1000, window: 1h}
- {name: http, limit: 1000000, window: 1h}
`

// Two edges with real memcached count together what proxies ask of either, and who is blocked at one is blocked at the other, by the limit of
// the rule or by one that the descriptor brings; what an operator says of an address holds as well.
func TestRateLimitServiceOfTwoEdges(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	var edges [2]*process
	var proxies [2]*proxy
	for i := range edges {
		addr := freePort(t)
		edges[i] = start(t, origin(t), "--memcached", node, "--config", write(t, "rate_limit_service: {listen: "+addr+"}\n"+describedRules))
		proxies[i] = dialService(t, addr, insecure.NewCredentials())
	}
	asked := describe("web", "user=c")
	asked.Descriptors[0].Limit = &descriptor.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 300, Unit: 3} // an hour
	several := describe("web", "user=b")
	several.Descriptors[0].HitsAddend = wrapperspb.UInt64(3)
	for name, q := range map[string]*service.RateLimitRequest{"by the rule": describe("web", "user=a"), "three at a time": several, "by the descriptor": asked} {
		t.Run(name, func(t *testing.T) {
			admitted, limit := 0, 300 // so many that who tells the other has time for it
			if q == several {
				limit = 100
			}
			edges[0].until("refusing", func() bool { // a call at either edge, every few milliseconds
				codes := [2]service.RateLimitResponse_Code{proxies[0].code(q), proxies[1].code(q)}
				for _, c := range codes {
					if c == within {
						admitted++
					}
				}
				return codes == [2]service.RateLimitResponse_Code{over, over}
			})
			if admitted < limit || admitted > limit+limit/2 { // by themselves they would admit twice as many
				t.Errorf("%d calls are admitted at two edges, want %d", admitted, limit)
			}
		})
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"block", "192.0.2.1", "--for", "10m", "--rule", "address", "--admin", edges[0].back}, &stdout, &stderr); code != 0 {
		t.Fatalf("block: %d %s", code, stderr.String())
	}
	for i, p := range proxies {
		edges[i].until("refusing who an operator has blocked", func() bool { return p.code(describe("web", "remote_address=192.0.2.1")) == over })
		if p.code(describe("web", "remote_address=192.0.2.2")) != within {
			t.Error("so is another")
		}
	}
	if got := edges[0].get(); got != 200 {
		t.Errorf("over HTTP: %d", got)
	}
}

// An edge replaced by a new process (SIGUSR2) fails no call, and keeps who is blocked; one that ends answers what is under way.
func TestRateLimitServiceSurvivesUpgrades(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	l := startLineage(t, origin(t), nil, "--config", write(t, "rate_limit_service: {listen: "+addr+"}\n"+describedRules))
	p := dialService(t, addr, insecure.NewCredentials())
	for range 301 {
		p.code(describe("web", "user=a"))
	}
	l.answersOverUpgrades(func(n int) error {
		_, err := p.ask(describe("web", fmt.Sprint("user=", n)))
		return err
	}, func() bool { return p.code(describe("web", "user=a")) == over })
}

// Over TLS only who shows a certificate of the CA may ask: of the one that is in the file now.
func TestRateLimitServiceOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue(t, "sluice", net.IPv4(127, 0, 0, 1))
	addr := freePort(t)
	p := start(t, origin(t), "--config", write(t, fmt.Sprintf("rate_limit_service: {listen: %q, cert_file: %s, key_file: %s, client_ca_file: %s}\n%s", addr, cert, key, ca.file, describedRules)))
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	own, err := tls.LoadX509KeyPair(ca.issue(t, "envoy"))
	if err != nil {
		t.Fatal(err)
	}
	known := dialService(t, addr, credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}))
	if got := known.code(describe("web", "user=a")); got != within {
		t.Error(got)
	}
	stranger := dialService(t, addr, credentials.NewTLS(&tls.Config{RootCAs: roots}))
	if a, err := stranger.ShouldRateLimit(context.Background(), describe("web", "user=a")); err == nil {
		t.Errorf("a stranger is told %v", a)
	}
	plain := dialService(t, addr, insecure.NewCredentials())
	if a, err := plain.ShouldRateLimit(context.Background(), describe("web", "user=a")); err == nil {
		t.Errorf("without TLS one is told %v", a)
	}

	// Another CA takes its place. Who is known by the old one gets in no more, though his client resumes its session; and a file that is wrong
	// changes nothing.
	other := newAuthority(t)
	theirs, err := tls.LoadX509KeyPair(other.issue(t, "envoy"))
	if err != nil {
		t.Fatal(err)
	}
	sessions := map[string]tls.ClientSessionCache{"own": tls.NewLRUClientSessionCache(1), "theirs": tls.NewLRUClientSessionCache(1)}
	asks := func(who string) bool {
		cert := map[string]tls.Certificate{"own": own, "theirs": theirs}[who]
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ClientSessionCache: sessions[who], NextProtos: []string{"h2"}})
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // the settings of HTTP/2, after a handshake that the service takes; and with it a session
		return err == nil
	}
	if !asks("own") || asks("theirs") {
		t.Error("at first")
	}
	change := func(text []byte, want string) {
		t.Helper()
		if err := os.WriteFile(ca.file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.eventTexts(want)
	}
	text, err := os.ReadFile(other.file)
	if err != nil {
		t.Fatal(err)
	}
	change(text, "certificates read again")
	if asks("own") || !asks("theirs") {
		t.Error("after the change")
	}
	change(nil, "the certificates are wrong: the old ones stay in use: edge: CA of clients: "+ca.file+" has no certificate in PEM")
	if asks("own") || !asks("theirs") {
		t.Error("after a file that is wrong")
	}
}
