package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	calls "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A service is a server of gRPC that says back what it hears.
type service struct {
	calls.UnimplementedTestServiceServer
	addr  string
	heard atomic.Int64 // messages
	ended chan error   // of calls that wait for their client to go
	md    chan metadata.MD
}

func startService(t *testing.T, options ...grpc.ServerOption) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &service{addr: ln.Addr().String(), ended: make(chan error, 8), md: make(chan metadata.MD, 64)}
	g := grpc.NewServer(options...)
	calls.RegisterTestServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return s
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
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	case c != nil:
		return nil, status.Error(codes.Code(c.GetCode()), c.GetMessage())
	}
	return &calls.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (s *service) StreamingOutputCall(in *calls.StreamingOutputCallRequest, out calls.TestService_StreamingOutputCallServer) error {
	for _, p := range in.GetResponseParameters() {
		if err := out.Send(&calls.StreamingOutputCallResponse{Payload: &calls.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			s.ended <- err
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
			s.ended <- err
			return err
		}
		s.heard.Add(1)
		if string(m.GetPayload().GetBody()) == "enough" {
			return status.Error(codes.Aborted, "that was enough")
		}
		if err := both.Send(&calls.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

// callsTo is a client of gRPC over TLS.
func callsTo(t *testing.T, addr string, options ...grpc.DialOption) calls.TestServiceClient {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	c, err := grpc.NewClient(addr, options...)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return calls.NewTestServiceClient(c)
}

// grpcThrough is a server of gRPC, an edge before it, and a client of that.
func grpcThrough(t *testing.T, yaml string, options ...grpc.DialOption) (*service, *edgeUnderTest, calls.TestServiceClient) {
	t.Helper()
	s := startService(t)
	e := startEdge(t, "h2c://"+s.addr, yaml)
	return s, e, callsTo(t, e.serveTLS(certificatesIn(t, t.TempDir())), options...)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func said(m interface{ GetPayload() *calls.Payload }) string { return string(m.GetPayload().GetBody()) }

func payload(text string) *calls.Payload { return &calls.Payload{Body: []byte(text)} }

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
	e.rest()
}

// Both directions go on at once, and either may begin, pause and end first.
func TestGRPCStreams(t *testing.T) {
	s, e, c := grpcThrough(t, "limits: {header_timeout: 200ms, body_rate: 1000}")
	ctx := within(t)

	out, err := c.StreamingOutputCall(ctx, &calls.StreamingOutputCallRequest{ResponseParameters: []*calls.ResponseParameters{{Size: 1}, {Size: 300_000}, {Size: 0}, {Size: 5}}})
	must(t, err)
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
	must(t, err)
	for range 20 {
		must(t, in.Send(&calls.StreamingInputCallRequest{Payload: payload(strings.Repeat("x", 50_000))}))
	}
	if sum, err := in.CloseAndRecv(); err != nil || sum.GetAggregatedPayloadSize() != 1_000_000 {
		t.Errorf("%v, %v", sum, err)
	}

	both, err := c.FullDuplexCall(ctx)
	must(t, err)
	if m, err := both.Recv(); err != nil || said(m) != "hello" { // before the client has sent anything
		t.Fatalf("%v, %v", m, err)
	}
	for i := range 50 {
		text := fmt.Sprint("message ", i)
		must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload(text)}))
		if m, err := both.Recv(); err != nil || said(m) != text {
			t.Fatalf("%v, %v", m, err)
		}
	}
	must(t, both.CloseSend())
	if _, err := both.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}

	both, err = c.FullDuplexCall(ctx) // which the server ends
	must(t, err)
	_, err = both.Recv()
	must(t, err)
	must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("enough")}))
	if _, err := both.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("%v", err)
	}
	if s.heard.Load() != 51 {
		t.Errorf("the server heard %d messages", s.heard.Load())
	}
	e.rest()
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
	e.rest()
}

// A client of gRPC sends a PING and opens a window for each message that it hears, to learn how fast the way is: a call of many small ones is no flood.
func TestGRPCManyMessages(t *testing.T) {
	_, e, c := grpcThrough(t, "")
	both, err := c.FullDuplexCall(within(t))
	must(t, err)
	_, err = both.Recv()
	must(t, err)
	for i := range 2000 {
		must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("x")}))
		if _, err := both.Recv(); err != nil {
			t.Fatalf("after %d messages: %v", i, err)
		}
	}
	must(t, both.CloseSend())
	_, _ = both.Recv()
	if m := e.rest(); m["sluice_http2_abuse_total{kind=control}"] != 0 {
		t.Errorf("%v", m)
	}
}

