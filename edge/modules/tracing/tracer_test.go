package tracing

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"sluice/edge"
	"sluice/edge/message"
	"sluice/edge/proxy"
)

// nowhere takes spans, as an exporter; release, if not nil, is what it waits for.
type nowhere struct{ release chan struct{} }

func (n nowhere) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	if n.release == nil {
		return nil
	}
	select {
	case <-n.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
func (nowhere) Shutdown(context.Context) error { return nil }

// So many parents are followed in a second, whatever the order in which requests say when they came.
func TestFollows(t *testing.T) {
	tracer := newTracerTo(nowhere{}, &Settings{Parent: trusted}, "", "")
	begun := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		at   time.Duration
		n    int
		want int
	}{
		{0, 60, 60}, {900 * time.Millisecond, 60, 40}, {999 * time.Millisecond, 1, 0},
		{time.Second, 150, 100}, {950 * time.Millisecond, 10, 0}, {1999 * time.Millisecond, 10, 0}, // one that came before, and is late
		{5 * time.Second, 99, 99}, {4 * time.Second, 2, 1}, {5 * time.Second, 1, 0},
	} {
		got := 0
		for range step.n {
			if tracer.follows(begun.Add(step.at)) {
				got++
			}
		}
		if got != step.want {
			t.Errorf("after %v: %d of %d, want %d", step.at, got, step.n, step.want)
		}
	}
}

// head is a head of lines.
func head(lines ...string) *message.Head {
	h := new(message.Head)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Lines = append(h.Lines, message.Line{Name: []byte(name), Value: []byte(value)})
	}
	return h
}

// A parent is one line of the right form; its state may have several.
func TestParentOf(t *testing.T) {
	const parent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, test := range []struct {
		lines []string
		valid bool
		state string
	}{
		{[]string{parent, "tracestate: a=b", "Tracestate: c=d"}, true, "a=b,c=d"},
		{[]string{parent, "tracestate: =;"}, true, ""},
		{[]string{"tracestate: a=b"}, false, ""},
		{[]string{parent, parent}, false, ""},
		{[]string{"Traceparent: ", parent}, false, ""},
		{[]string{parent, "traceparent: "}, false, ""},
		{[]string{parent + "-more"}, false, ""},
	} {
		if got, state := parentOf(head(test.lines...)); got.IsValid() != test.valid || state != test.state {
			t.Errorf("%q: %v %q", test.lines, got, state)
		}
	}
}

// Where nobody sends them, or the collector holds them up, spans are dropped and counted, and nothing waits.
func TestQueueIsFull(t *testing.T) {
	const n, most = 3 * maxQueued, maxQueued + maxBatch
	release := make(chan struct{})
	tracer := newTracerTo(nowhere{release}, &Settings{Sample: 1}, "", "")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tracer.Run(ctx, func(string, ...any) {})
	}()
	r := &message.Request{Head: *head()}
	for range n {
		tracer.trace(r, false, time.Now()).Ended(&edge.Outcome{Status: 200}, false)
	}
	if dropped := tracer.dropped.Load(); dropped < n-most || dropped > n-maxQueued {
		t.Errorf("%d of %d are dropped, and %d may wait", dropped, n, most)
	}
	close(release)
	cancel()
	<-ended
	if sent, dropped, failed := tracer.sent.Load(), tracer.dropped.Load(), tracer.failed.Load(); sent+dropped+failed != n || failed > maxBatch {
		t.Errorf("%d are sent, %d dropped, %d failed, of %d", sent, dropped, failed, n)
	}
}

