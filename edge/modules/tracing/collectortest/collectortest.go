// Package collectortest has a collector of OpenTelemetry for tests, which keeps the spans that it
// is sent (OTLP over HTTP, protobuf).
package collectortest

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector takes spans until the test ends.
type Collector struct {
	*httptest.Server
	t        testing.TB
	mu       sync.Mutex
	spans    []*otlp.Span
	resource []*common.KeyValue
}

// Start returns a collector at a free port.
func Start(t testing.TB) *Collector {
	c := &Collector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.Close)
	return c
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	var got collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &got)
	}
	if err != nil || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("a collector was sent %s %v %v", r.URL, r.Header, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range got.ResourceSpans {
		c.resource = of.Resource.Attributes
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans is what has come so far, by when they began: those for requests, and those for attempts at
// servers.
func (c *Collector) Spans() (requests, attempts []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Kind == otlp.Span_SPAN_KIND_SERVER {
			requests = append(requests, s)
		} else {
			attempts = append(attempts, s)
		}
	}
	first := func(a, b *otlp.Span) int {
		return cmp.Compare(a.StartTimeUnixNano,
			b.StartTimeUnixNano)
	}
	slices.SortFunc(requests, first)
	slices.SortFunc(attempts, first)
	return requests, attempts
}

// Resource is what the sender of the last spans says of itself.
func (c *Collector) Resource() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return values(c.resource)
}

// Attributes is what a span has, as text.
func Attributes(s *otlp.Span) map[string]string { return values(s.Attributes) }

func values(list []*common.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		}
	}
	return m
}
