package limiter_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// Requests that come together go on one after the other, no sooner than the rate allows; what finds the queue full is
// refused with the time until there is room.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	for name, rule := range map[string]string{
		"leaky bucket":             "algorithm: leaky_bucket, burst: 3",
		"token bucket that delays": "algorithm: token_bucket, burst: 2, action: delay",
	} {
		t.Run(name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), `rules: [{name: r, limit: 10, window: 1s, mitigation_timeout: 0, `+rule+`}]`)
			began := time.Now()
			var waits sync.WaitGroup
			var mu sync.Mutex
			codes, last := make(map[int]int), time.Duration(0)
			for range 6 {
				waits.Go(func() {
					resp, err := http.Get("http://" + e.Addr + "/")
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					codes[resp.StatusCode]++
					if resp.StatusCode == 200 {
						last = max(last, time.Since(began))
					} else if resp.Header.Get("Retry-After") != "1" {
						t.Errorf("%d %v", resp.StatusCode, resp.Header)
					}
				})
			}
			waits.Wait()
			if took := time.Since(began); took < 90*time.Millisecond { // else a slow machine has let the bucket drain between them
				t.Errorf("all were answered after %v", took)
			}
			admitted := codes[200]
			if admitted < 4 || admitted+codes[429] != 6 {
				t.Errorf("answers: %v, want 4 or more of 200 and the rest 429", codes)
			}
			free := 1
			if strings.HasPrefix(rule, "algorithm: token") {
				free = 2
			}
			if least := time.Duration(admitted-free) * 100 * time.Millisecond; last < least {
				t.Errorf("%d were answered after %v, want %v at least", admitted, last, least)
			}
			if n := e.Metrics()["sluice_delayed_total"]; n < 1 || n > float64(admitted-1) { // the first never waits
				t.Errorf("%v were delayed", n)
			}
		})
	}
}

// A request whose client has gone never reaches the origin, and holds nothing any more.
func TestWhoWaitsCanGo(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `rules: [{name: r, limit: 1, window: 20s, algorithm: leaky_bucket, burst: 1, mitigation_timeout: 0}]`)
	e.Get("/")
	c := e.Dial()
	if _, err := io.WriteString(c, "GET /gone HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "one waits", func() bool { return e.Metrics()["sluice_delaying"] == 1 })
	edgetest.Reset(c)
	edgetest.Until(t, "none waits", func() bool { return e.Metrics()["sluice_delaying"] == 0 && e.Metrics()["sluice_aborted_total"] == 1 })
	if n := len(o.Requests()); n != 1 {
		t.Errorf("the origin got %d requests, want 1", n)
	}
}

// A client that has closed one direction still waits for its turn, whether it counts against caps meanwhile or not.
func TestHalfClosedClientsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{time.Hour, 0} {
		o := edgetest.StartRecorder(t, edgetest.Hello)
		e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1, window: 1s, algorithm: leaky_bucket, burst: 1, mitigation_timeout: 0}]", edgetest.HalfClosed(patience))
		e.Get("/")
		c := e.Talk()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c.R)
		if served := strings.HasPrefix(string(got), "HTTP/1.1 200 "); !served || len(o.Requests()) != 2 {
			t.Errorf("counts again after %v: %q", patience, got)
		}
	}
}
