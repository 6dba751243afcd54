package http2_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// What HTTP/2 can say and HTTP/1.1 would read otherwise is refused, or is one request for the origin, the one that was judged. The origin here
// keeps what it gets byte for byte.
func TestHTTP2Downgrade(t *testing.T) {
	post := []string{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/p"}
	get := []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/p"}
	with := func(fields []string, more ...string) []string { return append(append([]string{}, fields...), more...) }
	instead := func(name, value string) []string {
		f := with(get)
		for i := 0; i < len(f); i += 2 {
			if f[i] == name {
				f[i+1] = value
			}
		}
		return f
	}
	without := func(name string) (f []string) {
		for i := 0; i < len(get); i += 2 {
			if get[i] != name {
				f = append(f, get[i], get[i+1])
			}
		}
		return f
	}
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, c := range []struct {
		name    string
		fields  []string
		body    string
		trailer []string
		passes  bool
		line    string // of the origin's request; "": the first of get or post
	}{
		{name: "plain", fields: get, passes: true},
		{name: "a body without a length", fields: post, body: "0\r\n\r\n" + smuggled, passes: true},
		{name: "a body with its length", fields: with(post, "content-length", "5"), body: "hello", passes: true},
		{name: "H2.CL: too short a length", fields: with(post, "content-length", "0"), body: smuggled},
		{name: "a length of nothing, and nothing", fields: with(post, "content-length", "0"), trailer: []string{}, passes: true},
		{name: "H2.CL: shorter", fields: with(post, "content-length", "3"), body: "hello"},
		{name: "H2.CL: too long a length", fields: with(post, "content-length", "10"), body: "hello"},
		{name: "a length and no body", fields: with(get, "content-length", "10")},
		{name: "two lengths", fields: with(post, "content-length", "5", "content-length", "6"), body: "hello"},
		{name: "two equal lengths", fields: with(post, "content-length", "5", "content-length", "5"), body: "hello"},
		{name: "a list of lengths", fields: with(post, "content-length", "5, 5"), body: "hello"},
		{name: "a length with a sign", fields: with(post, "content-length", "+5"), body: "hello"},
		{name: "H2.TE", fields: with(post, "transfer-encoding", "chunked"), body: "0\r\n\r\n" + smuggled},
		{name: "H2.TE by an underscore", fields: with(post, "transfer_encoding", "chunked"), body: "0\r\n\r\n" + smuggled, passes: true},
		{name: "H2.TE in a value", fields: with(post, "x", "y\r\ntransfer-encoding: chunked"), body: "0\r\n\r\n" + smuggled},
		{name: "H2.TE in a name", fields: with(post, "x: y\r\ntransfer-encoding", "chunked"), body: "0\r\n\r\n" + smuggled},
		{name: "H2.TE by a name with a space", fields: with(post, "transfer-encoding ", "chunked"), body: "0\r\n\r\n" + smuggled},
		{name: "H2.TE in a trailer", fields: post, body: "hello", trailer: []string{"transfer-encoding", "chunked"}},
		{name: "a bare LF in a value", fields: with(get, "x", "y\nhost: b")},
		{name: "a bare CR in a value", fields: with(get, "x", "y\rz")},
		{name: "NUL in a value", fields: with(get, "x", "y\x00z")},
		{name: "a value that begins with a space", fields: with(get, "x", " y")},
		{name: "a value that ends with a tab", fields: with(get, "x", "y\t")},
		{name: "a name in capitals", fields: with(get, "X", "y")},
		{name: "an empty name", fields: with(get, "", "y")},
		{name: "a name with a colon", fields: with(get, "x:y", "z")},
		{name: "a request in the method", fields: instead(":method", "GET /admin HTTP/1.1\r\nHost: a\r\n\r\nGET")},
		{name: "a line in the method", fields: instead(":method", "GET /admin HTTP/1.1")},
		{name: "a small method", fields: instead(":method", "get")},
		{name: "an empty method", fields: instead(":method", "")},
		{name: "CONNECT", fields: instead(":method", "CONNECT")},
		{name: "CONNECT as it should be", fields: []string{":method", "CONNECT", ":authority", "a:443"}},
		{name: "extended CONNECT for anything", fields: with([]string{":protocol", "connect-tcp"}, instead(":method", "CONNECT")...)},
		{name: "TRACE", fields: instead(":method", "TRACE")},
		{name: "a space in the path", fields: instead(":path", "/p HTTP/1.1\r\nHost: b\r\n\r\n")},
		{name: "a version in the path", fields: instead(":path", "/p HTTP/1.1")},
		{name: "a fragment", fields: instead(":path", "/p#q")},
		{name: "an absolute path", fields: instead(":path", "http://b/p")},
		{name: "a path without a slash", fields: instead(":path", "p")},
		{name: "an empty path", fields: instead(":path", "")},
		{name: "a star", fields: instead(":path", "*")},
		{name: "no path", fields: without(":path")},
		{name: "no method", fields: without(":method")},
		{name: "no scheme", fields: without(":scheme")},
		{name: "another scheme", fields: instead(":scheme", "ftp")},
		{name: "a request in the scheme", fields: instead(":scheme", "http://b/x?")},
		{name: "no authority", fields: without(":authority")},
		{name: "host in place of authority", fields: with(without(":authority"), "host", "a"), passes: true},
		{name: "host as authority", fields: with(get, "host", "A"), passes: true},
		{name: "another host", fields: with(get, "host", "b")},
		{name: "two hosts", fields: with(get, "host", "a", "host", "a")},
		{name: "a user in the authority", fields: instead(":authority", "u@a")},
		{name: "a path in the authority", fields: instead(":authority", "a/b")},
		{name: "a line in the authority", fields: instead(":authority", "a\r\nx: y")},
		{name: "two paths", fields: with(get, ":path", "/q")},
		{name: "a pseudo-header at the end", fields: with(without(":path"), "x", "y", ":path", "/p")},
		{name: "an unknown pseudo-header", fields: with(get, ":x", "y")},
		{name: "one of an answer", fields: with(get, ":status", "200")},
		{name: "connection", fields: with(get, "connection", "close")},
		{name: "connection that names a line", fields: with(get, "connection", "x-forwarded-for", "x-forwarded-for", "1.2.3.4")},
		{name: "keep-alive", fields: with(get, "keep-alive", "timeout=1")},
		{name: "proxy-connection", fields: with(get, "proxy-connection", "x")},
		{name: "upgrade", fields: with(get, "upgrade", "h2c")},
		{name: "te: chunked", fields: with(get, "te", "chunked")},
		{name: "te: trailers", fields: with(get, "te", "trailers"), passes: true},
		{name: "te: Trailers", fields: with(get, "te", "Trailers"), passes: true},
		{name: "a scheme in capitals", fields: instead(":scheme", "HTTPS"), passes: true},
		{name: "the name of a proxy", fields: with(get, "proxy", "http://x/"), passes: true},
		{name: "expect", fields: with(post, "expect", "200-ok"), body: "x"},
		{name: "cookies in pieces", fields: with(get, "cookie", "a=1", "cookie", "b=2"), passes: true},
		{name: "a pseudo-header in a trailer", fields: post, body: "hello", trailer: []string{":path", "/q"}},
		{name: "a length in a trailer", fields: post, body: "hello", trailer: []string{"content-length", "0"}},
		{name: "a host in a trailer", fields: post, body: "hello", trailer: []string{"host", "b"}},
		{name: "a trailer that nobody announced", fields: post, body: "hello", trailer: []string{"x", "y"}, passes: true},
		{name: "a trailer after a length", fields: with(post, "content-length", "5"), body: "hello", trailer: []string{"x", "y"}, passes: true},
		{name: "an announced trailer", fields: with(post, "trailer", "x"), body: "hello", trailer: []string{"x", "y"}, passes: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1000, window: 1h}]")
			addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
			f := dialFrames(t, addr)
			f.Ask(1, c.body == "" && c.trailer == nil, c.fields...)
			if c.body != "" {
				edgetest.Must(t, f.WriteData(1, c.trailer == nil, []byte(c.body)))
			}
			if c.trailer != nil {
				f.Ask(1, true, c.trailer...)
			}
			a := f.Answer(1)
			whole := func() (list []string) {
				for _, r := range o.Requests() {
					if !strings.HasPrefix(r, "BROKEN") {
						list = append(list, r)
					}
				}
				return list
			}
			if !c.passes {
				if a.status == "200" || a.reset == nil && a.status == "" {
					t.Errorf("it got %v", a)
				}
				f.Get(3) // its connection may go on, or have ended; others do
				f.Answer(3)
				for _, r := range whole() {
					if !strings.HasPrefix(r, "GET / HTTP/1.1\r\nHost: a\r\n") {
						t.Errorf("the origin got %q", r)
					}
				}
				if m := e.Rest(); m["sluice_received_total"] < 1 || m["sluice_panics_total"] != 0 {
					t.Errorf("%v", m)
				}
				return
			}
			got := whole()
			if a.status != "200" || len(got) != 1 {
				t.Fatalf("it got %v %q; the origin got %q", a, a.body, got)
			}
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(got[0])))
			edgetest.Must(t, err)
			body, err := io.ReadAll(r.Body)
			edgetest.Must(t, err)
			if r.Method != c.fields[1] || r.RequestURI != "/p" || r.Host != "a" || string(body) != c.body || strings.Contains(strings.ToLower(got[0]), "transfer_encoding") {
				t.Errorf("the origin got %q", got[0])
			}
			if name := r.Header.Get("Proxy"); name != "" {
				t.Errorf("the origin got Proxy: %s", name)
			}
			if announced := strings.Contains(c.name, "announced trailer"); announced != (r.Trailer.Get("x") == "y") {
				t.Errorf("trailer %v", r.Trailer)
			}
			if c.name == "cookies in pieces" && r.Header.Get("Cookie") != "a=1; b=2" {
				t.Errorf("%v", r.Header)
			}
		})
	}
}
