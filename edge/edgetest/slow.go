package edgetest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"sluice/edge"
	"sluice/edge/limiter/shedding"
)

// A SlowOrigin answers /slow when it is released, and notices when the edge gives such a request
// up; it answers all else at once.
type SlowOrigin struct {
	T       *testing.T
	URL     string
	Arrived chan string // the query of each slow request
	Given   chan string // and of each that was given up
	Release func()
}

// Edge serves before the origin, which may take a minute.
func (o *SlowOrigin) Edge(t *testing.T, yaml string, change ...func(*edge.Server)) *Edge {
	return Start(t, "", "origins: [{servers: ['"+o.URL+"'], timeout: 1m}]\n"+yaml, change...)
}

// Keep sends a slow request on a connection, and returns once the origin has it.
func (o *SlowOrigin) Keep(c io.Writer) {
	o.T.Helper()
	_, _ = io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	Receive(o.T, "at the origin", o.Arrived)
}

// StartSlowOrigin answers with a status.
func StartSlowOrigin(t *testing.T, status int) *SlowOrigin {
	o, leave := &SlowOrigin{T: t, Arrived: make(chan string, 100), Given: make(chan string, 100)},
		make(chan struct{})
	o.Release = sync.OnceFunc(func() { close(leave) })
	o.URL = NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			o.Arrived <- r.URL.RawQuery
			select {
			case <-leave:
			case <-r.Context().Done():
				o.Given <- r.URL.RawQuery
				return
			}
		}
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begun and ")
			w.(http.Flusher).Flush()
			<-leave
		}
		if status != 200 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, "done")
	})
	t.Cleanup(o.Release)
	return o
}

// A Holder is an edge with room for ten requests, before an origin that holds them.
type Holder struct {
	*Edge
	Arrived chan string
	Go      chan struct{}
	Held    []*Talk
}

// Ask sends a request and does not wait for its answer.
func (h *Holder) Ask(path string, header ...string) *Talk {
	c := h.Talk()
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n"+Lines(header)+"\r\n")
	return c
}

// Hold has a request under way.
func (h *Holder) Hold(path string, header ...string) {
	h.Held = append(h.Held, h.Ask(path, header...))
	<-h.Arrived
}

// End lets n held requests go.
func (h *Holder) End(n int) {
	for range n {
		h.Go <- struct{}{}
	}
}

// Wait asks for what waits for a place, as so many then do.
func (h *Holder) Wait(t *testing.T, path string, want int) *Talk {
	t.Helper()
	c := h.Ask(path)
	Until(t, path+" waits", func() bool { return h.Shedding().Waiting == want })
	return c
}

// Shedding is how the origin stands.
func (h *Holder) Shedding() shedding.Status { return h.Upstreams().Any.Shedding.Status() }

// StartHolder serves rules before it.
func StartHolder(t *testing.T, rules string, change ...func(*edge.Options)) *Holder {
	h := &Holder{Arrived: make(chan string), Go: make(chan struct{})}
	over := make(chan struct{})
	origin := NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.Arrived <- r.URL.Path:
		case <-over:
		}
		select {
		case <-h.Go:
		case <-over:
		}
	})
	t.Cleanup(func() { close(over) }) // a test that fails leaves some held
	rules = strings.Replace(rules, `"*/pay"`, `"~/pay$"`, 1)
	h.Edge = Serve(t,
		NewServer(t,
			Parse(t, fmt.Sprintf("origins: [{servers: [%q], shedding: {min: 10, max: 10}}]%s",
				origin,
				rules)), change...))
	return h
}
