package upstream_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/upstream"
)

// Which servers are trusted, and with what the edge shows itself.
func TestTLSToOrigins(t *testing.T) {
	dir := t.TempDir()
	server, client := filepath.Join(dir, "server"), filepath.Join(dir, "client")
	edgetest.WriteCertificate(t, server, "origin.internal")
	edgetest.WriteCertificate(t, client, "edge")
	named := make(chan string, 16)
	answers := func(_ http.ResponseWriter, r *http.Request) { named <- r.TLS.ServerName }
	plain, asking := edgetest.StartTLSOrigin(t, server, "", answers), edgetest.StartTLSOrigin(t, server, client, answers)
	for _, test := range []struct {
		name string
		s    *httptest.Server
		tls  string
		want int
	}{
		{"a server that nobody vouches for", plain, "{server_name: origin.internal}", 502},
		{"a private CA", plain, "{ca_file: SERVER.crt, server_name: origin.internal}", 200},
		{"its name is not that of the URL", plain, "{ca_file: SERVER.crt}", 502},
		{"another name", plain, "{ca_file: SERVER.crt, server_name: other.internal}", 502},
		{"another CA", plain, "{ca_file: CLIENT.crt, server_name: origin.internal}", 502},
		{"a certificate that nobody asks for", plain, "{ca_file: SERVER.crt, cert_file: CLIENT.crt, key_file: CLIENT.key, server_name: origin.internal}", 200},
		{"one that is asked for", asking, "{ca_file: SERVER.crt, cert_file: CLIENT.crt, key_file: CLIENT.key, server_name: origin.internal}", 200},
		{"one that is missing", asking, "{ca_file: SERVER.crt, server_name: origin.internal}", 502},
		{"another one", asking, "{ca_file: SERVER.crt, cert_file: SERVER.crt, key_file: SERVER.key, server_name: origin.internal}", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.NewReplacer("SERVER", server, "CLIENT", client).Replace(test.tls)
			e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], tls: %s}]", test.s.URL, text))
			resp, body := e.Get("/")
			if resp.StatusCode != test.want {
				t.Errorf("%d %s, want %d", resp.StatusCode, body, test.want)
			}
			if test.want == 200 && <-named != "origin.internal" {
				t.Error("the server was asked for another name")
			}
			e.Rest()
		})
	}
}

// Files that change are read again: connections that are kept from before are not used any more, and a file that is wrong
// changes nothing.
func TestTLSFilesOfOriginsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	one, two, ca := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "ca.crt")
	edgetest.WriteCertificate(t, one, "origin.internal")
	edgetest.WriteCertificate(t, two, "origin.internal")
	put := func(from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		edgetest.Must(t, err)
		edgetest.Must(t, os.WriteFile(ca, text, 0o600))
	}
	put(one + ".crt")
	s := edgetest.StartTLSOrigin(t, one, "", func(http.ResponseWriter, *http.Request) {})
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s, server_name: origin.internal}}]", s.URL, ca))
	o := e.Upstreams().All[0]
	said := ""
	read := func() {
		said = ""
		o.Refresh(func(message string, _ ...any) { said = message })
	}
	status := func() int { resp, _ := e.Get("/"); return resp.StatusCode }

	if got := status(); got != 200 {
		t.Fatalf("at first: %d", got)
	}
	if read(); said != "" || status() != 200 || len(o.Idle) != 1 {
		t.Errorf("nothing has changed: %q, %d kept", said, len(o.Idle))
	}
	kept := o.Idle[0]
	edgetest.Must(t, os.WriteFile(ca, []byte("half"), 0o600))
	if read(); !strings.Contains(said, "wrong") || status() != 200 || o.Idle[0] != kept {
		t.Errorf("a broken file: %q", said)
	}
	put(two + ".crt")
	if read(); !strings.Contains(said, "read again") {
		t.Errorf("another CA: %q", said)
	}
	if got := status(); got != 502 {
		t.Errorf("the server is not trusted any more: %d", got)
	}
	put(one + ".crt")
	if read(); status() != 200 {
		t.Error("trusted again, and not used")
	}

	// A reload reads them too; one with a file that is not there changes nothing.
	c := *e.Config()
	c.Origins = append([]upstream.Config(nil), c.Origins...)
	c.Origins[0].TLS.CAFile = filepath.Join(dir, "nowhere")
	if err := e.Apply(&c); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a file that is not there: %v", err)
	}
	if status() != 200 {
		t.Error("after a bad reload")
	}
	c.Origins[0].TLS.CAFile = two + ".crt"
	if err := e.Apply(&c); err != nil || status() != 502 {
		t.Errorf("another file: %v, %d", err, status())
	}
}

// F18: a connection over TLS that the origin has closed is not used for the next request, which may be one that must not be
// sent twice.
func TestClosedTLSConnections(t *testing.T) {
	base := filepath.Join(t.TempDir(), "server")
	edgetest.WriteCertificate(t, base, "origin.internal")
	s := edgetest.StartTLSOrigin(t, base, "", func(http.ResponseWriter, *http.Request) {})
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s.crt, server_name: origin.internal}}]", s.URL, base))
	c := e.Talk()
	for i := range 5 {
		if resp, body := c.Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"); resp.StatusCode != 200 {
			t.Fatalf("request %d: %d %s", i, resp.StatusCode, body)
		}
		if o := e.Upstreams().All[0]; len(o.Idle) != 1 {
			t.Fatalf("%d connections are kept", len(o.Idle))
		}
		if i%2 == 1 {
			s.CloseClientConnections()
		}
	}
}

// A server that takes a connection and says nothing fails the handshake in time, and nobody is served by it.
func TestHandshakeDeadline(t *testing.T) {
	ln := edgetest.ListenHere(t)
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: ['https://%s'], connect_timeout: 50ms}]", ln.Addr()))
	start := time.Now()
	if resp, _ := e.Get("/"); resp.StatusCode != 502 || time.Since(start) > upstream.DefaultConnect {
		t.Errorf("%d after %v", resp.StatusCode, time.Since(start))
	}
}

func TestUnixOrigin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	edgetest.Must(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: ['unix:%s']}]", path))
	c := e.Talk()
	for request, want := range map[string]string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n": "a", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n": "localhost"} {
		if resp, body := c.Say(request); resp.StatusCode != 200 || body != want {
			t.Errorf("%d %q, want %q", resp.StatusCode, body, want)
		}
	}
	if o := e.Upstreams().All[0]; o.Name != "unix:"+path || len(o.Idle) != 1 {
		t.Errorf("%s keeps %d connections", o.Name, len(o.Idle))
	}
}
