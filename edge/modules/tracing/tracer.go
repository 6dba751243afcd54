package tracing

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sluice/edge/message"
	"sluice/edge/metric"
)

// maxFollowed is how many requests a second are traced because their parent is: a proxy may pass on
// what its clients say.
const maxFollowed = 100

// A Tracer traces requests. It is safe for concurrent use.
type Tracer struct {
	config   *Settings
	tracer   trace.Tracer
	exporter sdk.SpanExporter
	queue    chan sdk.ReadOnlySpan

	mu       sync.Mutex
	second   time.Time // when the one of followed began
	followed int

	sent, dropped, failed atomic.Uint64
}

const (
	maxQueued = 4096
	maxBatch  = 512
	// sendTime bounds sending a batch, and lastTime all that is sent when Run is to end.
	sendTime = 10 * time.Second
	lastTime = 2 * time.Second
	linger   = time.Second // the first span of a batch waits so long for others
)

// takeFaults has the process give failures within OpenTelemetry to warn, which must not block. Of what is
// wrong with its environment that says what and no value, which may be a token.
func takeFaults(warn func(message string, args ...any)) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		warn("fault in tracing", "error",
			text([]byte(err.Error())))
	}))
	otel.SetLogger(logr.New(errorsOnly(warn)))
}

// errorsOnly is a logger of OpenTelemetry's that has errors, and none of their values.
type errorsOnly func(message string, args ...any)

func (errorsOnly) Init(logr.RuntimeInfo)            {}
func (errorsOnly) Enabled(int) bool                 { return false }
func (errorsOnly) Info(int, string, ...any)         {}
func (e errorsOnly) WithValues(...any) logr.LogSink { return e }
func (e errorsOnly) WithName(string) logr.LogSink   { return e }
func (e errorsOnly) Error(err error, message string, _ ...any) {
	if escaped := url.EscapeError(""); errors.As(err, &escaped) { // it has a piece of the value
		err = errors.New("invalid URL escape")
	}
	e("fault in tracing: see OTEL_EXPORTER_OTLP_* in the environment", "what", message, "error",
		err)
}

// newTracer makes a tracer, with what an edge is called. Nothing is sent before Run.
func newTracer(c *Settings, edge, version string) (*Tracer, error) {
	u, err := url.Parse(string(c.Endpoint))
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(path, "/v1/traces") {
		path += "/v1/traces"
	}
	u.Path = path
	// All of the URL: with its host alone, OTEL_EXPORTER_OTLP_ENDPOINT or _INSECURE would say
	// whether there is TLS.
	exporter, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(sendTime))
	if err != nil {
		return nil, err
	}
	return newTracerTo(exporter, c, edge, version), nil
}

func newTracerTo(exporter sdk.SpanExporter, c *Settings, edge, version string) *Tracer {
	t := &Tracer{config: c, exporter: exporter, queue: make(chan sdk.ReadOnlySpan, maxQueued)}
	about := resource.NewSchemaless(attribute.String("service.name",
		cmp.Or(c.ServiceName, "sluice")),
		attribute.String("service.instance.id", text([]byte(edge))),
		attribute.String("service.version", version))
	t.tracer = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithSpanProcessor((*queue)(t)), sdk.WithResource(about)).Tracer("sluice")
	return t
}

// trace begins to trace a request that came at now, if it is drawn, or the trace of a peer that is
// believed goes on here; nil: it is not traced.
func (t *Tracer) trace(r *message.Request, believed bool, now time.Time) *request {
	drawn := t.config.Sample > 0 && rand.Float64() < float64(t.config.Sample)
	var parent trace.SpanContext
	var state string
	if believed && t.config.Parent == trusted && (drawn || isSampled(&r.Head)) {
		if parent, state = parentOf(&r.Head); !drawn && parent.IsSampled() {
			drawn = t.follows(now)
		}
	}
	if !drawn {
		return nil
	}
	return t.start(r, parent, state, now)
}

// follows reports whether a parent is followed now: at most maxFollowed are in a second.
func (t *Tracer) follows(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.second) >= time.Second {
		t.second, t.followed = now, 0
	}
	t.followed++
	return t.followed <= maxFollowed
}

// isSampled reports whether a traceparent may say that its request is sampled. It allocates
// nothing.
func isSampled(h *message.Head) bool {
	const last = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") - 1
	v := h.First("traceparent")
	return len(v) > last && strings.IndexByte("13579bdf", v[last]) >= 0
}

