package redirect_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/modules/redirect"
)

// send sends a request as it is written, and returns the answer.
func send(t *testing.T, to, request string) *http.Response {
	t.Helper()
	nc, err := net.Dial("tcp", to)
	edgetest.Must(t, err)
	defer nc.Close()
	_, err = io.WriteString(nc, request)
	edgetest.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	edgetest.Must(t, err)
	return resp
}

// Every request there is sent to the same host and target over https, with the port, and without the one that it came to.
func TestRedirectToHTTPS(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartUsing(t, o.URL(), "rules: [{name: r, limit: 1, window: 1m}]",
		redirect.Module())
	usual, other := e.Redirecting(443), e.Redirecting(8443)
	for _, test := range []struct{ to, request, want string }{
		{usual, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"},
		{usual, "GET /x%20y?q=/&p HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", "https://a.example/x%20y?q=/&p"},
		{usual, "POST /x HTTP/1.1\r\nHost: A.example.\r\nContent-Length: 2\r\n\r\nok", "https://a.example/x"},
		{other, "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example:8443/x"},
		{other, "GET /x HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "https://[2001:db8::1]:8443/x"},
		{usual, "GET http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/?q"},
		{usual, "GET http://a.example/p?q HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/p?q"},
		{usual, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"},
		{usual, "GET //evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example//evil.example/"},
	} {
		resp := send(t, test.to, test.request)
		if resp.StatusCode != 308 || resp.Header.Get("Location") != test.want || resp.ContentLength != 0 {
			t.Errorf("%q: %d %q (%d bytes), want 308 %q", test.request, resp.StatusCode, resp.Header.Get("Location"), resp.ContentLength, test.want)
		}
	}
	if resp := send(t, usual, "GET / HTTP/1.0\r\n\r\n"); resp.StatusCode != 400 || resp.Header.Get("Location") != "" {
		t.Errorf("without a host: %d %q, want 400", resp.StatusCode, resp.Header.Get("Location"))
	}
	if n := len(o.Requests()); n != 0 {
		t.Errorf("%d requests got to the origin", n)
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 200 {
		t.Errorf("the first request at the other listener: %d: redirects have counted", resp.StatusCode)
	}
}

// A client that is denied is not sent on.
func TestRedirectAfterDeny(t *testing.T) {
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(),
		"deny: [127.0.0.1]", redirect.Module())
	if resp := send(t, e.Redirecting(443), "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("%d, want 403", resp.StatusCode)
	}
}
