package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/message"
)

// Which trailers of an answer the client gets: those that may stand there, if it takes trailers at all.
func TestTrailersOfAnswers(t *testing.T) {
	const (
		ask  = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTE: gzip;q=0.5, Trailers\r\n\r\n"
		head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
		body = "3\r\nabc\r\n0\r\n"
	)
	for _, test := range []struct{ name, request, Answer, want string }{
		{"announced", ask, head + "Trailer: Grpc-Status, X-Sum\r\n\r\n" + body + "Grpc-Status: 0\r\nX-Sum: a b\r\n\r\n",
			head + "Trailer: Grpc-Status, X-Sum\r\nConnection: close\r\n\r\n" + body + "Grpc-Status: 0\r\nX-Sum: a b\r\n\r\n"},
		{"unannounced", ask, head + "\r\n" + body + "X-Sum: 1\r\n\r\n",
			head + "Connection: close\r\n\r\n" + body + "X-Sum: 1\r\n\r\n"},
		{"announced, and not there", ask, head + "Trailer: X-Sum, X-Other\r\n\r\n" + body + "X-Other: 1\r\n\r\n",
			head + "Trailer: X-Sum, X-Other\r\nConnection: close\r\n\r\n" + body + "X-Other: 1\r\n\r\n"},
		{"none", ask, head + "\r\n" + body + "\r\n", head + "Connection: close\r\n\r\n" + body + "\r\n"},
		{"several of one name", ask, head + "\r\n" + body + "X-A: 1\r\nX-B: 2\r\nx-a: 3\r\n\r\n",
			head + "Connection: close\r\n\r\n" + body + "X-A: 1, 3\r\nX-B: 2\r\n\r\n"},
		{"a name of the head as well", ask, head + "X-A: 1\r\nTrailer: X-A\r\n\r\n" + body + "X-A: 2\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body + "X-A: 2\r\n\r\n"},
		{"what must not stand there", ask, head + "Connection: x-mine\r\nTrailer: Content-Length, Set-Cookie, X-Mine, X-Ok\r\n\r\n" + body +
			"Content-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: b\r\nSet-Cookie: a=b\r\nX-RateLimit-Limit: 9\r\nRateLimit: x\r\nRetry-After: 1\r\n" +
			"Sluice-Verdict: pass\r\nCache-Control: public\r\nConnection: close, x-own\r\nX-Own: 1\r\nX-Mine: 1\r\nTrailer: X\r\nLocation: /\r\nServer: x\r\nX-Ok: 1\r\n\r\n",
			head + "Trailer: X-Ok\r\nConnection: close\r\n\r\n" + body + "X-Ok: 1\r\n\r\n"},
		{"a client that does not ask", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			head + "Trailer: X-Sum\r\n\r\n" + body + "X-Sum: 1\r\n\r\n",
			head + "Connection: close\r\n\r\n" + body + "\r\n"},
		{"a client of HTTP/1.0", "GET / HTTP/1.0\r\nTE: trailers\r\n\r\n", head + "\r\n" + body + "X-Sum: 1\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"},
		{"a body of known length has none", ask, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTrailer: X-Sum\r\n\r\nabc",
			"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"},
		{"malformed ones are no end", ask, head + "\r\n" + body + "X-Sum : 1\r\n\r\n",
			head + "Connection: close\r\n\r\n" + "3\r\nabc\r\n"},
		{"nor are too many", ask, head + "\r\n" + body + strings.Repeat("X: y\r\n", message.MaxLines+1) + "\r\n",
			head + "Connection: close\r\n\r\n" + "3\r\nabc\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, func(int, string) string { return test.Answer })
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
			if got := edgetest.Undated(e.Raw(test.request)); got != test.want {
				t.Errorf("the client got\n%q\nwant\n%q", got, test.want)
			}
			if asks := strings.Contains(o.Requests()[0], "\r\nConnection: TE\r\nTE: trailers\r\n"); asks != (test.request == ask) {
				t.Errorf("the origin was asked %q", o.Requests())
			}
			e.Rest()
		})
	}
}

