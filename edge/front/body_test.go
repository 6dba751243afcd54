package front_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/front"
	"sluice/edge/listen"
)

// Slow bodies are cut, whole downloads are not.
func TestSlowBodyIsCut(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 200ms}")
	resp, _ := e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
	if resp.StatusCode != 408 || !resp.Close {
		t.Errorf("%d", resp.StatusCode)
	}
	e.Rest()
}

// The limit on bodies holds for streamed ones, and without a Content-Length.
func TestBodyLimit(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {body_bytes: 100}")
	for request, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100):                                200,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + strings.Repeat("x", 101):                                413,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n": 413,
	} {
		if resp, _ := e.Talk().Say(request); resp.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", len(request), resp.StatusCode, want)
		}
	}
	e.Rest()
}

// A refused source is not invited to send its body; an admitted one is, once it is admitted.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), fmt.Sprintf(edgetest.OneRule, 1))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
	c := e.Dial()
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, head)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "abc")
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 || resp.Header.Get("RateLimit") == "" {
		t.Fatalf("%v", err)
	}
	if got := o.Requests(); len(got) != 1 || strings.Count(got[0], "\r\nExpect: 100-continue\r\n") != 1 || !strings.HasSuffix(got[0], "abc") {
		t.Fatalf("the origin got %q", got)
	}
	got := e.Raw(head)
	if !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, `"code":"rate_limited"`) || !strings.Contains(got, "Retry-After: ") {
		t.Errorf("refused: %q", got)
	}
	gone := e.Dial() // invited, and gone
	e2 := edgetest.Start(t, o.URL(), "")
	gone.Close()
	c2 := e2.Dial()
	_, _ = io.WriteString(c2, head)
	_, _ = bufio.NewReader(c2).ReadString('\n')
	c2.Close()
	e.Rest()
	e2.Rest()
}

// A refused POST keeps its connection if its body is short, and gets its answer in any case.
func TestRefusedBodies(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), fmt.Sprintf(edgetest.OneRule, 1))
	e.Get("/")
	c := e.Talk()
	for i := range 3 {
		resp, _ := c.Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\nGET /smuggled X")
		if resp.StatusCode != 429 || resp.Close {
			t.Fatalf("refusal %d: %d, close %t", i, resp.StatusCode, resp.Close)
		}
		resp, _ = c.Say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		if resp.StatusCode != 429 || resp.Close {
			t.Fatalf("refusal %d, chunked: %d, close %t", i, resp.StatusCode, resp.Close)
		}
	}
	big := e.Talk()
	resp, _ := big.Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 200_000))
	if resp.StatusCode != 429 || !resp.Close {
		t.Errorf("a long body: %d, close %t", resp.StatusCode, resp.Close)
	}
	if len(o.Requests()) != 1 {
		t.Errorf("the origin got %q", o.Requests())
	}
	e.Rest()
}

// The answer to a refused request has its time to be written, however long the body took that was read before it.
func TestAnswerAfterASlowRefusedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := edgetest.MemoryServer(t, &edgetest.Hasty{Takes: 1000, Answer: "HTTP/1.1 204 No Content\r\n\r\n"}, "limits: {idle_timeout: 5s}\nrules: [{name: r, limit: 1}]")
		var got []byte
		edgetest.ServeAlone(s, edgetest.Unchanged, func(client net.Conn) {
			answer := make([]byte, 1000)
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			_, _ = client.Read(answer)
			_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")
			for range 20 {
				_, _ = client.Write(make([]byte, 500))
				time.Sleep(front.LingerTime / 2)
			}
			got, _ = io.ReadAll(client)
		})
		if !strings.HasPrefix(string(got), "HTTP/1.1 429 ") || s.Registry().SlowReaders.Load() != 0 {
			t.Errorf("%q; %d slow readers", got, s.Registry().SlowReaders.Load())
		}
	})
}

// The body of a refused request is read so that its connection can stay open, up to 64 KiB. One that says it is longer is not waited for,
// and one that turns out to be, in bytes or in what is around them, is left at that: the answer comes at once, and the connection ends.
func TestRefusedBodyIsReadUpToABound(t *testing.T) {
	const fixed, chunked = "Content-Length: %d\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	chunks := func(n, size int) string {
		return chunked + strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size)), n) + "0\r\n\r\n"
	}
	for _, test := range []struct {
		name, Sends string
		stays       bool
	}{
		{"fits", fmt.Sprintf(fixed, 64<<10) + strings.Repeat("x", 64<<10), true},
		{"longer, and not sent", fmt.Sprintf(fixed, 64<<10+1), false},
		{"chunks that fit", chunks(60, 1000), true},
		{"chunks that go on", chunks(70, 1000), false},
		{"small chunks that fit", chunks(10_000, 1), true},
		{"small chunks that go on", chunks(12_000, 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := edgetest.MemoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']")
				edgetest.ServeAlone(s, edgetest.Unchanged, func(client net.Conn) {
					var sending sync.WaitGroup
					defer sending.Wait()
					defer client.Close()
					sent := time.Now()
					sending.Go(func() { _, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+test.Sends) })
					answer, err := http.ReadResponse(bufio.NewReader(client), nil)
					if err != nil {
						t.Error(err)
					} else if answer.StatusCode != 403 || answer.Close == test.stays || time.Since(sent) != 0 {
						t.Errorf("%s after %v, close %t", answer.Status, time.Since(sent), answer.Close)
					}
				})
			})
		})
	}
}

