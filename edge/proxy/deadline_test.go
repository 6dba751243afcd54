package proxy_test

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
	"sluice/edge/upstream"
)

// The origin's time begins when it has the request: a client that takes longer than that for its body takes nothing from it.
func TestSlowUploadIsNoSlowOrigin(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, func(_ int, request string) string {
		if strings.HasPrefix(request, "GET /silent") {
			return ""
		}
		return edgetest.Hello(0, "")
	})
	for name, request := range map[string][2]string{
		"short":   {"Content-Length: 6\r\n\r\nabc", "def"},
		"long":    {"Content-Length: 100003\r\n\r\n" + strings.Repeat("x", 100000), "def"},
		"chunked": {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			config := edgetest.WithoutRules(t, o.URL())
			config.Origins[0].Timeout = time.Second
			e := edgetest.StartConfig(t, config)
			c := e.Talk()
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+request[0])
			if resp, _ := e.Get("/silent"); resp.StatusCode != 504 { // takes the whole of the time that an origin has
				t.Fatal(resp.StatusCode)
			}
			if resp, body := c.Say(request[1]); resp.StatusCode != 200 || body != "hello" {
				t.Errorf("%d %q", resp.StatusCode, body)
			}
			e.Rest()
		})
	}
}

// An origin that gives up in the middle of a body has failed, not the client. That speaks against it where it says what makes no
// sense; it may just have had enough of the body, or of waiting for it.
func TestOriginFailsDuringUpload(t *testing.T) {
	for name, test := range map[string]struct {
		Answer   string
		failures int32
	}{"closed": {"", 0}, "garbage": {"SSH-2.0-OpenSSH_9.2\r\n\r\n", 1}} {
		t.Run(name, func(t *testing.T) {
			addr := edgetest.ListenEach(t, "tcp4", func(c net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(c)) // its head
				_, _ = io.WriteString(c, test.Answer)
			})
			e := edgetest.StartConfig(t, edgetest.WithoutRules(t, "http://"+addr))
			c := e.Talk()
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 70000))
			if resp, body := c.Hear("POST"); resp.StatusCode != 502 || !resp.Close {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if n := e.Upstreams().All[0].Failures.Load(); n != test.failures {
				t.Errorf("%d failures of the origin, want %d", n, test.failures)
			}
			e.Rest()
		})
	}
}

// A client that takes all of total_timeout for its body has used it up, not the origin.
func TestTotalTimeoutOfUpload(t *testing.T) {
	t.Parallel()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "", "origins: [{servers: ['"+o.URL()+"'], timeout: 20s, total_timeout: 200ms}]")
	for _, request := range []string{"1000000\r\n\r\n" + strings.Repeat("x", 70000), "1000\r\n\r\nx"} {
		resp, body := e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + request)
		if resp.StatusCode != 408 || !resp.Close {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if n := e.Upstreams().All[0].Failures.Load(); n != 0 {
		t.Errorf("%d failures of the origin", n)
	}
	e.Rest()
}

// The time for a whole request is up for one whose client does not send its body, however long that is.
func TestTotalTimeoutOfSilentBodies(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "", "limits: {header_timeout: 40s}\norigins: [{servers: ['"+o.URL()+"'], timeout: 30s, total_timeout: 300ms}]")
	for framing, status := range map[string]string{
		"Content-Length: 10000": "408", "Content-Length: 20000": "408", "Content-Length: 60000": "408", "Content-Length: 100000": "408", "Transfer-Encoding: chunked": "408",
		// The origin is asked first whether it wants the body, and says nothing either.
		"Content-Length: 20000\r\nExpect: 100-continue": "504", "Content-Length: 10\r\nExpect: 100-continue": "504",
	} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			c, began := e.Dial(), time.Now()
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", framing)
			all, _ := io.ReadAll(c)
			line, _, _ := strings.Cut(strings.TrimPrefix(string(all), "HTTP/1.1 100 Continue\r\n\r\n"), "\r\n")
			if took := time.Since(began); !strings.HasPrefix(line, "HTTP/1.1 "+status+" ") || took > 25*time.Second { // less than the other timeouts
				t.Errorf("%s after %v, want %s", line, took, status)
			}
		})
	}
}

// total_timeout bounds an answer however busily it comes, and what is cut off does not look whole.
func TestTotalTimeout(t *testing.T) {
	for name, status := range map[string]string{"busy": "200", "silent": "504"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link, origin := net.Pipe()
				var serving sync.WaitGroup
				defer serving.Wait()
				serving.Go(func() {
					_, err := http.ReadRequest(bufio.NewReader(origin))
					for part := edgetest.OKHead + "Transfer-Encoding: chunked\r\n\r\n"; name == "busy" && err == nil; part = "5\r\npart\n\r\n" {
						_, err = io.WriteString(origin, part)
						time.Sleep(time.Millisecond)
					}
				})
				s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['http://127.0.0.1:9'], timeout: 20s, total_timeout: 10s}]"))
				o := s.Upstreams().All[0]
				o.Idle = append(o.Idle, &upstream.Link{Conn: link, Origin: o, Until: time.Now().Add(time.Hour)})
				var got []byte
				took := edgetest.ServeAlone(s, edgetest.Unchanged, func(client net.Conn) {
					_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
					got, _ = io.ReadAll(client)
				})
				if !strings.HasPrefix(string(got), "HTTP/1.1 "+status+" ") || strings.HasSuffix(string(got), "\r\n0\r\n\r\n") || took.Truncate(time.Second) != 10*time.Second {
					t.Errorf("after %v: %.60q … %q", took, got, got[max(len(got)-20, 0):])
				}
			})
		})
	}
}