// A client that pauses in its body is waited for while the answer goes on.
func TestGRPCPauses(t *testing.T) {
	_, e, c := grpcThrough(t, "limits: {header_timeout: 100ms, idle_timeout: 100ms}")
	both, err := c.FullDuplexCall(within(t))
	must(t, err)
	_, err = both.Recv()
	must(t, err)
	never, _ := io.Pipe()
	resp, _ := ask2(t, overHTTP2(t), "POST", "https://"+e.serveTLS(certificatesIn(t, t.TempDir()))+"/", never)
	if resp.StatusCode != 408 { // meanwhile, another has paused for too long before its answer began
		t.Errorf("%d", resp.StatusCode)
	}
	must(t, both.Send(&calls.StreamingOutputCallRequest{Payload: payload("late")}))
	if m, err := both.Recv(); err != nil || said(m) != "late" {
		t.Errorf("%v, %v", m, err)
	}
	must(t, both.CloseSend())
	_, _ = both.Recv()
	e.rest()
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
	must(t, err)
	_, err = out.Recv()
	must(t, err)
	cancel() // the server must not have sent all of it by now
	if err := <-s.ended; err == nil {
		t.Error("a server sent 64 MiB to a client that read one")
	}
	e.rest()
}

// The end of a call's time, and of its client, come to the server.
func TestGRPCCancel(t *testing.T) {
	s, e, c := grpcThrough(t, "")
	waits := &calls.SimpleRequest{ResponseStatus: &calls.EchoStatus{Code: -1}}
	ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
	defer cancel()
	if _, err := c.UnaryCall(ctx, waits); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	<-s.ended
	ctx, cancel = context.WithCancel(within(t))
	go func() {
		<-s.md
		<-s.md
		cancel()
	}()
	if _, err := c.UnaryCall(ctx, waits); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the server heard %v", err)
	}
	ctx, cancel = context.WithCancel(within(t))
	both, err := c.FullDuplexCall(ctx)
	must(t, err)
	_, err = both.Recv()
	must(t, err)
	cancel()
	if err := <-s.ended; status.Code(err) != codes.Canceled {
		t.Errorf("the server of a stream heard %v", err)
	}
	e.rest()
	if n := e.Upstreams().All[0].Failures.Load(); n != 0 {
		t.Errorf("%d failures of a server whose clients had no time", n)
	}
}

// A call that a rule refuses is told so in its own terms, with the limit in its head.
func TestGRPCRefused(t *testing.T) {
	_, e, c := grpcThrough(t, "rules: [{name: r, limit: 2, window: 1m, response: {status: 403}}]")
	for range 2 {
		_, err := c.UnaryCall(within(t), &calls.SimpleRequest{})
		must(t, err)
	}
	var head metadata.MD
	_, err := c.UnaryCall(within(t), &calls.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&head))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	both, err := c.FullDuplexCall(within(t))
	must(t, err)
	if _, err := both.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: %v", err)
	}
	tr := overHTTP2(t)
	resp, body := ask2(t, tr, "POST", "https://"+e.serveTLS(certificatesIn(t, t.TempDir()))+"/a", strings.NewReader("x"), func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc+proto") })
	if h := resp.Header; resp.StatusCode != 200 || body != "" || h.Get("Grpc-Status") != "8" || h.Get("Grpc-Message") == "" || h.Get("Retry-After") == "" || h.Get("RateLimit") == "" || h.Get("Content-Type") != "application/grpc" {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if resp, _ := ask2(t, tr, "POST", "https://"+e.serveTLS(certificatesIn(t, t.TempDir()))+"/a", strings.NewReader("x"), func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc-web") }); resp.StatusCode != 403 {
		t.Errorf("gRPC-Web: %d", resp.StatusCode)
	}
	e.rest()
}

// Where nobody answers, a call may be tried again elsewhere.
func TestGRPCUnavailable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ln.Close()
	e := startEdge(t, "h2c://"+ln.Addr().String(), "")
	c := callsTo(t, e.serveTLS(certificatesIn(t, t.TempDir())))
	if _, err := c.UnaryCall(within(t), &calls.SimpleRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	e.rest()
}

// A proxy that asks about a call is told the verdict in the status: 200 would admit it.
func TestGRPCCheck(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "{check_path: /check, source: {trust: [127.0.0.1]}, deny: [192.0.2.1]}")
	resp, _ := ask2(t, overHTTP2(t), "GET", "https://"+e.serveTLS(certificatesIn(t, t.TempDir()))+"/check", nil, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
	})
	if resp.StatusCode != 403 || resp.Header.Get("Grpc-Status") != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// startHTTP2 is a server of HTTP/2 without TLS, or with.
func startHTTP2(t *testing.T, certificate string, h http.HandlerFunc) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(certificate == "")
	s.Protocols.SetHTTP2(certificate != "")
	done := make(chan error, 1)
	go func() {
		if certificate == "" {
			done <- s.Serve(ln)
		} else {
			done <- s.ServeTLS(ln, certificate+".crt", certificate+".key")
		}
	}()
	t.Cleanup(func() { s.Close(); <-done })
	if certificate == "" {
		return "h2c://" + ln.Addr().String()
	}
	return "h2://" + ln.Addr().String()
}

