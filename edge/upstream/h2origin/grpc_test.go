package h2origin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	calls "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice/edge/edgetest"
)

// A call goes through with its metadata, and its answer comes back with its trailers, whatever its status.
func TestGRPCUnary(t *testing.T) {
	s, e, c := grpcThrough(t, "")
	var head, tail metadata.MD
	ctx := metadata.AppendToOutgoingContext(within(t), "x-own", "v", "x-raw-bin", "\x00\xff")
	for _, size := range []int{0, 1, 1 << 20} {
		text := strings.Repeat("x", size)
		answer, err := c.UnaryCall(ctx, &calls.SimpleRequest{Payload: payload(text)}, grpc.Header(&head), grpc.Trailer(&tail))
		if err != nil || said(answer) != text {
			t.Fatalf("%d bytes came back, %v", len(said(answer)), err)
		}
		if tail.Get("x-after")[0] != "the end" || tail.Get("x-bytes-bin")[0] != "\x00\x01" || len(head.Get("x-request-id")) != 1 {
			t.Errorf("head %v, trailers %v", head, tail)
		}
		md := <-s.md
		if md.Get("x-own")[0] != "v" || md.Get("x-raw-bin")[0] != "\x00\xff" || md.Get("x-forwarded-for")[0] != "127.0.0.1" || md.Get("via")[0] != "2.0 sluice" || !strings.HasPrefix(md.Get("user-agent")[0], "grpc-go/") {
			t.Errorf("the server got %v", md)
		}
	}
	_, err := c.UnaryCall(ctx, &calls.SimpleRequest{ResponseStatus: &calls.EchoStatus{Code: int32(codes.NotFound), Message: "no such, ü"}}, grpc.Trailer(&tail))
	if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != "no such, ü" || tail.Get("x-after")[0] != "the end" {
		t.Errorf("%v, trailers %v", err, tail)
	}
	if _, err := c.EmptyCall(ctx, &calls.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method there is not: %v", err)
	}
	e.Rest()
}

// Both directions go on at once, and either may begin, pause and end first.
func TestGRPCStreams(t *testing.T) {
	t.Parallel()
	s, e, c := grpcThrough(t, "limits: {header_timeout: 200ms, body_rate: 1000}")
	ctx := within(t)

	out, err := c.StreamingOutputCall(ctx, &calls.StreamingOutputCallRequest{ResponseParameters: []*calls.ResponseParameters{{Size: 1}, {Size: 300_000}, {Size: 0}, {Size: 5}}})
	edgetest.Must(t, err)
	for _, want := range []int{1, 300_000, 0, 5} {
		m, err := out.Recv()
		if err != nil || len(said(m)) != want {
			t.Fatalf("%d bytes, %v, want %d", len(said(m)), err, want)
		}
	}
	if _, err := out.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}

	in, err := c.StreamingInputCall(ctx)
	edgetest.Must(t, err)
	for range 20 {
		edgetest.Must(t, in.Send(&calls.StreamingInputCallRequest{Payload: payload(strings.Repeat("x", 50_000))}))
	}
	if sum, err := in.CloseAndRecv(); err != nil || sum.GetAggregatedPayloadSize() != 1_000_000 {
		t.Errorf("%v, %v", sum, err)
	}

	both, err := c.FullDuplexCall(ctx)
	edgetest.Must(t, err)
	if m, err := both.Recv(); err != nil || said(m) != "hello" { // before the client has sent anything
		t.Fatalf("%v, %v", m, err)
	}
	for i := range 50 {
		text := fmt.Sprint("message ", i)
		edgetest.Must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload(text)}))
		if m, err := both.Recv(); err != nil || said(m) != text {
			t.Fatalf("%v, %v", m, err)
		}
	}
	edgetest.Must(t, both.CloseSend())
	if _, err := both.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}

	both, err = c.FullDuplexCall(ctx) // which the server ends
	edgetest.Must(t, err)
	_, err = both.Recv()
	edgetest.Must(t, err)
	edgetest.Must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("enough")}))
	if _, err := both.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("%v", err)
	}
	if s.lastRead.Load() != 51 {
		t.Errorf("the server heard %d messages", s.lastRead.Load())
	}
	e.Rest()
}

// Many calls at once, more than a connection to the server takes: each gets its own answer.
func TestGRPCMany(t *testing.T) {
	_, e, c := grpcThrough(t, "http2: {max_streams: 150}")
	ctx := within(t)
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			both, err := c.FullDuplexCall(ctx)
			if err == nil {
				_, err = both.Recv()
			}
			for n := 0; n < 5 && err == nil; n++ {
				text := strings.Repeat(fmt.Sprint(i, " "), 1000*n+1)
				if err = both.Send(&calls.StreamingOutputCallRequest{Payload: payload(text)}); err == nil {
					var m *calls.StreamingOutputCallResponse
					if m, err = both.Recv(); err == nil && said(m) != text {
						t.Errorf("%d: another answer", i)
					}
				}
			}
			if err == nil {
				err = both.CloseSend()
			}
			if err == nil {
				_, err = both.Recv()
			}
			if err != io.EOF {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
	e.Rest()
}

// A client of gRPC sends a PING and opens a window for each message that it hears, to learn how fast the way is: a call of many small ones is no flood.
func TestGRPCManyMessages(t *testing.T) {
	_, e, c := grpcThrough(t, "")
	both, err := c.FullDuplexCall(within(t))
	edgetest.Must(t, err)
	_, err = both.Recv()
	edgetest.Must(t, err)
	for i := range 2000 {
		edgetest.Must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("x")}))
		if _, err := both.Recv(); err != nil {
			t.Fatalf("after %d messages: %v", i, err)
		}
	}
	edgetest.Must(t, both.CloseSend())
	_, _ = both.Recv()
	if m := e.Rest(); m["sluice_http2_abuse_total{kind=control}"] != 0 {
		t.Errorf("%v", m)
	}
}

