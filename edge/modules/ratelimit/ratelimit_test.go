package ratelimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/mitigation"
)

// A peer is a proxy that asks an edge's service over a socket.
type peer struct {
	t       *testing.T
	edge    *edge.Server
	service *Service
	addr    string
	service.RateLimitServiceClient
	conn *grpc.ClientConn
}

func newEdge(t testing.TB, yaml string, change ...func(*edge.Options)) *edge.Server {
	t.Helper()
	c, err := (config.Parser{Modules: edge.Modules{Module()}.Config()}).Parse("test.yaml", []byte("rate_limit_service: {listen: \"127.0.0.1:1\"}\n"+yaml))
	if err != nil {
		t.Fatal(err)
	}
	o := edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1 << 14}), Blocks: mitigation.New(1<<12, nil), Events: events.New(100, nil)}
	for _, f := range change {
		f(&o)
	}
	e, err := edge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func startPeer(t *testing.T, yaml string, change ...func(*edge.Options)) *peer {
	t.Helper()
	e := newEdge(t, yaml, change...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, edge: e, service: New(e, nil), addr: ln.Addr().String()}
	served := make(chan error, 1)
	go func() { served <- p.service.Serve(ln) }()
	t.Cleanup(func() {
		cut, cancel := context.WithCancel(context.Background())
		cancel()
		p.service.Drain(cut)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	if p.conn, err = grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	p.RateLimitServiceClient = service.NewRateLimitServiceClient(p.conn)
	return p
}

// described reads "key=value key=value".
func described(text string) *descriptor.RateLimitDescriptor {
	d := new(descriptor.RateLimitDescriptor)
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		d.Entries = append(d.Entries, &descriptor.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(domain string, texts ...string) *service.RateLimitRequest {
	q := &service.RateLimitRequest{Domain: domain}
	for _, text := range texts {
		q.Descriptors = append(q.Descriptors, described(text))
	}
	return q
}

func (p *peer) ask(q *service.RateLimitRequest) *service.RateLimitResponse {
	p.t.Helper()
	a, err := p.ShouldRateLimit(context.Background(), q)
	if err != nil {
		p.t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, h := range a.ResponseHeadersToAdd {
		if name := strings.ToLower(h.Key); seen[name] {
			p.t.Errorf("%s is there twice: %v", h.Key, a.ResponseHeadersToAdd)
		} else {
			seen[name] = true
		}
	}
	return a
}

// said is an answer in a few words: the overall code, then of each descriptor its code, rule, limit by unit, and what is left.
func said(a *service.RateLimitResponse) string {
	b := new(strings.Builder)
	b.WriteString(a.OverallCode.String())
	for _, s := range a.Statuses {
		fmt.Fprintf(b, " | %v", s.Code)
		if l := s.CurrentLimit; l != nil {
			fmt.Fprintf(b, " %s %d/", l.Name, l.RequestsPerUnit)
			if l.UnitMultiplier != nil {
				fmt.Fprint(b, l.UnitMultiplier.Value)
			}
			fmt.Fprintf(b, "%v %d", l.Unit, s.LimitRemaining)
		}
	}
	return b.String()
}

func header(a *service.RateLimitResponse, name string) string {
	for _, h := range a.ResponseHeadersToAdd {
		if h.Key == name {
			return h.Value
		}
	}
	return ""
}

const web = `
rules:
- {name: address, match: {descriptors: {domain: web, entries: [{key: remote_address}]}}, limit: 2, window: 1h}
- {name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 3, window: 10m}
- {name: vip, match: {descriptors: {domain: web, entries: [{key: user, value: vip}]}}, limit: 1000, window: 24h}
- {name: all, match: {descriptors: {domain: web, entries: [{key: generic_key, value: all}]}}, limit: 5, window: 1m, mitigation_timeout: 0}
- {name: watched, match: {descriptors: {domain: web, entries: [{key: watched}]}}, limit: 1, mode: shadow}
- {name: odd, match: {descriptors: {domain: web, entries: [{key: odd}]}}, limit: 1, window: 1500ms}
`

// What a proxy gets, call after call.
func TestCalls(t *testing.T) {
	p := startPeer(t, web)
	f := func(q *service.RateLimitRequest, want string) {
		t.Helper()
		if got := said(p.ask(q)); got != want {
			t.Errorf("%v\n got %s\nwant %s", q, got, want)
		}
	}
	f(request("web", "remote_address=192.0.2.1"), "OK | OK address 2/HOUR 1")
	f(request("web", "remote_address=192.0.2.2", "user=a"), "OK | OK address 2/HOUR 1 | OK user 3/10MINUTE 2")
	f(request("web", "remote_address=192.0.2.1", "user=a"), "OK | OK address 2/HOUR 0 | OK user 3/10MINUTE 1")
	// One is over: none counts, and the other shows what is left.
	f(request("web", "remote_address=192.0.2.1", "user=a"), "OVER_LIMIT | OVER_LIMIT address 2/HOUR 0 | OK user 3/10MINUTE 1")
	// Now it is blocked, and no counter is asked.
	f(request("web", "user=a", "remote_address=192.0.2.1"), "OVER_LIMIT | OK user 3/10MINUTE 1 | OVER_LIMIT address 2/HOUR 0")
	f(request("web", "user=a"), "OK | OK user 3/10MINUTE 0")
	f(request("web", "user=vip"), "OK | OK vip 1000/DAY 999")
	f(request("web", "nothing=a", "user=b"), "OK | OK | OK user 3/10MINUTE 2")
	f(request("web", "user=b x=y"), "OK | OK")
	f(request("web", "user=b", "user=b"), "OK | OK user 3/10MINUTE 0 | OK user 3/10MINUTE 0") // one counter, two hits
	f(request("elsewhere", "user=b"), "OK | OK")
	f(request("web", "odd=a"), "OK | OK odd 1/SECOND 0")
	f(request("web", "watched=a"), "OK | OK watched 1/MINUTE 0")
	f(request("web", "watched=a"), "OK | OK watched 1/MINUTE 0") // a shadow refuses nobody

	// Hits: of the request, of a descriptor in their place, and none.
	q := request("web", "generic_key=all")
	q.HitsAddend = 4
	f(q, "OK | OK all 5/MINUTE 1")
	f(q, "OVER_LIMIT | OVER_LIMIT all 5/MINUTE 0")
	q.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	f(q, "OK | OK all 5/MINUTE 1")
	f(q, "OK | OK all 5/MINUTE 1")
	q.Descriptors[0].HitsAddend = wrapperspb.UInt64(1 << 40)
	f(q, "OVER_LIMIT | OVER_LIMIT all 5/MINUTE 0")
	f(request("web", "generic_key=all"), "OK | OK all 5/MINUTE 0")

	// A limit of the descriptor's own, by units of its own.
	q = request("web", "user=c")
	q.Descriptors[0].Limit = &descriptor.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: envoytype.RateLimitUnit_HOUR}
	f(q, "OK | OK user 1/HOUR 0")
	f(q, "OVER_LIMIT | OVER_LIMIT user 1/HOUR 0")
	f(request("web", "user=c"), "OK | OK user 3/10MINUTE 2")
	q.Descriptors[0].Limit.RequestsPerUnit = 100_000
	f(q, "OK | OK user 100000/HOUR 99999")
	q.Descriptors[0].Limit.Unit = envoytype.RateLimitUnit_SECOND
	f(q, "OK | OK user 100000/SECOND 99999")
	if got := header(p.ask(q), "RateLimit-Policy"); got != `"user";q=100000;w=1` {
		t.Error(got)
	}
}

// What no proxy should send is refused with a sentence, decides nothing, and is counted.
func TestInvalidCalls(t *testing.T) {
	p := startPeer(t, web)
	negative, month, none := request("web", "user=a"), request("web", "user=a"), request("web", "user=a")
	negative.Descriptors[0].IsNegativeHits = true
	month.Descriptors[0].Limit = &descriptor.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: envoytype.RateLimitUnit_MONTH}
	none.Descriptors[0].Limit = &descriptor.RateLimitDescriptor_RateLimitOverride{Unit: envoytype.RateLimitUnit_HOUR}
	for want, q := range map[string]*service.RateLimitRequest{
		"rate limit domain must not be empty":                                 request("", "user=a"),
		"rate limit descriptor list must not be empty":                        request("web"),
		"65 descriptors in a request: 64 at most":                             request("web", make([]string, 65)...),
		"is_negative_hits: what was counted is not given back":                negative,
		"limit override: no limit by MONTH: want SECOND, MINUTE, HOUR or DAY": month,
		"limit override: requests_per_unit is 0: want 1 or more":              none,
	} {
		_, err := p.ShouldRateLimit(context.Background(), q)
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := said(p.ask(request("web", "user=a"))); got != "OK | OK user 3/10MINUTE 2" {
		t.Errorf("the next: %s", got)
	}
	if got := p.metric("sluice_rate_limit_calls_total", "code", "invalid"); got != 6 {
		t.Errorf("%v invalid calls are counted, want 6", got)
	}
}

// A call has few headers, however few bytes say many: a client that gets that limit sends none beyond, and one that
// sends them nonetheless is cut.
func TestHeadersOfACall(t *testing.T) {
	p := startPeer(t, web)
	with := func(bytes int) error {
		long := metadata.AppendToOutgoingContext(context.Background(), "x-trace", strings.Repeat("a", bytes))
		_, err := p.ShouldRateLimit(long, request("web", "user=a"))
		return err
	}
	if err := with(8 << 10); err != nil {
		t.Error(err)
	}
	if err := with(maxHeaders); err == nil {
		t.Error("longer headers than may be are taken")
	}
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	const acceptEncoding = 0x80 | 16 // a line of the static table (RFC 7541, appendix A): one byte, which counts as 60
	head := append(callHead(), bytes.Repeat([]byte{acceptEncoding}, 10_000)...)
	_, _ = io.WriteString(c, http2.ClientPreface)
	to := http2.NewFramer(c, c)
	_ = to.WriteSettings()
	_ = to.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndHeaders: true})
	for {
		switch f, err := to.ReadFrame(); {
		case err != nil:
			t.Fatalf("neither taken nor refused: %v", err)
		case f.Header().Type == http2.FrameRSTStream:
			return
		}
		// A call that is taken would wait for its message for good.
	}
}

// callHead is the headers of a call, encoded.
func callHead() []byte {
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
		{Name: ":path", Value: service.RateLimitService_ShouldRateLimit_FullMethodName}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}} {
		_ = encoder.WriteField(f)
	}
	return head.Bytes()
}

