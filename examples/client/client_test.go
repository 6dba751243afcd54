package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

func answer(status int, lines ...string) *http.Response {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("x"))}
}

func get(t *testing.T, ctx context.Context, method string, body io.Reader) *http.Request {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, "http://api.example/", body)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// When a request is sent, and what its sender gets.
func TestRetries(t *testing.T) {
	type step = *http.Response
	for _, c := range []struct {
		name   string
		script []step
		random float64
		sent   string // at these seconds
		status int
	}{
		{"admitted", []step{answer(200)}, 0.5, "0", 200},
		{"refused once", []step{answer(429, "Retry-After: 7"), answer(200)}, 0, "0 7", 200},
		{"later by a part of what doubles", []step{answer(429, "Retry-After: 7"), answer(429, "Retry-After: 7"), answer(200)}, 0.5, "0 7.5 15.5", 200},
		{"a date", []step{answer(429, "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT"), answer(200)}, 0, "0 9", 200},
		{"RateLimit alone", []step{answer(429, `RateLimit: "a";r=0;t=4`), answer(200)}, 0, "0 4", 200},
		{"neither", []step{answer(429), answer(429), answer(200)}, 0.5, "0 0.5 1.5", 200},
		{"overloaded", []step{answer(503, "Retry-After: 2"), answer(200)}, 0, "0 2", 200},
		{"broken", []step{answer(503)}, 0, "0", 503},
		{"not refused", []step{answer(403, "Retry-After: 2")}, 0, "0", 403},
		{"too long", []step{answer(429, "Retry-After: 61")}, 0, "0", 429},
		{"for ever", []step{answer(429), answer(429), answer(429), answer(429), answer(429)}, 0, "0 0 0 0 0", 429},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, sent := time.Now(), []string(nil)
			tr := &Transport{Random: func() float64 { return c.random }, Base: roundTrip(func(*http.Request) (*http.Response, error) {
				sent = append(sent, fmt.Sprint(time.Since(start).Seconds()))
				return c.script[len(sent)-1], nil
			})}
			resp, err := tr.RoundTrip(get(t, t.Context(), "GET", nil))
			if err != nil || resp.StatusCode != c.status || strings.Join(sent, " ") != c.sent {
				t.Errorf("%s: %v, %v, sent at %v; want %d, sent at %s", c.name, resp, err, sent, c.status, c.sent)
			}
		})
	}
}

// A body is sent again whole, if there is a way to have it again; else the refusal is returned.
func TestBodies(t *testing.T) {
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			tr := &Transport{Base: roundTrip(func(q *http.Request) (*http.Response, error) {
				b, err := io.ReadAll(q.Body)
				if got = append(got, string(b)); err != nil || len(got) == 1 {
					return answer(429, "Retry-After: 1"), err
				}
				return answer(200), nil
			})}
			q := get(t, t.Context(), "POST", strings.NewReader("order"))
			want := "[order order] 200"
			if !again {
				q.GetBody, want = nil, "[order] 429"
			}
			resp, err := tr.RoundTrip(q)
			if err != nil || fmt.Sprint(got, " ", resp.StatusCode) != want {
				t.Errorf("%v %v %v, want %s", got, resp, err, want)
			}
		})
	}
}

// A context ends a wait; of one whose deadline is before the retry the refusal is returned at once.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { return answer(429, "Retry-After: 30"), nil })}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if resp, err := tr.RoundTrip(get(t, ctx, "GET", nil)); err != nil || resp.StatusCode != 429 || time.Since(start) != 0 {
			t.Errorf("%v, %v, after %v", resp, err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(40*time.Second, cancel) // during the second wait: the host's is over after 30 s
		if _, err := tr.RoundTrip(get(t, ctx, "GET", nil)); !errors.Is(err, context.Canceled) || time.Since(start) != 40*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// When little is left, requests are spread over the time until the limit is whole; after that they are not. A refusal holds up those of others to
// the same host, and to no other host.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, line := time.Now(), ""
		tr := &Transport{Random: func() float64 { return 0 }, Base: roundTrip(func(*http.Request) (*http.Response, error) {
			return answer(200, `RateLimit-Policy: "a";q=100;w=60`, line), nil
		})}
		for _, c := range []struct {
			line, host string
			at         int // in seconds
		}{
			{`RateLimit: "a";r=50;t=60`, "a", 0},
			{`RateLimit: "a";r=5;t=60`, "a", 0},
			{`RateLimit: "a";r=4;t=60`, "a", 10},
			{`RateLimit: "a";r=99;t=60`, "b", 10},
			{`RateLimit: "a";r=99;t=60`, "a", 22},
			{`RateLimit: "a";r=98;t=60`, "a", 22},
		} {
			line = c.line
			q := get(t, t.Context(), "GET", nil)
			q.URL.Host = c.host
			if _, err := tr.RoundTrip(q); err != nil || int(time.Since(start).Seconds()) != c.at {
				t.Errorf("%+v: sent after %v, %v", c, time.Since(start), err)
			}
		}
	})
}

