package tracing

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sluice/edge"
	"sluice/edge/message"
	"sluice/edge/proxy"
)

// A request is one that is traced.
type request struct {
	tracer   *Tracer
	head     *message.Head
	ctx      context.Context // with its span
	span     trace.Span
	method   string
	state    string
	attempts int
	attempt  trace.Span // at a server; nil: none is under way
	server   string     // whom it is at
	// unreachable is why the attempt has no connection; nil: it has one, or none was tried.
	unreachable error
}

func (t *Tracer) start(r *message.Request, parent trace.SpanContext, state string,
	now time.Time) *request {
	ctx := context.Background()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	q := &request{tracer: t, head: &r.Head, method: string(r.Method), state: state}
	name := q.method
	attributes := make([]attribute.KeyValue, 0, 8)
	if !known(q.method) {
		attributes = append(attributes, attribute.String("http.request.method_original",
			text(r.Method)))
		q.method, name = "_OTHER", "HTTP"
	}
	path, _, _ := bytes.Cut(r.Target, []byte("?"))
	if i := bytes.Index(path, []byte("://")); i > 0 && path[0] != '/' { // the absolute form
		if _, after, is := bytes.Cut(path[i+3:], []byte("/")); is {
			path = path[len(path)-len(after)-1:]
		} else {
			path = []byte("/")
		}
	}
	attributes = append(attributes, attribute.String("http.request.method", q.method),
		attribute.String("url.path", text(path)))
	attributes = appendServer(attributes, text(r.RawHost), 0)
	if _, version, is := bytes.Cut(r.Version, []byte("/")); is {
		attributes = append(attributes, attribute.String("network.protocol.version",
			string(bytes.TrimSuffix(version, []byte(".0")))))
	}
	q.ctx, q.span = t.tracer.Start(ctx, name, trace.WithTimestamp(now),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return q
}

// known reports whether a method is one of those that have a name in OpenTelemetry.
func known(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, http.MethodPatch:
		return true
	}
	return false
}

// Attempt begins a span for an attempt at a server. Connecting once more to the same one is part of
// it. The server goes on with the edge's trace alone: what the client said of another ends here.
func (q *request) Attempt(server string) {
	for _, name := range [...]string{"traceparent", "tracestate"} {
		q.head.OnlyFrom(false, []byte(name))
	}
	if q.attempt != nil {
		if q.server == server {
			return
		}
		q.Failed(q.unreachable)
	}
	q.server = server
	attributes := []attribute.KeyValue{attribute.String("http.request.method", q.method)}
	if scheme, at, is := strings.Cut(server, "://"); is {
		port := 80
		if scheme == "https" || scheme == "h2" {
			port = 443
		}
		attributes = appendServer(attributes, at, port)
	} else {
		attributes = append(attributes, attribute.String("server.address",
			strings.TrimPrefix(server, "unix:")), attribute.String("network.transport", "unix"))
	}
	if q.attempts > 0 {
		attributes = append(attributes, attribute.Int("http.request.resend_count", q.attempts))
	}
	name := q.method
	if name == "_OTHER" {
		name = "HTTP"
	}
	_, q.attempt = q.tracer.tracer.Start(q.ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attributes...))
	q.attempts++
}

// appendServer appends what host:port is, or a host without one; port: what it then is, 0: not
// known.
func appendServer(to []attribute.KeyValue, server string, port int) []attribute.KeyValue {
	host := strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if h, p, err := net.SplitHostPort(server); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err == nil {
			host, port = h, int(n)
		}
	}
	if host != "" {
		to = append(to, attribute.String("server.address", host))
	}
	if port > 0 {
		to = append(to, attribute.Int("server.port", port))
	}
	return to
}

// Unreachable notes that the attempt has no connection yet. It fails by that unless there is a
// further try at the same server.
func (q *request) Unreachable(err error) { q.unreachable = err }

// Failed ends the attempt without an answer.
func (q *request) Failed(err error) {
	kind := "connection"
	var timeout net.Error
	switch {
	case err == proxy.ErrGone:
		kind = "canceled"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		kind = "too_many_open_files" // here: the server was not asked
	case errors.As(err, &timeout) && timeout.Timeout():
		kind = "timeout"
	}
	q.attempt.SetAttributes(attribute.String("error.type", kind))
	q.attempt.SetStatus(codes.Error, text([]byte(err.Error())))
	q.attempt.End()
	q.attempt, q.unreachable = nil, nil
}

// Answered notes the status of the server's answer; the attempt goes on until the answer is relayed.
func (q *request) Answered(status int) {
	q.unreachable = nil
	q.attempt.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 400 {
		q.attempt.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		q.attempt.SetStatus(codes.Error, "")
	}
}

// AppendHead appends the lines by which the server goes on with the trace.
func (q *request) AppendHead(b []byte) []byte {
	if q.attempt == nil {
		return b
	}
	c := q.attempt.SpanContext()
	b = append(b, "\r\ntraceparent: 00-"...)
	b = append(b, c.TraceID().String()...)
	b = append(b, '-')
	b = append(b, c.SpanID().String()...)
	b = append(b, "-01"...)
	if q.state != "" {
		b = append(append(b, "\r\ntracestate: "...), q.state...)
	}
	return b
}

// Ended ends the request's spans.
func (q *request) Ended(o *edge.Outcome, failed bool) {
	now := time.Now()
	if q.unreachable != nil {
		q.Failed(q.unreachable)
	}
	if q.attempt != nil {
		q.attempt.End(trace.WithTimestamp(now))
		q.attempt = nil
	}
	scheme := "http"
	if o.Secure {
		scheme = "https"
	}
	attributes := []attribute.KeyValue{attribute.String("url.scheme", scheme),
		attribute.String("sluice.from", o.From), attribute.String("sluice.request_id", text(o.ID))}
	add := func(name, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	add("sluice.rule", text([]byte(o.Rule)))
	add("sluice.verdict", o.Verdict)
	if q.tracer.config.ClientAddress {
		add("client.address", address(o.Client))
	}
	if o.Status > 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", o.Status))
	}
	switch {
	case failed:
		add("error.type", "aborted")
		q.span.SetStatus(codes.Error, "the client did not get the answer")
	case o.Status >= 500:
		add("error.type", strconv.Itoa(o.Status))
		q.span.SetStatus(codes.Error, "")
	}
	q.span.SetAttributes(attributes...)
	q.span.End(trace.WithTimestamp(now))
}