// Where an origin answers and takes no more of the request, or the request turns out to be malformed, the rest of its body is not the
// client's next request.
func TestRestOfABodyIsNoRequest(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	rest := strings.Repeat(edgetest.Smuggled, 5000)
	for _, test := range []struct {
		name, Sends string
		Most, Takes int
		whole       bool // all of the body has been read: the connection goes on
	}{
		{"in pieces", post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 10000) + rest, 1000, 9000, false},
		{"all at once", post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000), 1 << 20, 9000, true},
		{"long", post + "Content-Length: 200000\r\n\r\n" + strings.Repeat("x", 100000) + rest, 1000, 90000, false},
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n4000\r\n" + rest, 1000, 9000, false},
		{"malformed", post + "Transfer-Encoding: chunked\r\n\r\nx\r\n" + rest, 1000, 9000, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := edgetest.MemoryServer(t, &edgetest.Hasty{Takes: test.Takes, Answer: "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"}, "")
				client := &edgetest.Sender{Sends: test.Sends, Most: test.Most}
				c := (&listen.Listener{Registry: s.Registry()}).Admit(client)
				s.ServeConn(c)
				all, last := client.Answers("POST")
				if len(all) != 1 || all[0] != 413 || last.Close == test.whole || c.Linger.Load() == test.whole {
					t.Errorf("%d answers, the first %d, close %t, lingers %t", len(all), all[0], last.Close, c.Linger.Load())
				}
			})
		})
	}
}

// The body of a request that no origin can have is not its client's next requests. It is read, if that is not much, or ends the
// connection.
func TestBodyThatNoOriginGets(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name, Sends   string
		AwaitReceived float64
	}{
		{"small", post + "Content-Length: 35\r\n\r\n" + edgetest.Smuggled, 2},
		{"long", post + "Content-Length: 35000\r\n\r\n" + strings.Repeat(edgetest.Smuggled, 1000), 2},
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n23\r\n" + edgetest.Smuggled + "\r\n0\r\n\r\n", 2},
		{"too long", post + "Content-Length: 70000\r\n\r\n" + strings.Repeat(edgetest.Smuggled, 2000), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := edgetest.MemoryServer(t, nil, "")
				s.Upstreams().All[0].Idle = nil // and nobody listens there
				client := &edgetest.Sender{Sends: test.Sends + "GET / HTTP/1.1\r\nHost: a\r\n\r\n", Most: 1000}
				s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
				all, _ := client.Answers("POST")
				if n := edgetest.Metrics(t, s)["sluice_received_total"]; n != test.AwaitReceived || len(all) != int(n) || all[0] != 502 || all[len(all)-1] != 502 {
					t.Errorf("%v requests received, %d answers, the last %d", n, len(all), all[len(all)-1])
				}
			})
		})
	}
}

// The client of a long body has header_timeout once, and not again when the first of it is there.
func TestLongBodyIsLateOnce(t *testing.T) {
	for name, framing := range map[string]string{"long": "Content-Length: 20000\r\n\r\n", "longer": "Content-Length: 100000\r\n\r\n", "chunked": "Transfer-Encoding: chunked\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link, origin := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, origin) }()
				s := edgetest.MemoryServer(t, link, "limits: {header_timeout: 10s}")
				start, took := time.Now(), time.Duration(0)
				var got []byte
				edgetest.ServeAlone(s, edgetest.Unchanged, func(client net.Conn) {
					_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+framing)
					time.Sleep(9 * time.Second)
					_, _ = io.WriteString(client, "1")
					_, _ = client.Read(make([]byte, 1)) // the answer
					took = time.Since(start)
					got, _ = io.ReadAll(client)
				})
				if !strings.HasPrefix(string(got), "TTP/1.1 408 ") || took.Truncate(time.Second) != 10*time.Second {
					t.Errorf("after %v: %q", took, got)
				}
			})
		})
	}
}

// What follows a held body on its connection is the next request.
func TestRequestsBehindSmallBodies(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "")
	c := e.Talk()
	const n = 20
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n"+edgetest.Smuggled, n))
	}()
	for range n {
		if resp, body := c.Hear("POST"); resp.StatusCode != 200 || body != "hello" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	for _, got := range o.Requests() {
		if !strings.HasPrefix(got, "POST / ") || !strings.HasSuffix(got, "\r\n\r\n"+edgetest.Smuggled) {
			t.Errorf("the origin got %q", got)
		}
	}
	if len(o.Requests()) != n {
		t.Errorf("%d requests", len(o.Requests()))
	}
}