// Whatever a server says, it holds a client up for no longer than a minute, and once.
func TestAbsurd(t *testing.T) {
	for _, line := range []string{"Retry-After: 1000000000", "Retry-After: 99999999999999999999", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "Retry-After: 0", "Retry-After: -1",
		"Retry-After: soon", `RateLimit: "a";r=0;t=1000000000`, `RateLimit: "a";r=1;t=9223372036854775807`} {
		for _, status := range []int{429, 503, 200} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				script := []*http.Response{answer(status, line)}
				tr := &Transport{Tries: 1, Random: func() float64 { return 0 }, Base: roundTrip(func(*http.Request) (*http.Response, error) {
					next := answer(200)
					if len(script) > 0 {
						next, script = script[0], script[1:]
					}
					return next, nil
				})}
				for range 5 {
					if _, err := tr.RoundTrip(get(t, t.Context(), "GET", nil)); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("%d, %s: held up for %v", status, line, took)
				}
			})
		}
	}
}

// Clients that are refused together do not come back together, with none of their requests.
func TestOthersAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, sent := time.Now(), ""
		var one sync.Mutex
		tr := &Transport{Random: func() float64 { return 0.5 }, Base: roundTrip(func(*http.Request) (*http.Response, error) {
			one.Lock()
			defer one.Unlock()
			if sent += fmt.Sprint(time.Since(start).Seconds(), " "); sent == "0 " {
				return answer(429, "Retry-After: 7"), nil
			}
			return answer(200), nil
		})}
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if _, err := tr.RoundTrip(get(t, t.Context(), "GET", nil)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if sent != "0 7.5 7.5 " {
			t.Errorf("sent at %s", sent)
		}
	})
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		policy, limit string
		want          string
	}{
		{`"login";q=5;w=60`, `"login";r=3;t=37`, "login 3 5 37s"},
		{`"a";q=5;w=1, "b";q=50;w=60`, `"b";r=9;t=37, "a";r=4;t=1`, "a 4 5 1s"},
		{`"slow";q=2;qu="concurrent-requests"`, `"slow";r=0;t=1`, "slow 0 2 concurrent-requests 1s"},
		{``, `"a";r=4`, "a 4 0 0s"},
		{``, `"a \"b\\";r=4;x;pk=:YWI=:`, `a "b\ 4 0 0s`},
		{``, ``, ""},
		{`"up";q=4096;qu="content-bytes";w=60`, `"up";r=1024;t=60;pk=:YWI=:`, "up 1024 4096 content-bytes 1m0s"},
		{`"a";q=5;qu="requests"`, `"a";r=4`, "a 4 5 0s"},
		{`a;q=5;w=60`, `a;r=3;t=37`, "a 3 5 37s"},                    // -08 let names be tokens
		{`100;w=60`, `limit=100, remaining=5, reset=7`, " 5 100 7s"}, // -07
		{``, `limit=100`, ""},
		{``, `limit=100, remaining=-5`, ""},
		{``, `"a";r=-1`, ""},
		{``, `"a";r=1.5`, ""},
		{``, `"a;r=1`, ""},
		{``, `"a";r=1 "b"`, ""},
		{``, `"a";r=1,`, ""},
		{`x`, `"a";r=1`, ""},
	} {
		h := http.Header{"Ratelimit": {c.limit}, "Ratelimit-Policy": {c.policy}}
		l, ok := Left(h)
		got := ""
		if ok {
			got = strings.Join(strings.Fields(fmt.Sprint(l.Remaining, " ", l.Quota, " ", l.Unit, " ", l.Reset)), " ")
			got = l.Policy + " " + got
		}
		if got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.policy, c.limit, got, c.want)
		}
	}
	three := http.Header{"Ratelimit-Limit": {"100, 100;w=60"}, "Ratelimit-Remaining": {"5"}, "Ratelimit-Reset": {"7"}} // up to -06
	if l, ok := Left(three); !ok || l != (Limit{Remaining: 5, Quota: 100, Reset: 7 * time.Second}) {
		t.Errorf("of three headers: %+v, %v", l, ok)
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"7": "7s true", "0": "0s true", "Sat, 01 Jan 2000 00:00:09 GMT": "9s true", "Fri, 31 Dec 1999 00:00:00 GMT": "0s true",
		"1000000000": "277777h46m40s true", "99999999999999999999": "596523h14m7s true", "Fri, 31 Dec 9999 23:59:59 GMT": "2562047h47m16.854775807s true",
		"": "0s false", "-1": "0s false", "1.5": "0s false", "soon": "0s false"} {
		d, ok := RetryAfter(text, now)
		if got := fmt.Sprint(d, " ", ok); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
