package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// callers are those who call at once, b.Conns*b.Calls of them. Close ends their connections.
func (b *RateLimit) callers(addr, work string,
	a asked) (callers []caller, closeAll func(), err error) {
	if a == overHTTP {
		callers, closeAll = b.httpCallers(addr, work)
		return callers, closeAll, nil
	}
	return b.grpcCallers(addr, work)
}

// grpcCallers share b.Conns connections.
func (b *RateLimit) grpcCallers(addr, work string) (callers []caller, closeAll func(), err error) {
	want := service.RateLimitResponse_OK
	if work == "refuse" {
		want = service.RateLimitResponse_OVER_LIMIT
	}
	requests := make([]*service.RateLimitRequest, b.Users)
	for i := range requests {
		requests[i] = &service.RateLimitRequest{Domain: "bench",
			Descriptors: []*descriptor.RateLimitDescriptor{{
				Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: "user",
					Value: userName(i)}}}}}
	}
	var conns []*grpc.ClientConn
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for range b.Conns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}))
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("loadgen: bench-rls: %w", err)
		}
		conns = append(conns, conn)
		client := service.NewRateLimitServiceClient(conn)
		for range b.Calls {
			callers = append(callers, func(ctx context.Context, i int) (bool, error) {
				a, err := client.ShouldRateLimit(ctx, requests[i])
				return err == nil && a.OverallCode == want, err
			})
		}
	}
	return callers, closeAll, nil
}

// httpCallers have a connection each.
func (b *RateLimit) httpCallers(addr, work string) (callers []caller, closeAll func()) {
	bodies := make([][]byte, b.Users)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `{"rule":"user","key":%q}`, userName(i))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: b.Conns * b.Calls, DisableCompression: true}
	client, url := &http.Client{Transport: transport}, "http://"+addr+"/v1/limit"
	for range b.Conns * b.Calls {
		callers = append(callers, func(ctx context.Context, i int) (bool, error) {
			q, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
				bytes.NewReader(bodies[i]))
			if err != nil {
				return false, err
			}
			q.Header.Set("Content-Type", "application/json")
			a, err := client.Do(q)
			if err != nil {
				return false, err
			}
			defer a.Body.Close()
			text, err := io.ReadAll(a.Body)
			if err != nil {
				return false, err
			}
			var said struct {
				Allowed bool `json:"allowed"`
			}
			if err := json.Unmarshal(text, &said); err != nil || a.StatusCode != http.StatusOK {
				return false, fmt.Errorf("%s: %.200s: %w", a.Status, text, err)
			}
			return said.Allowed == (work == "admit"), nil
		})
	}
	return callers, transport.CloseIdleConnections
}

func userName(i int) string { return fmt.Sprint("user-", i) }
