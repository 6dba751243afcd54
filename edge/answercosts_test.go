package edge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/rules"
)

// pricedOrigin answers with the body that a test says, in parts of so many bytes each of which goes
// out by itself. Over HTTP/1.1 its length is said where parts are whole, and left out else.
func pricedOrigin(t *testing.T, two bool, bodies map[string]pricedBody) string {
	serve := func(w http.ResponseWriter, r *http.Request) {
		b := bodies[r.URL.Path]
		w.Header().Set("Content-Type", b.kind)
		if b.encoding != "" {
			w.Header().Set("Content-Encoding", b.encoding)
		}
		if b.status != 0 {
			w.WriteHeader(b.status)
		}
		for rest := b.text; rest != ""; {
			n := len(rest)
			if b.size > 0 {
				n = min(n, b.size)
			}
			_, _ = io.WriteString(w, rest[:n])
			rest = rest[n:]
			if b.size > 0 {
				w.(http.Flusher).Flush()
			}
		}
	}
	if !two {
		return edgetest.NetOrigin(t, serve)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(serve), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	return "h2c://" + ln.Addr().String()
}

type pricedBody struct {
	kind, encoding, text string
	status, size         int
	cost                 uint32
	result               string
}

// awaitSpent waits until a rule that counts by path has counted so much: until an answer is over,
// what was estimated is held.
func awaitSpent(t *testing.T, c *edge.Call, rule, path string, limit, want uint32) {
	t.Helper()
	free, left := uint32(0), limit
	for deadline := time.Now().Add(30 * time.Second); left != limit-want; {
		answers, _, err := c.Ask([]rules.Ask{{Rule: rule, Key: []string{path}, Cost: &free}}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if left = answers[0].Remaining; left != limit-want && time.Now().After(deadline) {
			t.Fatalf("%s: %d left of %d, want %d", path, left, limit, limit-want)
		}
	}
}

// What an answer says that it cost is counted, over every protocol on both sides, however the bytes
// come; what cannot be read costs what was estimated, and a metric says why.
func TestCostsInAnswers(t *testing.T) {
	const usage = `{"id":"x","choices":[{"message":{"content":"\"usage\":{\"total_tokens\":1}"}}],"usage":{"prompt_tokens":12,"total_tokens":812}}`
	stream := "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":77}}\n\ndata: [DONE]\n\n"
	bodies := map[string]pricedBody{
		"/whole":     {kind: "application/json", text: usage, cost: 812, result: "read"},
		"/bytes":     {kind: "application/json; charset=utf-8", text: usage, size: 1, cost: 812, result: "read"},
		"/problem":   {kind: "application/problem+json", status: 400, text: `{"title":"no"}`, cost: 1, result: "missing"},
		"/large":     {kind: "application/json", text: `{"a":"` + strings.Repeat("x", 300_000) + `",` + usage[1:], size: 40_000, cost: 812, result: "read"},
		"/stream":    {kind: "text/event-stream", text: stream, size: 5, cost: 77, result: "read"},
		"/lines":     {kind: "application/x-ndjson", text: "{\"a\":1}\n{\"usage\":{\"total_tokens\":3}}\n", cost: 3, result: "read"},
		"/none":      {kind: "application/json", text: `{}`, cost: 9, result: "missing"},
		"/malformed": {kind: "application/json", text: usage + usage, cost: 9, result: "malformed"},
		"/gzip":      {kind: "application/json", encoding: "gzip", text: "\x1f\x8b", cost: 9, result: "encoded"},
		"/identity":  {kind: "application/json", encoding: "identity", text: usage, cost: 812, result: "read"},
		"/html":      {kind: "text/html", text: usage, cost: 9, result: "other"},
		"/most":      {kind: "application/json", text: `{"usage":{"total_tokens":1e12}}`, cost: 1_000_000, result: "read"},
		"/least":     {kind: "application/json", text: `{"usage":{"total_tokens":-5}}`, cost: 1, result: "read"},
	}
	const limit = 2_000_000
	yaml := fmt.Sprintf("rules: [{name: r, key: path, limit: %d, window: 1h, cost: {json: usage.total_tokens, estimate: 9}}]\n", limit)
	for _, two := range []bool{false, true} {
		for _, client := range []int{1, 2} {
			t.Run(fmt.Sprintf("client HTTP/%d, origin of HTTP/2 %v", client, two), func(t *testing.T) {
				e := edgetest.Start(t, pricedOrigin(t, two, bodies), yaml)
				ask := func(path string) (*http.Response, string) { return e.Get(path) }
				if client == 2 {
					addr, tr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())), edgetest.OverHTTP2(t)
					ask = func(path string) (*http.Response, string) {
						return edgetest.Ask2(t, tr, "GET", "https://"+addr+path, nil)
					}
				}
				call, results := e.Server.NewCall(), make(map[string]float64)
				for path, b := range bodies {
					resp, text := ask(path)
					if text != b.text {
						t.Errorf("%s: the client got %d of %d bytes", path, len(text), len(b.text))
					}
					if policy := resp.Header.Get("RateLimit-Policy"); policy != fmt.Sprintf(`"r";q=%d;qu="tokens";w=3600`, limit) {
						t.Errorf("%s: %s", path, policy)
					}
					awaitSpent(t, call, "r", path, limit, b.cost)
					results[b.result]++
				}
				for result, want := range results {
					edgetest.Until(t, fmt.Sprintf("%v answers are %s", want, result), func() bool {
						return e.Metrics()["sluice_answer_costs_total{result="+result+"}"] == want
					})
				}
			})
		}
	}
}

