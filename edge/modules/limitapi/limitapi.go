// Package limitapi is the limiter over HTTP, for programs that want the counter without the proxy:
// a program names a rule and who is counted, and gets the answer whether he may go on.
//
//	request    POST /v1/limit, one ask or a list of them (asks.go)
//	decision   of each by itself, by edge.Call: the tables, bits and tier are those of requests that go through the edge
//	response   200, whether it is allowed or not: the call has succeeded, and what the program answers its own client is
//	           the program's. Other statuses say that nothing was decided (asks.go)
//
// What it decides is edge/limiter's, as everywhere: this package moves JSON.
package limitapi

import (
	"context"
	"crypto/tls"
	_ "embed"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goyaml "github.com/goccy/go-yaml"

	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/listen"
	"sluice/edge/metric"
)

// Bounds of what a program may send; listen.Programs bounds the connections. A call takes a
// goroutine and its body. An answer is written within answerTime of the request, in which a rule
// may wait for the tier (pop.wait).
const (
	maxBody    = 128 << 10
	maxHeaders = 16 << 10
	headTime   = 5 * time.Second
	bodyTime   = 10 * time.Second
	answerTime = 30 * time.Second
	idleTime   = 2 * time.Minute
	notice     = time.Second // in which a program that is answered learns that its connection ends
)

// A Service answers programs. It is safe for concurrent use.
type Service struct {
	edge    *edge.Server
	http    http.Server
	calls   sync.Pool // of *call
	leaving atomic.Bool

	programs listen.Programs

	mu sync.Mutex
	ln []net.Listener
}

// New makes the service of an edge. Programs must send the token, if there is one, as
// Authorization: Bearer TOKEN.
func New(e *edge.Server, c edge.Calls) *Service {
	s := &Service{edge: e}
	s.calls.New = func() any { return &call{decided: e.NewCall()} }
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/limit", s.limit)
	routes.HandleFunc("GET /v1/openapi.json", document())
	s.http = http.Server{
		Handler: s.guard(c.Token, routes), ReadHeaderTimeout: headTime, ReadTimeout: bodyTime,
		WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
		TLSConfig: c.TLS, TLSNextProto: make(map[string]func(*http.Server, *tls.Conn, http.Handler)), // a connection has one call at a time
	}
	return s
}

// guard lets programs through that have the token. Browsers are refused, whose pages could else
// count for anybody at an edge on the reader's own machine: each request of a page that may do harm
// has an Origin.
func (s *Service) guard(token *bearer.Token, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Cache-Control", "no-store")
		if r.Header.Get("Origin") != "" {
			fail(w, http.StatusForbidden, "forbidden",
				"browsers may not ask, because their pages could count for anybody: have a program ask")
			return
		}
		if !token.Has(w, r) {
			fail(w, http.StatusUnauthorized, "unauthorized",
				"this listener wants the token of limit_api.token_file: Authorization: Bearer TOKEN")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Serve accepts connections on ln until Drain. It blocks, and closes ln.
func (s *Service) Serve(ln net.Listener) error {
	s.mu.Lock()
	s.ln = append(s.ln, ln)
	s.mu.Unlock()
	ln = s.programs.Listener(ln)
	err := error(nil)
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(ln, "", "")
	} else {
		err = s.http.Serve(ln)
	}
	if s.leaving.Load() {
		return nil
	}
	return err
}

// Collect gives the metrics of its connections.
func (s *Service) Collect(to metric.Sink) {
	s.programs.Collect(to, "sluice_limit", "limit_api")
}

// Drain stops accepting, has programs connect elsewhere, and returns when every call in flight is
// answered, or ctx is done: what is open then is cut. Connections that are used meanwhile are
// closed by an answer, which loses no call.
func (s *Service) Drain(ctx context.Context) {
	s.leaving.Store(true)
	s.mu.Lock()
	for _, ln := range s.ln {
		_ = ln.Close() // another process may listen on the same socket
	}
	s.mu.Unlock()
	select {
	case <-time.After(notice):
	case <-ctx.Done():
	}
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// The service as a document (OpenAPI 3.1).
//
//go:embed openapi.yaml
var described []byte

func document() http.HandlerFunc {
	text, err := goyaml.YAMLToJSON(described)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // who asked has gone
	}
}

// isJSON reports whether a body says that it is JSON.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