// A client that pauses in its body is waited for while the answer goes on.
func TestGRPCPauses(t *testing.T) {
	t.Parallel()
	// Long enough for a handshake on a busy machine.
	_, e, c := grpcThrough(t, "limits: {header_timeout: 2s, idle_timeout: 2s}")
	both, err := c.FullDuplexCall(within(t))
	edgetest.Must(t, err)
	_, err = both.Recv()
	edgetest.Must(t, err)
	never, _ := io.Pipe()
	resp, _ := edgetest.Ask2(t, edgetest.OverHTTP2(t), "POST", "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/", never)
	if resp.StatusCode != 408 { // meanwhile, another has paused for too long before its answer began
		t.Errorf("%d", resp.StatusCode)
	}
	edgetest.Must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("late")}))
	if m, err := both.Recv(); err != nil || said(m) != "late" {
		t.Errorf("%v, %v", m, err)
	}
	edgetest.Must(t, both.CloseSend())
	_, _ = both.Recv()
	e.Rest()
}

// What a reader does not take, the writer of the other end does not get rid of: nothing between holds it.
func TestGRPCFlowControl(t *testing.T) {
	s, e, c := grpcThrough(t, "", grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	many := &calls.StreamingOutputCallRequest{}
	for range 64 {
		many.ResponseParameters = append(many.ResponseParameters, &calls.ResponseParameters{Size: 1 << 20})
	}
	out, err := c.StreamingOutputCall(ctx, many)
	edgetest.Must(t, err)
	_, err = out.Recv()
	edgetest.Must(t, err)
	cancel() // the server must not have sent all of it by now
	if err := <-s.Ended; err == nil {
		t.Error("a server sent 64 MiB to a client that read one")
	}
	e.Rest()
}

// The end of a call's time, and of its client, come to the server.
func TestGRPCCancel(t *testing.T) {
	t.Parallel()
	s, e, c := grpcThrough(t, "")
	waits := &calls.SimpleRequest{ResponseStatus: &calls.EchoStatus{Code: -1}}
	for wait := 100 * time.Millisecond; len(s.md) == 0; wait *= 2 { // until it got to the server
		ctx, cancel := context.WithTimeout(within(t), wait)
		if _, err := c.UnaryCall(ctx, waits); status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("within %v: %v", wait, err)
		}
		cancel()
	}
	<-s.md
	<-s.Ended
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-s.md
		cancel()
	}()
	if _, err := c.UnaryCall(ctx, waits); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if err := <-s.Ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the server heard %v", err)
	}
	ctx, cancel = context.WithCancel(within(t))
	both, err := c.FullDuplexCall(ctx)
	edgetest.Must(t, err)
	_, err = both.Recv()
	edgetest.Must(t, err)
	cancel()
	if err := <-s.Ended; status.Code(err) != codes.Canceled {
		t.Errorf("the server of a stream heard %v", err)
	}
	e.Rest()
	if n := e.Upstreams().All[0].Failures.Load(); n != 0 {
		t.Errorf("%d failures of a server whose clients had no time", n)
	}
}

// A call that a rule refuses is told so in its own terms, with the limit in its head.
func TestGRPCRefused(t *testing.T) {
	_, e, c := grpcThrough(t, "rules: [{name: r, limit: 2, window: 1m, response: {status: 403}}]")
	for range 2 {
		_, err := c.UnaryCall(within(t), &calls.SimpleRequest{})
		edgetest.Must(t, err)
	}
	var head metadata.MD
	_, err := c.UnaryCall(within(t), &calls.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&head))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	both, err := c.FullDuplexCall(within(t))
	edgetest.Must(t, err)
	if _, err := both.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: %v", err)
	}
	tr := edgetest.OverHTTP2(t)
	resp, body := edgetest.Ask2(t, tr, "POST", "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/a", strings.NewReader("x"), func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc+proto") })
	if h := resp.Header; resp.StatusCode != 200 || body != "" || h.Get("Grpc-Status") != "8" || h.Get("Grpc-Message") == "" || h.Get("Retry-After") == "" || h.Get("RateLimit") == "" || h.Get("Content-Type") != "application/grpc" {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if resp, _ := edgetest.Ask2(t, tr, "POST", "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/a", strings.NewReader("x"), func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc-web") }); resp.StatusCode != 403 {
		t.Errorf("gRPC-Web: %d", resp.StatusCode)
	}
	e.Rest()
}

// Where nobody answers, a call may be tried again elsewhere.
func TestGRPCUnavailable(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	ln.Close()
	e := edgetest.Start(t, "h2c://"+ln.Addr().String(), "")
	c := callsTo(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	if _, err := c.UnaryCall(within(t), &calls.SimpleRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	e.Rest()
}

// A proxy that asks about a call is told the verdict in the status: 200 would admit it.
func TestGRPCCheck(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "{check_path: /check, source: {trust: [127.0.0.1]}, deny: [192.0.2.1]}")
	resp, _ := edgetest.Ask2(t, edgetest.OverHTTP2(t), "GET", "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/check", nil, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
	})
	if resp.StatusCode != 403 || resp.Header.Get("Grpc-Status") != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}
