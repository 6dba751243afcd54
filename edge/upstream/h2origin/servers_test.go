package h2origin_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// startHTTP2 is a server of HTTP/2 without TLS, or with.
func startHTTP2(t *testing.T, certificate string, h http.HandlerFunc) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(certificate == "")
	s.Protocols.SetHTTP2(certificate != "")
	done := make(chan error, 1)
	go func() {
		if certificate == "" {
			done <- s.Serve(ln)
		} else {
			done <- s.ServeTLS(ln, certificate+".crt", certificate+".key")
		}
	}()
	t.Cleanup(func() { s.Close(); <-done })
	if certificate == "" {
		return "h2c://" + ln.Addr().String()
	}
	return "h2://" + ln.Addr().String()
}

// A server of HTTP/2 gets what one of HTTP/1.1 would, and its answers reach clients of either.
func TestHTTP2Origin(t *testing.T) {
	got := make(chan string, 16)
	dir := t.TempDir()
	edgetest.WriteCertificate(t, dir+"/server", "origin.internal")
	for _, certificate := range []string{"", dir + "/server"} {
		url := startHTTP2(t, certificate, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/early" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			text, _ := io.ReadAll(r.Body)
			got <- fmt.Sprintf("%s %s %s %s %d%v%v%v%v%v", r.Proto, r.Method, r.RequestURI, r.Host, len(text), r.Header["Cookie"], r.Header["Te"], r.Header["X-Two"], r.Header["User-Agent"], r.Trailer["X-Sum"])
			w.Header().Set("Trailer", "X-After")
			w.Header().Set("Set-Cookie", "a=b")
			switch r.URL.Path {
			case "/none":
				w.Header().Del("Trailer")
				w.WriteHeader(http.StatusNoContent)
			case "/fixed":
				w.Header().Del("Trailer")
				w.Header().Set("Content-Length", "5")
				fallthrough
			default:
				_, _ = io.WriteString(w, "hello")
			}
			w.Header().Set("X-After", "late")
		})
		yaml := fmt.Sprintf("origins: [{servers: [%q]}]", url)
		if certificate != "" {
			yaml = fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s.crt, server_name: origin.internal}}]", url, certificate)
		}
		e := edgetest.Start(t, "", yaml)
		c := e.Talk()
		for _, test := range []struct{ request, want, body, trailer string }{
			{"GET //a?b=%2F HTTP/1.1\r\nHost: A.example\r\nX-Two: 1\r\nX-Two: 2\r\nCookie: a=1; b=2\r\nConnection: te\r\nTE: trailers\r\nUpgrade: websocket\r\n\r\n",
				"HTTP/2.0 GET //a?b=%2F A.example 0[a=1; b=2][trailers][1 2][][]", "hello", "late"},
			{"GET /early HTTP/1.1\r\nHost: a\r\nUser-Agent: me\r\n\r\n", "HTTP/2.0 GET /early a 0[][][][me][]", "hello", ""},
			{"HEAD /fixed HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 HEAD /fixed a 0[][][][][]", "", ""},
			{"GET /fixed HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 GET /fixed a 0[][][][][]", "hello", ""},
			{"GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 GET /none a 0[][][][][]", "", ""},
			{"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), "HTTP/2.0 POST /up a 100000[][][][][]", "hello", ""},
			{"POST /up HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", "HTTP/2.0 POST /up a 3[][][][][1]", "hello", ""},
			{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 OPTIONS * a 0[][][][][]", "hello", ""},
		} {
			resp, body := c.Say(test.request)
			if strings.HasPrefix(test.request, "OPTIONS") { // net/http's server answers that itself
				if resp.StatusCode != 200 {
					t.Errorf("%q: %d", test.request, resp.StatusCode)
				}
				continue
			}
			if text := <-got; text != test.want || body != test.body || resp.Trailer.Get("X-After") != test.trailer || resp.Header.Get("Set-Cookie") != "a=b" {
				t.Errorf("%.40q: the server got %q, want %q; the client %q, %v", test.request, text, test.want, body, resp.Trailer)
			}
		}
		e.Rest()
	}
}

// Two servers share the calls; one that stops is left out, and what it had not seen goes to the other.
func TestHTTP2OriginsShare(t *testing.T) {
	var urls []string
	for i := range 2 {
		urls = append(urls, startHTTP2(t, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strconv.Itoa(i)) }))
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	gone.Close()
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q, %q, \"h2c://%s\"], health: {active: /up, interval: 100ms}}]", urls[0], urls[1], gone.Addr()))
	seen := map[string]int{}
	for range 30 {
		resp, body := e.Get("/")
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		seen[body]++
	}
	if seen["0"] < 10 || seen["1"] < 10 {
		t.Errorf("%v", seen)
	}
}

// A body that breaks off is no body: neither of an answer nor of a request.
func TestHTTP2OriginBreaksOff(t *testing.T) {
	ended := make(chan error, 1)
	url := startHTTP2(t, "", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
			return
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), 10_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	e := edgetest.Start(t, url, "")
	if _, body := e.Get("/"); !strings.Contains(body, " then ") {
		t.Errorf("%d bytes were taken for the whole", len(body))
	}
	c := e.Dial()
	_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 50_000))
	edgetest.Must(t, err)
	c.Close()
	if err := <-ended; err == nil {
		t.Error("half a request was taken for the whole")
	}
	e.Rest()
}

// A server that does not speak HTTP/2 is not spoken to.
func TestHTTP2OriginIsNone(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "h2c://"+o.Addr, "")
	if resp, _ := e.Get("/"); resp.StatusCode != 502 {
		t.Errorf("a server of HTTP/1.1: %d", resp.StatusCode)
	}
	dir := t.TempDir()
	edgetest.WriteCertificate(t, dir+"/server", "origin.internal")
	s := edgetest.StartTLSOrigin(t, dir+"/server", "", func(http.ResponseWriter, *http.Request) {})
	e = edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s/server.crt, server_name: origin.internal}}]", strings.Replace(s.URL, "https", "h2", 1), dir))
	if resp, _ := e.Get("/"); resp.StatusCode != 502 {
		t.Errorf("one with TLS: %d", resp.StatusCode)
	}
}