// A server of HTTP/2 gets what one of HTTP/1.1 would, and its answers reach clients of either.
func TestHTTP2Origin(t *testing.T) {
	got := make(chan string, 16)
	dir := t.TempDir()
	writeCertificate(t, dir+"/server", "origin.internal")
	for _, certificate := range []string{"", dir + "/server"} {
		url := startHTTP2(t, certificate, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/early" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			text, _ := io.ReadAll(r.Body)
			got <- fmt.Sprintf("%s %s %s %s %d%v%v%v%v%v", r.Proto, r.Method, r.RequestURI, r.Host, len(text), r.Header["Cookie"], r.Header["Te"], r.Header["X-Two"], r.Header["User-Agent"], r.Trailer["X-Sum"])
			w.Header().Set("Trailer", "X-After")
			w.Header().Set("Set-Cookie", "a=b")
			switch r.URL.Path {
			case "/none":
				w.Header().Del("Trailer")
				w.WriteHeader(http.StatusNoContent)
			case "/fixed":
				w.Header().Del("Trailer")
				w.Header().Set("Content-Length", "5")
				fallthrough
			default:
				_, _ = io.WriteString(w, "hello")
			}
			w.Header().Set("X-After", "late")
		})
		yaml := fmt.Sprintf("origins: [{servers: [%q]}]", url)
		if certificate != "" {
			yaml = fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s.crt, server_name: origin.internal}}]", url, certificate)
		}
		e := startEdge(t, "", yaml)
		c := e.talk()
		for _, test := range []struct{ request, want, body, trailer string }{
			{"GET //a?b=%2F HTTP/1.1\r\nHost: A.example\r\nX-Two: 1\r\nX-Two: 2\r\nCookie: a=1; b=2\r\nConnection: te\r\nTE: trailers\r\nUpgrade: websocket\r\n\r\n",
				"HTTP/2.0 GET //a?b=%2F A.example 0[a=1; b=2][trailers][1 2][][]", "hello", "late"},
			{"GET /early HTTP/1.1\r\nHost: a\r\nUser-Agent: me\r\n\r\n", "HTTP/2.0 GET /early a 0[][][][me][]", "hello", ""},
			{"HEAD /fixed HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 HEAD /fixed a 0[][][][][]", "", ""},
			{"GET /fixed HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 GET /fixed a 0[][][][][]", "hello", ""},
			{"GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 GET /none a 0[][][][][]", "", ""},
			{"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), "HTTP/2.0 POST /up a 100000[][][][][]", "hello", ""},
			{"POST /up HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", "HTTP/2.0 POST /up a 3[][][][][1]", "hello", ""},
			{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/2.0 OPTIONS * a 0[][][][][]", "hello", ""},
		} {
			resp, body := c.say(test.request)
			if strings.HasPrefix(test.request, "OPTIONS") { // net/http's server answers that itself
				if resp.StatusCode != 200 {
					t.Errorf("%q: %d", test.request, resp.StatusCode)
				}
				continue
			}
			if text := <-got; text != test.want || body != test.body || resp.Trailer.Get("X-After") != test.trailer || resp.Header.Get("Set-Cookie") != "a=b" {
				t.Errorf("%.40q: the server got %q, want %q; the client %q, %v", test.request, text, test.want, body, resp.Trailer)
			}
		}
		e.rest()
	}
}

// Two servers share the calls; one that stops is left out, and what it had not seen goes to the other.
func TestHTTP2OriginsShare(t *testing.T) {
	var urls []string
	for i := range 2 {
		urls = append(urls, startHTTP2(t, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strconv.Itoa(i)) }))
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	gone.Close()
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: [%q, %q, \"h2c://%s\"], health: {active: /up, interval: 100ms}}]", urls[0], urls[1], gone.Addr()))
	seen := map[string]int{}
	for range 30 {
		resp, body := e.get("/")
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		seen[body]++
	}
	if seen["0"] < 10 || seen["1"] < 10 {
		t.Errorf("%v", seen)
	}
}

// A body that breaks off is no body: neither of an answer nor of a request.
func TestHTTP2OriginBreaksOff(t *testing.T) {
	ended := make(chan error, 1)
	url := startHTTP2(t, "", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
			return
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), 10_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	e := startEdge(t, url, "")
	if _, body := e.get("/"); !strings.Contains(body, " then ") {
		t.Errorf("%d bytes were taken for the whole", len(body))
	}
	c := e.dial()
	_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 50_000))
	must(t, err)
	c.Close()
	if err := <-ended; err == nil {
		t.Error("half a request was taken for the whole")
	}
	e.rest()
}

// A server that does not speak HTTP/2 is not spoken to.
func TestHTTP2OriginIsNone(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, "h2c://"+o.addr, "")
	if resp, _ := e.get("/"); resp.StatusCode != 502 {
		t.Errorf("a server of HTTP/1.1: %d", resp.StatusCode)
	}
	dir := t.TempDir()
	writeCertificate(t, dir+"/server", "origin.internal")
	s := startTLSOrigin(t, dir+"/server", "", func(http.ResponseWriter, *http.Request) {})
	e = startEdge(t, "", fmt.Sprintf("origins: [{servers: [%q], tls: {ca_file: %s/server.crt, server_name: origin.internal}}]", strings.Replace(s.URL, "https", "h2", 1), dir))
	if resp, _ := e.get("/"); resp.StatusCode != 502 {
		t.Errorf("one with TLS: %d", resp.StatusCode)
	}
}
