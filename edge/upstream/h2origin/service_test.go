package h2origin_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	calls "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice/edge/edgetest"
)

// A service is a server of gRPC that says back what it hears.
type service struct {
	calls.UnimplementedTestServiceServer
	Addr     string
	lastRead atomic.Int64 // messages
	Ended    chan error   // of calls that wait for their client to go
	md       chan metadata.MD
}

func (s *service) UnaryCall(ctx context.Context, in *calls.SimpleRequest) (*calls.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	select {
	case s.md <- md:
	default:
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-after", "the end", "x-bytes-bin", "\x00\x01"))
	switch c := in.GetResponseStatus(); {
	case c.GetCode() == -1: // it waits for its client to go
		<-ctx.Done()
		s.Ended <- ctx.Err()
		return nil, ctx.Err()
	case c != nil:
		return nil, status.Error(codes.Code(c.GetCode()), c.GetMessage())
	}
	return &calls.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (s *service) StreamingOutputCall(in *calls.StreamingOutputCallRequest, out calls.TestService_StreamingOutputCallServer) error {
	for _, p := range in.GetResponseParameters() {
		if err := out.Send(&calls.StreamingOutputCallResponse{Payload: &calls.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			s.Ended <- err
			return err
		}
	}
	return nil
}

func (s *service) StreamingInputCall(in calls.TestService_StreamingInputCallServer) error {
	n := 0
	for {
		m, err := in.Recv()
		if err == io.EOF {
			return in.SendAndClose(&calls.StreamingInputCallResponse{AggregatedPayloadSize: int32(n)})
		}
		if err != nil {
			return err
		}
		n += len(m.GetPayload().GetBody())
	}
}

// FullDuplexCall speaks first.
func (s *service) FullDuplexCall(both calls.TestService_FullDuplexCallServer) error {
	if err := both.Send(&calls.StreamingOutputCallResponse{Payload: &calls.Payload{Body: []byte("hello")}}); err != nil {
		return err
	}
	for {
		m, err := both.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			s.Ended <- err
			return err
		}
		s.lastRead.Add(1)
		if string(m.GetPayload().GetBody()) == "enough" {
			return status.Error(codes.Aborted, "that was enough")
		}
		if err := both.Send(&calls.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

func startService(t *testing.T, options ...grpc.ServerOption) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	s := &service{Addr: ln.Addr().String(), Ended: make(chan error, 8), md: make(chan metadata.MD, 64)}
	g := grpc.NewServer(options...)
	calls.RegisterTestServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return s
}

// callsTo is a client of gRPC over TLS.
func callsTo(t *testing.T, addr string, options ...grpc.DialOption) calls.TestServiceClient {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	c, err := grpc.NewClient(addr, options...)
	edgetest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return calls.NewTestServiceClient(c)
}

// grpcThrough is a server of gRPC, an edge before it, and a client of that.
func grpcThrough(t *testing.T, yaml string, options ...grpc.DialOption) (*service, *edgetest.Edge, calls.TestServiceClient) {
	t.Helper()
	s := startService(t)
	e := edgetest.Start(t, "h2c://"+s.Addr, yaml)
	return s, e, callsTo(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())), options...)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func said(m interface{ GetPayload() *calls.Payload }) string { return string(m.GetPayload().GetBody()) }

func payload(text string) *calls.Payload { return &calls.Payload{Body: []byte(text)} }
