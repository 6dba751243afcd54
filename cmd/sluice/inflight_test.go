//go:build system

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/edge/control"
)

// A slowOrigin answers after a while, and knows how many requests it has.
type slowOrigin struct {
	url       string
	now, most atomic.Int64
	served    atomic.Int64
}

func startSlowOrigin(t *testing.T, takes time.Duration) *slowOrigin {
	o := new(slowOrigin)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := o.now.Add(1)
		defer o.now.Add(-1)
		for most := o.most.Load(); n > most && !o.most.CompareAndSwap(most, n); most = o.most.Load() {
		}
		o.served.Add(1)
		select {
		case <-time.After(takes):
		case <-r.Context().Done(): // the edge is gone
		}
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

// Two hundred clients ask three edges of a PoP for what takes a third of a second, of which twenty may be under way at once: the origin never
// has more, and soon as many. An edge is killed: the others have its places soon after. In the end nothing is left.
func TestConcurrencyOverThePoP(t *testing.T) {
	t.Parallel()
	node := startMemcached(t)
	file := write(t, `
pop: {wait: 1s}
rules:
  - {name: slow, key: global, concurrency: 20, on_store_failure: closed}
  - {name: each, concurrency: 1000}
`)
	o := startSlowOrigin(t, time.Second/3)
	var edges []*process
	for range 3 {
		edges = append(edges, start(t, o.url, "--memcached", node, "--config", file))
	}
	for _, e := range edges {
		e.until("told of three edges", func() bool {
			_, body := e.admin("GET", "/metrics")
			return strings.Contains(body, "sluice_tier_edges 3\n")
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	var admitted, refused atomic.Int64
	for i := range 200 {
		clients.Go(func() {
			for ctx.Err() == nil {
				req, _ := http.NewRequest("GET", "http://"+edges[i%3].front+"/", nil)
				resp, err := transport.RoundTrip(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode == 200 {
						admitted.Add(1)
						continue
					}
					refused.Add(1)
				}
				select {
				case <-time.After(100 * time.Millisecond): // a client that comes back soon
				case <-ctx.Done():
				}
			}
		})
	}
	before := written(t, node)
	edges[0].until("at its limit", func() bool { return o.now.Load() == 20 })
	edges[0].until("at work for a while", func() bool { return admitted.Load() > 150 })
	t.Logf("%d admitted, %d refused, %.2f commands that write for each that was admitted, at most %d in flight", admitted.Load(), refused.Load(),
		float64(written(t, node)-before)/float64(admitted.Load()), o.most.Load())

	edges[0].until("told of a client's places at all edges", func() bool {
		var s control.Looked
		_, body := edges[0].admin("GET", "/v1/sources/127.0.0.1")
		return json.Unmarshal([]byte(body), &s) == nil && len(s.Rules) == 1 && s.Rules[0].Places.Held > s.Rules[0].Places.Here && s.Rules[0].Places.Here > 0
	})
	if code, stdout, stderr := sluice("why", "127.0.0.1", "--admin", edges[0].back); code != 0 || !strings.Contains(stdout, " of 1000 in flight, ") || strings.Contains(stdout, "requests, ") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}

	_ = edges[2].cmd.Process.Signal(syscall.SIGKILL)
	_ = edges[2].cmd.Wait()
	killed := time.Now()
	edges[0].until("down to what the others have", func() bool { return o.now.Load() < 20 })
	lost := 20 - o.now.Load()
	edges[0].until("at its limit again", func() bool { return o.now.Load() == 20 })
	// Two seconds are the promise, which pop/sim holds it to by the clock; a busy machine gets one more.
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("the places of an edge that was killed were given to others after %v", took)
	} else {
		t.Logf("an edge with about %d was killed: the others had 20 after %v", lost, took)
	}
	if o.most.Load() > 20 {
		t.Errorf("%d requests in flight, want 20", o.most.Load())
	}

	stop()
	clients.Wait()
	for _, e := range edges[:2] {
		e.until("without anything in flight", func() bool {
			_, body := e.admin("GET", "/metrics")
			return strings.Contains(body, "sluice_in_flight{rule=\"slow\"} 0\n")
		})
	}
	edges[0].until("free", func() bool { return o.now.Load() == 0 })
	served := o.served.Load()
	for range 20 {
		clients.Go(func() { edges[1].get() })
	}
	edges[1].until("full of twenty new ones", func() bool { return o.served.Load() == served+20 })
	clients.Wait()
	for _, e := range edges[:2] {
		e.stop(syscall.SIGTERM)
	}
}