// Several numbers are added up, streams are left alone where a rule says so, and each rule has what
// it asks for.
func TestCostsOfSeveralRules(t *testing.T) {
	bodies := map[string]pricedBody{
		"/a": {kind: "application/json", text: `{"usage":{"input_tokens":20,"output_tokens":5}}`},
		"/b": {kind: "text/event-stream", text: "data: {\"usage\":{\"input_tokens\":20}}\n\ndata: {\"usage\":{\"output_tokens\":5}}\n\n"},
	}
	e := edgetest.Start(t, pricedOrigin(t, false, bodies), `rules:
- {name: both, key: path, limit: 1000, cost: {json: [usage.input_tokens, usage.output_tokens]}}
- {name: out, key: path, limit: 1000, cost: {json: usage.output_tokens, sse: false}}
- {name: each, key: path, limit: 1000}
`)
	call := e.Server.NewCall()
	for path, want := range map[string]map[string]uint32{"/a": {"both": 25, "out": 5, "each": 1}, "/b": {"both": 25, "out": 1, "each": 1}} {
		e.Get(path)
		for rule, cost := range want {
			awaitSpent(t, call, rule, path, 1000, cost)
		}
	}
}

// A part of an answer is not held back until the next one is there, and of one that breaks off
// counts what it had said.
func TestCostsDelayNothing(t *testing.T) {
	goOn := make(chan struct{})
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := 1; n < 4; n++ {
			_, _ = fmt.Fprintf(w, "data: {\"n\":%d00}\n\n", n)
			w.(http.Flusher).Flush()
			if <-goOn; n == 2 && r.URL.Path == "/broken" {
				panic(http.ErrAbortHandler)
			}
		}
	})
	e := edgetest.Start(t, origin, "rules: [{name: r, key: path, limit: 1000, cost: {json: n, estimate: 7}}]\n")
	call := e.Server.NewCall()
	event := make([]byte, len("data: {\"n\":100}\n\n"))
	for path, cost := range map[string]uint32{"/whole": 300, "/broken": 200} {
		q, err := http.NewRequest("GET", "http://"+e.Addr+path, nil)
		edgetest.Must(t, err)
		tr := new(http.Transport)
		resp, err := tr.RoundTrip(q)
		edgetest.Must(t, err)
		for n := range cost / 100 {
			if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != fmt.Sprintf("data: {\"n\":%d00}\n\n", n+1) {
				t.Fatalf("%q, %v", event, err)
			}
			awaitSpent(t, call, "r", path, 1000, 7)
			goOn <- struct{}{}
		}
		if _, err := io.ReadAll(resp.Body); (err != nil) != (path == "/broken") {
			t.Errorf("%s ends with %v", path, err)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
		awaitSpent(t, call, "r", path, 1000, cost)
	}
}
