// Package ratelimit is Envoy's rate limit service, version 3, over gRPC: a proxy describes a
// request by descriptors, lists of keys and values, and gets the answer whether it is over a limit.
//
//	request      domain, descriptors; of each its entries, hits_addend, and a limit of its own (ask.go)
//	rules        to each descriptor the one rule that says most exactly what it is (descriptors.Pattern)
//	decision     of all of them together, by edge.Call: the tables, bits and tier are those of requests over HTTP
//	response     over the limit if one descriptor is; how each stands, what the client is told, and the body of a refusal (answer.go)
//
// What it decides is edge/limiter's, as everywhere: this package moves protobuf. It is the only
// package of edge that uses gRPC. module.go plugs it in.
package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"sluice/edge"
	"sluice/edge/listen"
	"sluice/edge/metric"
)

// What proxies may have open at once: calls on each connection, of which Envoy has one for each of
// its threads, and listen.Programs bounds how many there are. A call takes a goroutine and its
// request of at most maxRequest bytes, more than Envoy makes of the headers that it takes, and none
// takes longer than a rule waits for the tier (pop.wait). Its own headers may be maxHeaders bytes,
// decoded: compressed, a line that has been sent before is one byte, and by default gRPC would keep
// 16 MiB of them, decoded, for each call that is not ended. gRPC waits for the request of a call as
// long as its connection lasts. So a connection lasts for maxAge, less or more by a tenth, and
// lastCalls for what is under way: a proxy that gets GOAWAY connects anew, and loses no call by it.
const (
	maxCalls   = 1000
	maxRequest = 128 << 10
	maxHeaders = 16 << 10
	maxAge     = 10 * time.Minute
	lastCalls  = 10 * time.Second
)

// A Service answers calls. It is safe for concurrent use.
type Service struct {
	service.UnimplementedRateLimitServiceServer
	grpc_health_v1.UnimplementedHealthServer

	edge     *edge.Server
	grpc     *grpc.Server
	calls    sync.Pool // of *call
	programs listen.Programs
}

// New makes the service of an edge. secure is its TLS; nil: none.
func New(e *edge.Server, secure *tls.Config) *Service {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxCalls), grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: maxAge,
			MaxConnectionAgeGrace: lastCalls}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := &Service{edge: e, grpc: grpc.NewServer(options...)}
	s.calls.New = func() any { return &call{decided: e.NewCall()} }
	service.RegisterRateLimitServiceServer(s.grpc, s)
	grpc_health_v1.RegisterHealthServer(s.grpc, s)
	return s
}

// Serve accepts connections on ln until Drain. It blocks, and closes ln.
func (s *Service) Serve(ln net.Listener) error {
	err := s.grpc.Serve(s.programs.Listener(ln))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Collect gives the metrics of its connections.
func (s *Service) Collect(to metric.Sink) {
	s.programs.Collect(to, "sluice_rate_limit", "rate_limit_service")
}

// Drain stops accepting, has proxies go elsewhere, and returns when every call in flight is
// answered, or ctx is done: what is open then is cut.
func (s *Service) Drain(ctx context.Context) {
	defer context.AfterFunc(ctx, s.grpc.Stop)()
	s.grpc.GracefulStop()
}

// ShouldRateLimit decides about the request that a proxy describes.
func (s *Service) ShouldRateLimit(_ context.Context,
	q *service.RateLimitRequest) (*service.RateLimitResponse, error) {
	c := s.calls.Get().(*call)
	if err := c.read(q); err != nil {
		s.calls.Put(c)
		s.edge.Invalid()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := c.decided.Judge(q.Domain, c.requested, time.Now()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	a := c.answer()
	c.end()
	s.calls.Put(c)
	return a, nil
}

// Check tells a proxy whether it should call this edge.
func (s *Service) Check(context.Context,
	*grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	is := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if s.edge.Ready() {
		is = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return &grpc_health_v1.HealthCheckResponse{Status: is}, nil
}