// Which trailers of a request the origin gets: those that are announced and may stand there.
func TestTrailersOfRequests(t *testing.T) {
	for _, test := range []struct{ name, head, trailer, announced, want string }{
		{"announced", "Trailer: X-Sum, x-other\r\n", "x-sum: a b\r\nX-Other: 2\r\n", "X-Sum, x-other", "X-Sum: a b\r\nx-other: 2\r\n"},
		{"unannounced", "", "X-Sum: 1\r\n", "", ""},
		{"one of two", "Trailer: X-Sum\r\n", "X-Other: 1\r\nX-Sum: 1\r\n", "X-Sum", "X-Sum: 1\r\n"},
		{"announced, and not there", "Trailer: X-Sum\r\n", "", "X-Sum", ""},
		{"twice", "Trailer: X-Sum, X-Sum\r\nTrailer: x-sum\r\n", "X-Sum: 1\r\nX-Sum: 2\r\n", "X-Sum", "X-Sum: 1\r\nX-Sum: 2\r\n"},
		{"a name of the head as well", "X-Sum: 0\r\nTrailer: X-Sum\r\n", "X-Sum: 1\r\n", "", ""},
		{"the name that a rule counts by", "Trailer: X-Key, X-Sum\r\n", "X-Key: 1\r\nX-Sum: 1\r\n", "X-Sum", "X-Sum: 1\r\n"},
		{"what must not stand there", "Connection: x-mine\r\nTrailer: Forwarded, Via, X-Mine, X-Original-URI, X-Sum\r\n",
			"Forwarded: for=1\r\nVia: 1\r\nX-Mine: 1\r\nX-Original-URI: /\r\nX-Sum: 1\r\nX-RateLimit-Limit: 1\r\n", "X-Sum", "X-Sum: 1\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 100, key: 'header:X-Key'}]")
			c := e.Talk()
			for range 2 { // what comes after it is the next request
				if resp, body := c.Say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + test.head + "\r\n3\r\nabc\r\n0\r\n" + test.trailer + "\r\n"); resp.StatusCode != 200 {
					t.Fatalf("%d %s", resp.StatusCode, body)
				}
			}
			for _, got := range o.Requests() {
				announced := ""
				if _, rest, found := strings.Cut(got, "\r\nTrailer: "); found {
					announced, _, _ = strings.Cut(rest, "\r\n")
				}
				_, trailer, _ := strings.Cut(got, "3\r\nabc\r\n0\r\n")
				if announced != test.announced || trailer != test.want+"\r\n" {
					t.Errorf("the origin got %q", got)
				}
			}
			e.Rest()
		})
	}
}

// Those that are as good as an attack cost the request.
func TestForgedTrailers(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "")
	for _, line := range []string{"X-Forwarded-For: 1.2.3.4", "X-Real-IP: 1.2.3.4", "X_Forwarded_For: 1.2.3.4", "Content-Length: 3", "Transfer-Encoding: chunked", "Host: b", "Cookie: a=b", "Authorization: x"} {
		resp, _ := e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" + line + "\r\n\r\n")
		if resp.StatusCode != 400 || !resp.Close {
			t.Errorf("%s: %d", line, resp.StatusCode)
		}
	}
	for _, got := range o.Requests() {
		if !strings.HasPrefix(got, "BROKEN ") {
			t.Errorf("the origin got %q", got)
		}
	}
	e.Rest()
}

// What a usual client and a usual server say to one another after their bodies, long ones at the same time.
func TestTrailersOfOthers(t *testing.T) {
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum"))
	})
	e := edgetest.Start(t, origin, "")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, size := range []int{0, 1, 1 << 20} {
		req, _ := http.NewRequest("POST", "http://"+e.Addr+"/", io.MultiReader(bytes.NewReader(make([]byte, size))))
		req.Header.Set("TE", "trailers")
		req.Trailer = http.Header{"X-Sum": {"1 2 3"}}
		resp, err := client.Do(req)
		edgetest.Must(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n != int64(size) || resp.Trailer.Get("X-Sum") != "1 2 3" {
			t.Errorf("%d of %d bytes, %v, %v", n, size, resp.Trailer, err)
		}
	}
	e.Rest()
}