// parentOf reads traceparent and tracestate. More than one traceparent, or a malformed one, is
// none.
func parentOf(h *message.Head) (parent trace.SpanContext, state string) {
	carrier, found := propagation.MapCarrier{}, false
	for i := range h.Lines {
		l := &h.Lines[i]
		if l.Drop {
			continue
		}
		switch name := string(l.Name); {
		case strings.EqualFold(name, "traceparent"):
			if found {
				return trace.SpanContext{}, ""
			}
			carrier["traceparent"], found = string(l.Value), true
		case strings.EqualFold(name, "tracestate"):
			if carrier["tracestate"] != "" {
				carrier["tracestate"] += ","
			}
			carrier["tracestate"] += string(l.Value)
		}
	}
	parent = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		carrier))
	return parent, parent.TraceState().String()
}

// Run sends spans until ctx is done, and then for a short time what is left. warn is called with
// failures, the first of each outage.
func (t *Tracer) Run(ctx context.Context, warn func(message string, args ...any)) {
	batch, down := make([]sdk.ReadOnlySpan, 0, maxBatch), false
	send := func(ctx context.Context) {
		ctx, done := context.WithTimeout(ctx, sendTime)
		defer done()
		err := t.exporter.ExportSpans(ctx, batch)
		lost := uint64(lostOf(err, len(batch)))
		t.failed.Add(lost)
		t.sent.Add(uint64(len(batch)) - lost)
		if err != nil {
			if !down {
				what := "spans could not be sent: they are lost until the collector takes them again"
				if lost < uint64(len(batch)) {
					what = "the collector does not take all spans, or says something of them"
				}
				warn(what, "spans", len(batch), "lost", lost, "endpoint", string(t.config.Endpoint), "error", text([]byte(err.Error()))) // the collector's answer is part of it
			}
			down = true
		} else {
			down = false
		}
		clear(batch)
		batch = batch[:0]
	}
	wait := time.NewTimer(0)
	<-wait.C
	for ctx.Err() == nil {
		select {
		case s := <-t.queue:
			batch = append(batch, s)
			if len(batch) == 1 {
				wait.Reset(linger)
			}
			if len(batch) == maxBatch {
				wait.Stop()
				send(ctx)
			}
		case <-wait.C:
			if len(batch) > 0 {
				send(ctx)
			}
		case <-ctx.Done():
		}
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer done()
	for len(batch)+len(t.queue) > 0 {
		for len(batch) < maxBatch && len(t.queue) > 0 {
			batch = append(batch, <-t.queue)
		}
		send(last)
	}
	_ = t.exporter.Shutdown(last)
}

// partial is what a collector answers that has taken some spans of a batch, as the exporter writes
// it. Its own type is internal.
var partial = regexp.MustCompile(`OTLP partial success: (?s:.*) \((\d+) spans rejected\)`)

// lostOf is how many spans of a batch were not taken.
func lostOf(err error, batch int) int {
	if err == nil {
		return 0
	}
	if m := partial.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return min(n, batch)
		}
	}
	return batch
}

// Collect gives what became of spans.
func (t *Tracer) Collect(to metric.Sink) {
	const help = "Spans of traced requests, by what became of them: sent; dropped, because too many waited; failed, because the collector did not take them."
	to.Count(t.sent.Load(), "sluice_trace_spans_total", help, "result", "sent")
	to.Count(t.dropped.Load(), "sluice_trace_spans_total", help, "result", "dropped")
	to.Count(t.failed.Load(), "sluice_trace_spans_total", help, "result", "failed")
}

// A queue is the tracer as OpenTelemetry sees it, which gives it spans that have ended.
type queue Tracer

func (q *queue) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (q *queue) Shutdown(context.Context) error             { return nil }
func (q *queue) ForceFlush(context.Context) error           { return nil }

func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	select {
	case q.queue <- s:
	default:
		q.dropped.Add(1)
	}
}

// text is what another side sent as an attribute or the log can hold it: an attribute that is no
// UTF-8 would cost its whole batch.
func text(b []byte) string {
	const most = 1024
	if len(b) > most {
		b = b[:most]
	}
	return strings.ToValidUTF8(string(b), "\ufffd")
}

// address is a client's, or "".
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
