package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// What the origin gets: the target and headers as they came, less what ends at the edge, and with the edge's own.
func TestForwardedHead(t *testing.T) {
	for _, test := range []struct {
		name, yaml, request, want string
	}{
		{"nothing is added but where the request comes from", "",
			"GET /a/../b//c%2f?q=%20#x HTTP/1.1\r\nHost: a\r\n\r\n", ""}, // a fragment is refused
		{"the target goes as it came", "",
			"GET /a/../b//c%2f?q=%20 HTTP/1.1\r\nHost: Ex.Com:81\r\n\r\n",
			"GET /a/../b//c%2f?q=%20 HTTP/1.1\r\nHost: Ex.Com:81\r\nX-Forwarded-For: 127.0.0.1\r\n" +
				"X-Forwarded-Proto: http\r\nX-Forwarded-Host: Ex.Com:81\r\nVia: 1.1 sluice\r\n\r\n"},
		{"headers keep order and spelling; a client's claims and what is hop-by-hop go", "",
			"GET / HTTP/1.1\r\nx-LOWER: 1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n" +
				"X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nVia: 1.0 other\r\n" +
				"Connection: keep-alive, X-Mine\r\nConnection: X-Other, Host, X-Forwarded-For, Content-Length\r\nX-Mine: 1\r\nX-Other: 2\r\nKeep-Alive: 5\r\n" +
				"Proxy-Connection: x\r\nTE: trailers\r\nTrailer: X\r\nUpgrade: websocket\r\nCookie: a=b; c=d\r\nCookie: e\r\nZ: last\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nx-LOWER: 1\r\nCookie: a=b; c=d\r\nCookie: e\r\nZ: last\r\nX-Forwarded-For: 127.0.0.1\r\n" +
				"X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\nConnection: TE\r\nTE: trailers\r\n\r\n"},
		{"a trusted proxy's word is passed on, as far as it is believed", "source: {trust: [127.0.0.0/8, 10.0.0.0/8]}",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2\r\nX-Forwarded-Proto: https\r\n" +
				"X-Forwarded-Host: b\r\nVia: 1.1 lb\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\nVia: 1.1 lb, 1.1 sluice\r\n" +
				"X-Forwarded-For: 192.0.2.1, 10.0.0.2, 127.0.0.1\r\n\r\n"},
		{"a body keeps its framing", "",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
			"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\n" +
				"Content-Length: 3\r\n\r\nabc"},
		{"chunks stay chunks", "",
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\n" +
				"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"an absolute target becomes a path", "",
			"GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /?x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\n\r\n"},
		{"HTTP/1.0 without a host gets the origin's", "",
			"GET / HTTP/1.0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.0 sluice\r\n\r\n"},
		{"multipart stays what it is", "",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 57\r\n\r\n" +
				"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nX-Forwarded-For: 127.0.0.1\r\n" +
				"X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 sluice\r\nContent-Length: 57\r\n\r\n" +
				"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), test.yaml)
			e.Talk().Say(test.request)
			got := strings.Join(o.Requests(), "|")
			if want := strings.ReplaceAll(test.want, "ORIGIN", o.Addr); got != want {
				t.Errorf("the origin got\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// What the client gets of the origin's answer.
func TestForwardedAnswer(t *testing.T) {
	for _, test := range []struct{ name, request, Answer, want string }{
		{"nothing is added but a date", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 299 Whatever\r\nContent-Length: 2\r\nX-Y: z\r\n\r\nhi",
			"HTTP/1.1 299 Whatever\r\nContent-Length: 2\r\nX-Y: z\r\nConnection: close\r\n\r\nhi"},
		{"hop-by-hop goes, with what Connection names", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x-secret, close\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nProxy-Connection: a\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"lines keep their order and spelling", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nX: 1\r\nConnection: keep-alive\r\nX: 2\r\nX: 3\r\nContent-Length: 0\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX: 1\r\nX: 2\r\nX: 3\r\nContent-Length: 0\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: close\r\n\r\n"},
		{"blanks between a name and its colon go", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX-Odd : a\r\nX-Odder \t: b\r\nConnection: x-hop\r\nX-Hop : c\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nX-Odd: a\r\nX-Odder: b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"an origin of HTTP/1.0", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.0 200 OK\r\n\r\nuntil the end\x00",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n"},
		{"a client of HTTP/1.0 gets no chunks", "GET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde"},
		{"HEAD has a length and no body", "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nConnection: close\r\n\r\n"},
		{"204 has neither", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
		{"304 keeps its length", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\nConnection: close\r\n\r\n"},
		{"interim answers go before the answer, a 100 that nobody asked for does not", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"a client of HTTP/1.0 knows no interim answers", "GET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"a truncated chunked body does not end", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x00",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"nor does one with a malformed chunk", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, func(int, string) string { return test.Answer })
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
			if got := edgetest.Undated(e.Raw(test.request)); got != test.want {
				t.Errorf("the client got\n%q\nwant\n%q", got, test.want)
			}
			e.Rest()
		})
	}
}

// A body that is cut short of its length must not look whole, and is not an answer that was given.
func TestTruncatedAnswer(t *testing.T) {
	o := edgetest.StartRecorder(t, func(int, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc\x00" })
	e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
	got := e.Raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n") || len(got) > 200 {
		t.Errorf("got %q", got)
	}
	if m := e.Rest(); m["sluice_aborted_total"] != 1 {
		t.Errorf("metrics: %v", m)
	}
}

// A client of HTTP/1.0 that gets a part of a body whose length nobody knows is not let believe that it is the whole: its connection
// does not end in order.
func TestTruncatedAnswerOfOldClients(t *testing.T) {
	for name, test := range map[string]struct {
		Answer string
		whole  bool
	}{
		"cut":   {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x00", false},
		"whole": {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true},
		"close": {"\r\nabc\x00", true},
	} {
		e := edgetest.Start(t, edgetest.StartRecorder(t, func(int, string) string { return edgetest.OKHead + test.Answer }).URL(), "")
		c := e.Dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		if got, err := io.ReadAll(c); test.whole != (err == nil) || test.whole && !bytes.HasSuffix(got, []byte("\r\n\r\nabc")) {
			t.Errorf("%s: %q, then %v", name, got, err)
		}
		e.Rest()
	}
}

// A client that breaks off in mid-upload: the origin never sees a complete request.
func TestBrokenUpload(t *testing.T) {
	for name, request := range map[string]string{
		"chunked, between chunks":     "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"chunked, before the trailer": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
		"chunked, malformed":          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
		"short":                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
		"long":                        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 70000),
	} {
		t.Run(name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, o.URL()))
			c := e.Dial()
			_, _ = io.WriteString(c, request)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			all, _ := io.ReadAll(c)
			if len(all) > 0 && !bytes.HasPrefix(all, []byte("HTTP/1.1 400 ")) {
				t.Errorf("answer %q", all)
			}
			for i, linger := range []int{-1, 0} { // it closes, it resets
				gone := e.Dial().(*net.TCPConn)
				_ = gone.SetLinger(linger)
				_, _ = io.WriteString(gone, request)
				for e.Metrics()["sluice_received_total"] < float64(i+2) { // until the test's own time is up
				}
				gone.Close()
			}
			for _, r := range o.Requests() {
				if !strings.HasPrefix(r, "BROKEN ") {
					t.Errorf("the origin took this for a request: %q", r)
				}
			}
			e.Rest()
		})
	}
}

// Bodies of all sizes arrive as they were sent, both ways and in both framings.
func TestBodiesArriveWhole(t *testing.T) {
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		_, _ = io.Copy(io.MultiWriter(sum), r.Body)
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
		var size int
		var chunk bool
		_, _ = fmt.Sscanf(r.URL.RawQuery, "%d,%t", &size, &chunk)
		if !chunk {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		_, _ = io.Copy(w, io.LimitReader(rand.NewChaCha8([32]byte{byte(size)}), int64(size)))
	})
	e := edgetest.Start(t, origin, "")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, size := range []int{0, 1, 2, 4095, 4096, 4097, 16 << 10, 16<<10 + 1, 32 << 10, 64 << 10, 64<<10 + 1, 1 << 20, 5<<20 + 3} {
		for _, chunked := range []bool{false, true} {
			body := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(body)
			req, _ := http.NewRequest("POST", fmt.Sprintf("http://%s/?%d,%t", e.Addr, size, chunked), bytes.NewReader(body))
			if chunked {
				req.ContentLength = -1
			}
			resp, err := client.Do(req)
			edgetest.Must(t, err)
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("size %d, chunked %t: %d bytes came back, %v", size, chunked, len(got), err)
			}
			if sum := fmt.Sprintf("%x", sha256.Sum256(body)); resp.Header.Get("X-Sum") != sum {
				t.Errorf("size %d, chunked %t: the origin got something else", size, chunked)
			}
		}
	}
	e.Rest()
}

// The head and each part of a stream come when the origin sends them, not with what follows.
func TestAnswersAreStreamed(t *testing.T) {
	next := make(chan string)
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		for part := range next {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	})
	e := edgetest.Start(t, origin, "")
	c := e.Talk()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if line, err := c.R.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("the head: %q, %v", line, err)
	}
	for i, part := range []string{"one\n", "two\n", "three\n"} {
		next <- part
		for {
			line, err := c.R.ReadString('\n')
			if err != nil {
				t.Fatalf("part %d: %v", i, err)
			}
			if line == part {
				break
			}
		}
	}
	close(next)
}

// An origin may talk while the client still talks: neither is buffered.
func TestRequestAndAnswerStreamTogether(t *testing.T) {
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			w.(http.Flusher).Flush()
		}
	})
	e := edgetest.Start(t, origin, "")
	c := e.Talk()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	for i := range 3 {
		part := fmt.Sprintf("line %d\n", i)
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(part), part)
		for {
			line, err := c.R.ReadString('\n')
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if line == "echo "+part {
				break
			}
		}
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
}

// An answer that comes before the body has been sent reaches the client, and ends the connection without a reset.
func TestEarlyAnswer(t *testing.T) {
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(413)
	})
	e := edgetest.Start(t, origin, "")
	c := e.Dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"+strings.Repeat("x", 100000))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 413 || !resp.Close {
		t.Fatalf("%v %v", resp, err)
	}
	e.Rest()
}
