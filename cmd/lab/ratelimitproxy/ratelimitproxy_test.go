package ratelimitproxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answering is a rate limit service that refuses every other request, or fails, and keeps what it was asked.
type answering struct {
	service.UnimplementedRateLimitServiceServer
	fails bool
	asked []string
}

func (a *answering) ShouldRateLimit(_ context.Context, r *service.RateLimitRequest) (*service.RateLimitResponse, error) {
	e := r.Descriptors[0].Entries[0]
	a.asked = append(a.asked, r.Domain+" "+e.Key+" "+e.Value)
	switch {
	case a.fails:
		return nil, status.Error(codes.Unavailable, "memcached is gone")
	case len(a.asked)%2 == 0:
		return &service.RateLimitResponse{OverallCode: service.RateLimitResponse_OVER_LIMIT}, nil
	}
	return &service.RateLimitResponse{OverallCode: service.RateLimitResponse_OK}, nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// The service decides, by the address that a request comes from; where it fails, requests pass.
func TestProxyAsks(t *testing.T) {
	var forwarded string
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forwarded = r.Header.Get("X-Forwarded-For") }))
	defer origin.Close()
	f := func(name string, a *answering, want ...int) {
		t.Helper()
		asked, at := listen(t), listen(t)
		server := grpc.NewServer()
		service.RegisterRateLimitServiceServer(server, a)
		go server.Serve(asked)
		defer server.Stop()
		p := Proxy{Service: asked.Addr().String(), Origin: strings.TrimPrefix(origin.URL, "http://"), Domain: "lab", Key: "remote_address", Timeout: 10 * time.Second}
		go p.Serve(at)
		for i, status := range want {
			answer, err := http.Get("http://" + at.Addr().String() + "/")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != status {
				t.Errorf("%s: request %d is answered with %d, want %d", name, i, answer.StatusCode, status)
			}
		}
		if len(a.asked) != len(want) || a.asked[0] != "lab remote_address 127.0.0.1" {
			t.Errorf("%s: the service is asked %q", name, a.asked)
		}
		if forwarded != "127.0.0.1" {
			t.Errorf("%s: the origin sees a request for %q", name, forwarded)
		}
	}
	f("it refuses every other", &answering{}, 200, 429, 200, 429)
	f("it fails", &answering{fails: true}, 200, 200)
}