// oneConn is a listener to which one client has come.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// Calls whose request never comes end with their connection, which has got GOAWAY: each would hold a goroutine for
// good.
func TestCallsWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(newEdge(t, web), nil)
		near, far := net.Pipe()
		ln := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		ln.conn <- far
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		began, reported, over := time.Now(), time.Duration(0), make(chan struct{})
		go func() {
			defer close(over)
			for from := http2.NewFramer(near, near); ; {
				f, err := from.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.PingFrame:
					if !f.IsAck() {
						_ = from.WritePing(true, f.Data)
					}
				case *http2.GoAwayFrame:
					reported = time.Since(began)
				}
			}
		}()
		_, _ = io.WriteString(near, http2.ClientPreface)
		to := http2.NewFramer(near, near)
		_ = to.WriteSettings()
		for id := uint32(1); id < 20; id += 2 {
			_ = to.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: callHead(), EndHeaders: true})
		}
		select {
		case <-over:
		case <-time.After(24 * time.Hour):
			near.Close()
		}
		// gRPC draws the age, up to a tenth more, and its cut comes a moment behind the time that calls have left.
		if took := time.Since(began); reported == 0 || took < reported+lastCalls || took > maxAge*11/10+lastCalls+5*time.Second {
			t.Errorf("GOAWAY after %v, and cut after %v", reported, took)
		}
		s.Drain(context.Background()) // returns, because no call is left
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// metric is the value of a counter or gauge that has this label.
func (p *peer) metric(name, label, value string) float64 {
	p.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.edge.Collector())
	families, err := registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// A client gets what one over HTTP gets.