// What attempts at servers look like.
func TestAttempts(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, test := range []struct {
		name string
		do   func(*request)
		want []string
	}{
		{"answered", func(q *request) { q.Attempt("http://a:81"); q.Answered(200) }, []string{"a 81 200"}},
		{"an error of the server's", func(q *request) { q.Attempt("https://a"); q.Answered(503) }, []string{"a 443 error 503 503"}},
		{"over a socket", func(q *request) { q.Attempt("unix:/run/a"); q.Answered(200) }, []string{"/run/a 200"}},
		{"of IPv6", func(q *request) { q.Attempt("h2c://[2001:db8::1]:8080"); q.Answered(200) }, []string{"2001:db8::1 8080 200"}},
		{"being started again", func(q *request) {
			for range 3 {
				q.Attempt("http://a:81")
				q.Unreachable(refused)
			}
			q.Attempt("http://a:81")
			q.Answered(200)
		}, []string{"a 81 200"}},
		{"another server", func(q *request) {
			q.Attempt("http://a:81")
			q.Unreachable(refused)
			q.Attempt("http://b:82")
			q.Answered(200)
		}, []string{"a 81 error connection", "b 82 resend 1 200"}},
		{"away", func(q *request) { q.Attempt("http://a:81"); q.Unreachable(refused) }, []string{"a 81 error connection"}},
		{"out of descriptors", func(q *request) {
			q.Attempt("http://a:81")
			q.Unreachable(fmt.Errorf("a: %w", os.NewSyscallError("socket", syscall.EMFILE)))
		}, []string{"a 81 error too_many_open_files"}},
		{"too slow", func(q *request) { q.Attempt("http://a:81"); q.Failed(os.ErrDeadlineExceeded) }, []string{"a 81 error timeout"}},
		{"given up", func(q *request) { q.Attempt("http://a:81"); q.Failed(proxy.ErrGone) }, []string{"a 81 error canceled"}},
		{"sent again", func(q *request) {
			q.Attempt("http://a:81")
			q.Failed(errors.New("EOF"))
			q.Attempt("http://a:81")
			q.Answered(200)
		}, []string{"a 81 error connection", "a 81 resend 1 200"}},
	} {
		tracer := newTracerTo(nowhere{}, &Settings{Sample: 1}, "", "")
		q := tracer.trace(&message.Request{Head: *head(), Method: []byte("GET")}, false, time.Now())
		test.do(q)
		q.Ended(&edge.Outcome{Status: 200}, false)
		var got []string
		for len(tracer.queue) > 1 { // the last one is the request's
			values := make(map[string]string)
			for _, a := range (<-tracer.queue).Attributes() {
				values[string(a.Key)] = a.Value.Emit()
			}
			text := values["server.address"]
			for _, of := range [][2]string{{"", "server.port"}, {"resend ", "http.request.resend_count"}, {"error ", "error.type"}, {"", "http.response.status_code"}} {
				if v := values[of[1]]; v != "" {
					text += " " + of[0] + v
				}
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A span has the path alone, in whatever form the target is.
func TestPath(t *testing.T) {
	for target, want := range map[string]string{
		"/a?b=secret":                   "/a",
		"/to/http://b.example/c?d=e":    "/to/http://b.example/c",
		"http://a.example/b?c=http://d": "/b",
		"http://a.example":              "/",
		"*":                             "*",
	} {
		tracer := newTracerTo(nowhere{}, &Settings{Sample: 1}, "", "")
		tracer.trace(&message.Request{Head: *head(), Method: []byte("GET"), Target: []byte(target)}, false, time.Now()).Ended(&edge.Outcome{}, false)
		for _, a := range (<-tracer.queue).Attributes() {
			if a.Key == "url.path" && a.Value.AsString() != want {
				t.Errorf("%s: %s, want %s", target, a.Value.AsString(), want)
			}
		}
	}
}

// Whether spans and the token go over TLS is for the configuration alone to say, and what the collector answers does not fill the log.
func TestCollectorOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, r.Header.Get("Token"), strings.Repeat(" no", 1<<19))
	}))
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "token=t1")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://192.0.2.1:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
	tracer, err := newTracer(&Settings{Endpoint: Endpoint(s.URL), Sample: 1}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	tracer.trace(&message.Request{Head: *head(), Method: []byte("GET")}, false, time.Now()).Ended(&edge.Outcome{}, false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	said := ""
	tracer.Run(ctx, func(_ string, args ...any) { said = fmt.Sprint(args...) })
	if !strings.Contains(said, "body: t1 no no") || len(said) > 1200 {
		t.Errorf("%d bytes: %.200s", len(said), said)
	}
}

// Of a batch that a collector takes in part, what it has not taken has failed, and nothing of one that it only has something to say about.
func TestPartialSuccess(t *testing.T) {
	for said, want := range map[string][2]uint64{ // sent and failed, of three
		"":                                     {3, 0},
		"\x08\x02\x12\x03old":                  {1, 2},
		"\x08\x00\x12\x04slow":                 {3, 0},
		"\x08\x09":                             {0, 3},
		"\x08\x01\x12\x13(7 spans rejected)\n": {2, 1},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			fmt.Fprintf(w, "\x0a%c%s", len(said), said)
		}))
		tracer, err := newTracer(&Settings{Endpoint: Endpoint(s.URL), Sample: 1}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			tracer.trace(&message.Request{Head: *head(), Method: []byte("GET")}, false, time.Now()).Ended(&edge.Outcome{}, false)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		tracer.Run(ctx, func(string, ...any) {})
		if got := [2]uint64{tracer.sent.Load(), tracer.failed.Load()}; got != want {
			t.Errorf("%q: %d are sent and failed, want %d", said, got, want)
		}
		s.Close()
	}
}

// What is wrong with the environment is said as everything else is, and no token with it.
func TestWrongHeaders(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer s3cret,token=s3cr%zzet,s3 cret=1")
	var said []string
	takeFaults(func(message string, args ...any) { said = append(said, message+fmt.Sprint(args...)) })
	if _, err := newTracer(&Settings{Endpoint: "http://127.0.0.1:1", Sample: 1}, "", ""); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(said, "\n")
	if len(said) != 3 || strings.Contains(text, "s3") || strings.Contains(text, "%zz") || !strings.Contains(text, "parse headers") {
		t.Errorf("%d: %s", len(said), text)
	}
}
