package closedloop

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// The server sees as many requests at once as there are streams on all connections, and one source after the other; every answer counts, by its
// status.
func TestLoadOverHTTP2(t *testing.T) {
	const conns, streams = 2, 8
	var mu sync.Mutex
	under, most, from, sources := 0, 0, make(map[string]bool), make(map[string]bool)
	together := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		under++
		if most = max(most, under); under == conns*streams {
			select {
			case <-together:
			default:
				close(together)
			}
		}
		from[r.RemoteAddr], sources[r.Header.Get("X-Forwarded-For")] = true, true
		mu.Unlock()
		<-together // the first are all there before one is answered
		mu.Lock()
		under--
		mu.Unlock()
		if r.ProtoMajor != 2 || r.URL.String() != "/some/path?x=1" {
			w.WriteHeader(http.StatusTeapot)
		}
		io.WriteString(w, strings.Repeat("x", 100_000)) // more than a frame
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	out, err := Load{Edge: netip.MustParseAddrPort(s.Listener.Addr().String()), Conns: conns, Streams: streams, Sources: 5,
		TLS:  &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", NextProtos: []string{"h2"}},
		Warm: 50 * time.Millisecond, For: 300 * time.Millisecond}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out.Answers == 0 || out.Statuses[200] != out.Answers || out.Failed != 0 || int(out.Latency.TotalCount()) != out.Answers {
		t.Errorf("%+v", out)
	}
	mu.Lock()
	defer mu.Unlock()
	if most != conns*streams || len(from) != conns || len(sources) != 5 {
		t.Errorf("%d requests at once on %d connections of %d sources", most, len(from), len(sources))
	}
}
