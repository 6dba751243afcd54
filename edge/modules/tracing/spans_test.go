package tracing

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/modules/tracing/collectortest"
)

// traced is an edge that traces, and stop what sends the rest and ends that.
func traced(t *testing.T, c Settings, origin, yaml string) (e *edgetest.Edge, stop func() (warned []string)) {
	t.Helper()
	m := Module("1.2.3")
	config := edgetest.Parse(t, yaml)
	config.Origins = edgetest.WithoutRules(t, origin).Origins
	config.Settings = map[string]any{section: &c}
	var warned []string
	e = edgetest.Serve(t, edgetest.NewServer(t, config, edgetest.Using(m), func(o *edge.Options) {
		o.Name, o.Warn = "edge\xff1", func(message string, _ ...any) { warned = append(warned, message) }
	}))
	edgetest.Must(t, m.Start())
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { m.Run(ctx) })
	stop = func() []string { e.Rest(); cancel(); wait.Wait(); return warned }
	return e, stop
}

// header is the value of a request's header line, and how many there are.
func header(request, name string) (value string, n int) {
	for line := range strings.Lines(request) {
		if is, v, _ := strings.Cut(strings.TrimSpace(line), ": "); strings.EqualFold(is, name) {
			value, n = v, n+1
		}
	}
	return value, n
}

// A request that is passed on has a span, with one below it for the origin, whose context the origin gets. One that is refused has a span
// that says by which rule. No query and no address is in them.
func TestSpans(t *testing.T) {
	origin, s := edgetest.StartRecorder(t, edgetest.Hello), collectortest.Start(t)
	e, stop := traced(t, Settings{Endpoint: Endpoint(s.URL), Sample: 1, ServiceName: "front"}, origin.URL(), "rules: [{name: r, limit: 1, window: 1h}]")
	e.Get("/a\xff?secret=1", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate: a=b")
	sent := origin.LastRequest()
	e.Get("/b")
	if warned := stop(); len(warned) > 0 {
		t.Fatal(warned)
	}
	server, client := s.Spans()
	if len(server) != 2 || len(client) != 1 {
		t.Fatal(server, client)
	}
	first, second := collectortest.Attributes(server[0]), collectortest.Attributes(server[1])
	for name, want := range map[string]string{"http.request.method": "GET", "url.path": "/a\ufffd", "url.scheme": "http", "http.response.status_code": "200",
		"network.protocol.version": "1.1", "sluice.from": "origin", "client.address": "", "server.address": "example.com", "server.port": ""} {
		if first[name] != want {
			t.Errorf("%s: %q, want %q", name, first[name], want)
		}
	}
	if first["sluice.request_id"] == "" {
		t.Error(first)
	}
	if second["sluice.rule"] != "r" || second["sluice.verdict"] != "limited" || second["http.response.status_code"] != "429" || second["sluice.from"] != "limit" {
		t.Error(second)
	}
	below := collectortest.Attributes(client[0])
	if below["http.response.status_code"] != "200" || origin.URL() != "http://"+below["server.address"]+":"+below["server.port"] || string(client[0].ParentSpanId) != string(server[0].SpanId) {
		t.Error(client[0])
	}
	want := fmt.Sprintf("00-%x-%x-01", server[0].TraceId, client[0].SpanId)
	if got, n := header(sent, "traceparent"); got != want || n != 1 {
		t.Errorf("the origin got %d times %s, want %s", n, got, want)
	}
	if _, n := header(sent, "tracestate"); n != 0 {
		t.Errorf("a state of a trace that ended at the edge went on:\n%s", sent)
	}
	about := s.Resource()
	if about["service.name"] != "front" || about["service.instance.id"] != "edge\ufffd1" || about["service.version"] != "1.2.3" {
		t.Error(about)
	}
	if m := edgetest.Metrics(t, e.Server); m[`sluice_trace_spans_total{result=sent}`] != 3 {
		t.Errorf("%v", m)
	}
}

// What is not drawn goes on as it came. A sampled parent is followed if it is configured, from trusted proxies, and so many a second.
func TestParents(t *testing.T) {
	const id, sampled, unsampled = "0af7651916cd43dd8448eb211c80319c", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, test := range []struct {
		name    string
		parent  string
		yaml    string
		headers []string
		follows bool
	}{
		{"nobody's", none, "source: {trust: [127.0.0.0/8]}", []string{"traceparent: " + sampled, "tracestate: a=b"}, false},
		{"a stranger's", trusted, "deny: []", []string{"traceparent: " + sampled, "tracestate: a=b"}, false},
		{"not sampled", trusted, "source: {trust: [127.0.0.0/8]}", []string{"traceparent: " + unsampled, "tracestate: a=b"}, false},
		{"malformed", trusted, "source: {trust: [127.0.0.0/8]}", []string{"traceparent: 00-" + id + "-zz-01", "tracestate: a=b"}, false},
		{"two", trusted, "source: {trust: [127.0.0.0/8]}", []string{"traceparent: " + sampled, "traceparent: " + sampled, "tracestate: a=b"}, false},
		{"a proxy's", trusted, "source: {trust: [127.0.0.0/8]}", []string{"traceparent: " + sampled, "tracestate: a=b"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			origin, s := edgetest.StartRecorder(t, edgetest.Hello), collectortest.Start(t)
			e, stop := traced(t, Settings{Endpoint: Endpoint(s.URL), Parent: test.parent}, origin.URL(), test.yaml)
			e.Get("/", test.headers...)
			sent := origin.LastRequest()
			stop()
			requests, attempts := s.Spans()
			spans := len(requests) + len(attempts)
			got, _ := header(sent, "traceparent")
			state, _ := header(sent, "tracestate")
			if state != "a=b" {
				t.Errorf("the state was lost:\n%s", sent)
			}
			if test.follows {
				if spans != 2 || !strings.HasPrefix(got, "00-"+id+"-") || got == sampled {
					t.Errorf("%d spans, %s", spans, got)
				}
			} else if want, _, _ := strings.Cut(strings.TrimPrefix(test.headers[0], "traceparent: "), "\r"); spans > 0 || got != want {
				t.Errorf("%d spans, %s went on as %s", spans, want, got)
			}
		})
	}
}

// A collector that is away, refuses or never answers costs spans, which are counted, and no request.
func TestNoCollector(t *testing.T) {
	hung := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hung) })
	away := httptest.NewServer(nil)
	away.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(refuses.Close)
	for name, url := range map[string]string{"away": away.URL, "refuses": refuses.URL, "hangs": slow.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, stop := traced(t, Settings{Endpoint: Endpoint(url), Sample: 1}, edgetest.StartRecorder(t, edgetest.Hello).URL(), "deny: []")
			for range 20 {
				if answer, _ := e.Get("/"); answer.StatusCode != 200 {
					t.Errorf("%d", answer.StatusCode)
				}
			}
			begun := time.Now()
			warned := stop()
			if took := time.Since(begun); took > 8*time.Second { // 2 s are allowed, and machines are busy
				t.Errorf("the last spans took %v", took)
			}
			m := edgetest.Metrics(t, e.Server)
			if len(warned) != 1 || m[`sluice_trace_spans_total{result=failed}`] != 40 || m[`sluice_trace_spans_total{result="sent"}`] != 0 {
				t.Errorf("%v, %v", warned, m)
			}
		})
	}
}

