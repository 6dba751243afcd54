// Package client is an example of a client that keeps to its limit: an http.RoundTripper for
// programs that call an API behind Sluice, or behind any server that says RateLimit and
// Retry-After. It uses the standard library alone; copy it, or import it.
//
// It does three things. A refusal (429, or 503 with Retry-After) is sent again, never before
// Retry-After, and after a random part of a time that doubles with each try, so that clients that
// were refused together do not come back together ("full jitter": Marc Brooker, "Exponential
// Backoff And Jitter", AWS Architecture Blog, 2015). While one request waits so, the others to that
// host do. And when little is left of the limit, requests are spread over the time until it is
// whole again, so that most are never refused.
package client

import (
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Transport sends the requests of one client, which has one limit at each host. The zero Transport
// is ready. It is safe for concurrent use.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	// Tries is how often a request is sent at most; 0: 5. One with a body is sent again only if it
	// has GetBody.
	Tries int
	// MaxWait is the longest that a request waits at a time; 0: a minute. A refusal that asks for
	// more is returned.
	MaxWait time.Duration
	// Backoff is what the first retry is late at most, beyond Retry-After; 0: a second. Each
	// further try doubles it.
	Backoff time.Duration
	// Random is from 0 to less than 1; nil: rand.Float64.
	Random func() float64

	mu    sync.Mutex
	hosts map[string]*host // an entry for each host that was asked
}

// A host is when it may be asked.
type host struct {
	held  time.Time     // not before, after a refusal
	next  time.Time     // nor before, where requests are spread
	gap   time.Duration // between two requests; 0: none
	whole time.Time     // when its limit is, and nothing is spread any more
}

// RoundTrip sends a request, and again while it is refused. It returns the last answer, or the
// context's error.
func (t *Transport) RoundTrip(q *http.Request) (*http.Response, error) {
	base, maxWait, tries := t.Base, t.MaxWait, t.Tries
	if base == nil {
		base = http.DefaultTransport
	}
	if maxWait == 0 {
		maxWait = time.Minute
	}
	if tries == 0 {
		tries = 5
	}
	for try := 1; ; try++ {
		if err := sleep(q, min(t.turn(q.URL.Host, time.Now()), maxWait)); err != nil {
			if q.Body != nil {
				_ = q.Body.Close() // as a RoundTripper must, in any case
			}
			return nil, err
		}
		resp, err := base.RoundTrip(q)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		wait, refused := refusal(resp, now)
		late := time.Duration(0)
		if refused {
			late = t.jitter(try)
		}
		// No server holds anybody for longer than MaxWait at a time.
		t.learn(q.URL.Host, resp.Header, min(wait, maxWait)+late, maxWait, now)
		if !refused || try >= tries || wait > maxWait || q.Body != nil && q.Body != http.NoBody &&
			q.GetBody == nil {
			return resp, nil
		}
		wait += late
		if deadline, ok := q.Context().Deadline(); ok && deadline.Before(now.Add(wait)) {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
		_ = resp.Body.Close()
		if err := sleep(q, wait); err != nil {
			return nil, err
		}
		q = q.Clone(q.Context()) // a RoundTripper must not change the caller's
		if q.GetBody != nil {
			if q.Body, err = q.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// refusal reports whether an answer is one that another try may get round, and after which time.
func refusal(resp *http.Response, now time.Time) (wait time.Duration, is bool) {
	wait, said := RetryAfter(resp.Header.Get("Retry-After"), now)
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		if left, ok := Left(resp.Header); !said && ok {
			wait = left.Reset
		}
		return wait, true
	case http.StatusServiceUnavailable:
		return wait, said
	}
	return 0, false
}

// jitter is a random part of what a try may be late.
func (t *Transport) jitter(try int) time.Duration {
	most, random := t.Backoff, t.Random
	if most == 0 {
		most = time.Second
	}
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(random() * float64(most<<min(try-1, 10)))
}

// turn is how long a request waits for its turn.
func (t *Transport) turn(name string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[name]
	if h == nil {
		return 0
	}
	if !now.Before(h.whole) {
		h.gap, h.next = 0, time.Time{}
	}
	at := now
	for _, not := range []time.Time{h.held, h.next} {
		if not.After(at) {
			at = not
		}
	}
	if h.gap > 0 {
		h.next = at.Add(h.gap)
	}
	return at.Sub(now)
}

// few is the share of a limit from which down its rest is spread.
const few = 0.1

// learn takes in what an answer says of the limit, for at most a time. wait is of a refusal.
func (t *Transport) learn(name string, header http.Header, wait, most time.Duration,
	now time.Time) {
	left, ok := Left(header)
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[name]
	if h == nil {
		if t.hosts == nil {
			t.hosts = make(map[string]*host)
		}
		h = &host{}
		t.hosts[name] = h
	}
	if held := now.Add(wait); held.After(h.held) {
		h.held = held
	}
	switch {
	case !ok || wait > 0:
	case left.Remaining == 0 || left.Unit == "" && // of bytes, nobody knows how many requests they are
		float64(left.Remaining) <= few*float64(left.Quota):
		reset := min(left.Reset, most)
		h.gap, h.whole = reset/time.Duration(left.Remaining+1), now.Add(reset)
		if next := now.Add(h.gap); next.After(h.next) {
			h.next = next
		}
	default:
		h.gap, h.next = 0, time.Time{}
	}
}

// sleep waits, and no longer than the request's context.
func sleep(q *http.Request, d time.Duration) error {
	if d <= 0 {
		return q.Context().Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-q.Context().Done():
		return q.Context().Err()
	}
}