func TestHeadersForClients(t *testing.T) {
	p := startPeer(t, `
rules:
- {name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 1, window: 1h, mitigation_timeout: 10m}
- {name: own, match: {descriptors: {domain: web, entries: [{key: own}]}}, limit: 1, window: 1h, response: {content_type: text/plain, body: later}}
`)
	a := p.ask(request("web", "user=a"))
	for name, want := range map[string]string{"RateLimit-Policy": `"user";q=1;w=3600`, "RateLimit": `"user";r=0;t=3600`, "X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "Retry-After": ""} {
		if got := header(a, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if len(a.RawBody) != 0 {
		t.Errorf("%q", a.RawBody)
	}
	a = p.ask(request("web", "user=a"))
	wait := header(a, "Retry-After")
	if want := fmt.Sprintf(`"retry_after":%s}}`, wait); wait == "" || !strings.Contains(string(a.RawBody), want) || !strings.Contains(string(a.RawBody), `"rule":"user","limit":1,"window":3600,"scope":"descriptor",`) {
		t.Errorf("Retry-After %q, %s", wait, a.RawBody)
	}
	if got := header(a, "RateLimit-Policy"); got != `"user";q=1;w=3600` {
		t.Errorf("the policy of a refusal: %q", got)
	}
	if header(a, "Content-Type") != "application/json" || header(a, "Cache-Control") != "no-store" || header(a, "RateLimit") != `"user";r=0;t=`+wait {
		t.Errorf("%v", a.ResponseHeadersToAdd)
	}
	if reset := a.Statuses[0].DurationUntilReset.AsDuration(); fmt.Sprint(int64((reset+time.Second-1)/time.Second)) != wait {
		t.Errorf("reset in %v, retry after %s s", reset, wait)
	}
	p.ask(request("web", "own=a"))
	if a := p.ask(request("web", "own=a")); string(a.RawBody) != "later" || header(a, "Content-Type") != "text/plain" {
		t.Errorf("%s %v", a.RawBody, a.ResponseHeadersToAdd)
	}
	next := p.ask(request("web", "nothing=a"))
	if len(next.ResponseHeadersToAdd)+len(next.RawBody) != 0 {
		t.Errorf("of a call before: %v", next)
	}
}

// Lists, blocks, the heaviest sources, metrics and events are those of requests over HTTP.
func TestOperatorsSeeCalls(t *testing.T) {
	p := startPeer(t, `
deny: [198.51.100.1]
allow: [198.51.100.2]
rules:
- {name: address, match: {descriptors: {domain: web, entries: [{key: remote_address}]}}, limit: 2, window: 1h}
`)
	f := func(address, want string) {
		t.Helper()
		if got := said(p.ask(request("web", "remote_address="+address))); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	f("198.51.100.1", "OVER_LIMIT | OVER_LIMIT")
	for range 4 {
		f("198.51.100.2", "OK | OK")
	}
	f("192.0.2.1", "OK | OK address 2/HOUR 1")
	f("192.0.2.1", "OK | OK address 2/HOUR 0")
	f("192.0.2.1", "OVER_LIMIT | OVER_LIMIT address 2/HOUR 0")
	f("192.0.2.1", "OVER_LIMIT | OVER_LIMIT address 2/HOUR 0")
	for verdict, want := range map[string]float64{"pass": 2, "limited": 1, "mitigated": 1, "denied": 1} {
		if got := p.metric("sluice_requests_total", "verdict", verdict); got != want {
			t.Errorf("%s: %v, want %v", verdict, got, want)
		}
	}
	if got := p.metric("sluice_rate_limit_calls_total", "code", "over_limit"); got != 3 {
		t.Errorf("%v calls over the limit", got)
	}
	var texts []string
	for _, e := range p.edge.Events().Since(0) {
		texts = append(texts, e.Rule+" "+e.Source+" "+e.Text)
	}
	if all := strings.Join(texts, "\n"); !strings.Contains(all, "address 192.0.2.1 blocked by this edge: 3 requests in 1h, 2 are allowed") {
		t.Errorf("events:\n%s", all)
	}
}

// Rules are read again while calls come, and what was counted goes on.
func TestCallsSurviveReloads(t *testing.T) {
	p := startPeer(t, web)
	p.ask(request("web", "user=a"))
	c, err := (config.Parser{Modules: edge.Modules{Module()}.Config()}).Parse("test.yaml", []byte("rate_limit_service: {listen: \"127.0.0.1:1\"}\n"+strings.Replace(web, "limit: 3, window: 10m", "limit: 9, window: 10m", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.edge.Apply(c); err != nil {
		t.Fatal(err)
	}
	if got := said(p.ask(request("web", "user=a"))); got != "OK | OK user 9/10MINUTE 7" {
		t.Error(got)
	}
}

// held is a tier that answers no call before released is closed.
func held(t *testing.T) (p *peer, requested chan struct{}, release func()) {
	requested, released := make(chan struct{}, maxCalls), make(chan struct{})
	p = startPeer(t, "rules: [{name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 1, first_sight: wait}]", func(o *edge.Options) {
		o.Table = counter.New(counter.Options{Counters: 1 << 14, Tier: true})
		o.Tier.Fetch = func(*algorithm.Spec, counter.Source) {
			requested <- struct{}{}
			<-released
		}
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // before the service is cut
	return p, requested, release
}

// A thousand calls at once on one connection: none waits for another.
func TestThousandCalls(t *testing.T) {
	p, requested, release := held(t)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer release()
	for i := range maxCalls {
		calls.Go(func() {
			if a, err := p.ShouldRateLimit(context.Background(), request("web", fmt.Sprint("user=", i))); err != nil || a.OverallCode != service.RateLimitResponse_OK {
				t.Errorf("call %d: %v, %v", i, a, err)
			}
		})
	}
	late := time.After(time.Minute)
	for i := range maxCalls {
		select {
		case <-requested:
		case <-late:
			t.Fatalf("%d calls are there at once, want %d", i, maxCalls)
		}
	}
}

// A service that drains answers what it has, and says that it is not there for more.
func TestDrain(t *testing.T) {
	t.Parallel()
	p, requested, release := held(t)
	health := grpc_health_v1.NewHealthClient(p.conn)
	is := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		t.Helper()
		a, err := health.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return a.Status
	}
	if got := is(); got != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Error(got)
	}
	p.edge.Leave()
	if got := is(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Error(got)
	}
	answered, drained := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := p.ShouldRateLimit(context.Background(), request("web", "user=a"))
		answered <- err
	}()
	<-requested
	go func() {
		defer close(drained)
		p.service.Drain(context.Background())
	}()
	for deadline := time.Now().Add(time.Minute); ; { // until nobody is accepted
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			break
		}
		c.Close()
		if time.Now().After(deadline) {
			t.Fatal("it goes on accepting")
		}
	}
	select {
	case <-drained:
		t.Error("it has drained with a call in flight")
	default:
	}
	release()
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	<-drained
}