// Over HTTP/2 a span has what the client named and spoke.
func TestHTTP2(t *testing.T) {
	origin, s := edgetest.StartRecorder(t, edgetest.Hello), collectortest.Start(t)
	e, stop := traced(t, Settings{Endpoint: Endpoint(s.URL), Sample: 1, ClientAddress: true}, origin.URL(), "deny: []")
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	edgetest.Ask2(t, edgetest.OverHTTP2(t), "POST", "https://"+addr+"/a?b=c", strings.NewReader("body"), func(r *http.Request) { r.Host = "a.example:8443" })
	stop()
	requests, attempts := s.Spans()
	if len(requests) != 1 || len(attempts) != 1 {
		t.Fatal(requests, attempts)
	}
	got := collectortest.Attributes(requests[0])
	for name, want := range map[string]string{"http.request.method": "POST", "url.path": "/a", "url.scheme": "https", "http.response.status_code": "200",
		"network.protocol.version": "2", "client.address": "127.0.0.1", "server.address": "a.example", "server.port": "8443"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	want := fmt.Sprintf("00-%x-%x-01", requests[0].TraceId, attempts[0].SpanId)
	if got, n := header(origin.LastRequest(), "traceparent"); got != want || n != 1 {
		t.Errorf("the origin got %d times %s, want %s", n, got, want)
	}
}

// A request that is sent again has a span for each attempt, and the origin goes on with that of the last one.
func TestRetry(t *testing.T) {
	s, closed := collectortest.Start(t), make(chan struct{})
	var mu sync.Mutex
	var got []string
	origin := edgetest.ListenEach(t, "tcp4", func(c net.Conn) {
		r := bufio.NewReader(c)
		for n := 0; ; n++ {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			mu.Lock()
			got = append(got, q.Header.Get("traceparent"))
			first := len(got) == 2 // the kept connection ends without an answer
			mu.Unlock()
			if first {
				c.Close()
				close(closed)
				return
			}
			_, _ = io.WriteString(c, edgetest.Hello(0, ""))
		}
	})
	e, stop := traced(t, Settings{Endpoint: Endpoint(s.URL), Sample: 1}, "http://"+origin, "deny: []")
	e.Get("/a")
	if resp, _ := e.Get("/b"); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	<-closed
	stop()
	requests, attempts := s.Spans()
	if len(requests) != 2 || len(attempts) != 3 {
		t.Fatal(requests, attempts)
	}
	failed, again := collectortest.Attributes(attempts[1]), collectortest.Attributes(attempts[2])
	if failed["error.type"] != "connection" || failed["http.request.resend_count"] != "" || again["http.response.status_code"] != "200" || again["http.request.resend_count"] != "1" {
		t.Error(failed, again)
	}
	for i, a := range attempts {
		if want := fmt.Sprintf("00-%x-%x-01", a.TraceId, a.SpanId); got[i] != want {
			t.Errorf("the origin got %s, want %s", got[i], want)
		}
	}
}
