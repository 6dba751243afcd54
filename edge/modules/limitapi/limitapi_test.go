package limitapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goyaml "github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/edgetest"
)

const file = `
limit_api: {listen: "127.0.0.1:1"}
deny: [198.51.100.0/24]
allow: [203.0.113.7]
plans: {key: "header:X-Api-Key"}
rules:
- {name: api, limit: 10, window: 1m, match: {hosts: [asked.internal]}}
- {name: user, key: "header:X-User", limit: 3, window: 1h, mitigation_timeout: 2h}
- {name: pair, key: [source, "header:X-User"], limit: 5}
- {name: all, key: global, limit: 4}
- {name: wide, limit: 2, windows: [{limit: 3, window: 1h}], prefixes: [32, 24]}
- {name: shadowed, limit: 1, mode: shadow}
- {name: tagged, limit: 1, action: tag, tag: {header: X-Over, value: "1"}}
- {name: bucket, algorithm: token_bucket, limit: 60, burst: 2, mitigation_timeout: 0}
- {name: leaky, algorithm: leaky_bucket, limit: 60, burst: 5, mitigation_timeout: 0}
- {name: priced, limit: 10, cost: 4}
- {name: ranked, limit: 2, check: sync, algorithm: exact}
- {name: plan, key: "header:X-Api-Key", limit: 1, plans: {pro: 60}}
- {name: planned, limit: 1, match: {plans: [pro]}}
- {name: slots, limit: 1, concurrency: 3}
- {name: failed, limit: 1, count: {statuses: [401]}}
- {name: told, limit: 1, match: {descriptors: {domain: web, entries: [{key: user}]}}}
- {name: off, limit: 1, mode: off}
`

func newService(t *testing.T, token string) *Service {
	t.Helper()
	return New(edgetest.NewServer(t, edgetest.Parse(t, file, Module())),
		edge.Calls{Token: bearer.New(token), Log: slog.New(slog.DiscardHandler)})
}

// post sends a body as programs do, and returns the status and the answer without its line break.
func post(s *Service, body string, change ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest("POST", "/v1/limit", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

// What programs get, ask after ask, and that the document has all of it.
func TestAsks(t *testing.T) { synctest.Test(t, testAsks) }

func testAsks(t *testing.T) {
	s, answers := newService(t, ""), schema(t, "Answer")
	f := func(body, want string) {
		t.Helper()
		status, got := post(s, body)
		if status != 200 || got != want {
			t.Errorf("%s\n got %d %s\nwant %s", body, status, got, want)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(got))
		if err == nil {
			err = answers.Validate(value)
		}
		if err != nil {
			t.Error(err)
		}
	}
	// An address, by what it costs; who only asks counts nothing, and is told whether one more would pass.
	f(`{"rule":"api","key":"192.0.2.1"}`, `{"allowed":true,"rule":"api","verdict":"pass","limit":10,"window":60,"remaining":9,"reset":60}`)
	f(`{"rule":"api","key":["192.0.2.1"],"cost":9}`, `{"allowed":true,"rule":"api","verdict":"pass","limit":10,"window":60,"remaining":0,"reset":60}`)
	_, peek := post(s, `{"rule":"api","key":"192.0.2.1","cost":0}`)
	if !strings.HasPrefix(peek, `{"allowed":false,"rule":"api","verdict":"limited","limit":10,"window":60,"remaining":0,"reset":`) || !strings.Contains(peek, `"retry_after":`) {
		t.Error(peek)
	}
	f(`{"rule":"api","key":"::ffff:192.0.2.2","cost":0}`, `{"allowed":true,"rule":"api","verdict":"pass","limit":10,"window":60,"remaining":10,"reset":60}`)
	f(`{"rule":"api","key":"198.51.100.9"}`, `{"allowed":false,"rule":"api","verdict":"denied","limit":10,"window":60,"remaining":0,"reset":0}`)
	f(`{"rule":"api","key":"203.0.113.7","cost":1000000}`, `{"allowed":true,"rule":"api","verdict":"allowed","limit":10,"window":60,"remaining":10,"reset":0}`)

	// A key, which is blocked once it is over the limit, and then whatever it costs.
	f(`{"rule":"user","key":"alice","cost":3}`, `{"allowed":true,"rule":"user","verdict":"pass","limit":3,"window":3600,"remaining":0,"reset":3600}`)
	f(`{"rule":"user","key":"alice"}`, `{"allowed":false,"rule":"user","verdict":"limited","limit":3,"window":3600,"remaining":0,"reset":7200,"retry_after":7200}`)
	f(`{"rule":"user","key":"alice","cost":0}`, `{"allowed":false,"rule":"user","verdict":"mitigated","limit":3,"window":3600,"remaining":0,"reset":7200,"retry_after":7200}`)
	f(`{"rule":"user","key":"bob"}`, `{"allowed":true,"rule":"user","verdict":"pass","limit":3,"window":3600,"remaining":2,"reset":3600}`)
	f(`{"rule":"pair","key":["192.0.2.1","bob"],"cost":2}`, `{"allowed":true,"rule":"pair","verdict":"pass","limit":5,"window":60,"remaining":3,"reset":60}`)
	f(`{"rule":"pair","key":["192.0.2.2","bob"]}`, `{"allowed":true,"rule":"pair","verdict":"pass","limit":5,"window":60,"remaining":4,"reset":60}`)
	f(`{"rule":"all","cost":4}`, `{"allowed":true,"rule":"all","verdict":"pass","limit":4,"window":60,"remaining":0,"reset":60}`)
	// What costs more than the limit is never allowed, whatever the wait, and blocks nobody.
	f(`{"rule":"user","key":"carol"}`, `{"allowed":true,"rule":"user","verdict":"pass","limit":3,"window":3600,"remaining":2,"reset":3600}`)
	f(`{"rule":"user","key":"carol","cost":4}`, `{"allowed":false,"rule":"user","verdict":"limited","limit":3,"window":3600,"remaining":2,"reset":3600}`)
	f(`{"rule":"user","key":"carol","cost":2}`, `{"allowed":true,"rule":"user","verdict":"pass","limit":3,"window":3600,"remaining":0,"reset":3600}`)
	f(`{"rule":"wide","key":"192.0.2.77","cost":3}`, `{"allowed":false,"rule":"wide","verdict":"limited","limit":2,"window":60,"remaining":2,"reset":60}`)
	f(`{"rule":"user","key":"alice","cost":1000000}`, `{"allowed":false,"rule":"user","verdict":"mitigated","limit":3,"window":3600,"remaining":0,"reset":7200}`)
	f(`{"rule":"plan","key":"k"}`, `{"allowed":true,"rule":"plan","verdict":"pass","limit":1,"window":60,"remaining":0,"reset":60}`)

	// Rules that let go on what is over them, several limits, buckets, and what a rule says that a request costs.
	f(`{"rule":"shadowed","key":"192.0.2.1","cost":2}`, `{"allowed":true,"rule":"shadowed","verdict":"shadow","limit":1,"window":60,"remaining":0,"reset":60}`)
	f(`{"rule":"tagged","key":"192.0.2.1"}`, `{"allowed":true,"rule":"tagged","verdict":"pass","limit":1,"window":60,"remaining":0,"reset":60}`)
	f(`{"rule":"wide","key":"192.0.2.1","cost":2}`, `{"allowed":true,"rule":"wide","verdict":"pass","limit":2,"window":60,"remaining":0,"reset":60}`)
	f(`{"rule":"bucket","key":"192.0.2.1","cost":0}`, `{"allowed":true,"rule":"bucket","verdict":"pass","limit":2,"window":2,"remaining":2,"reset":2}`)
	f(`{"rule":"bucket","key":"192.0.2.1"}`, `{"allowed":true,"rule":"bucket","verdict":"pass","limit":2,"window":2,"remaining":1,"reset":2}`)
	f(`{"rule":"leaky","key":"192.0.2.1"}`, `{"allowed":true,"rule":"leaky","verdict":"pass","limit":6,"window":6,"remaining":5,"reset":6}`)
	if _, got := post(s, `{"rule":"leaky","key":"192.0.2.1"}`); !strings.Contains(got, `"delay":0.9`) && !strings.Contains(got, `"delay":1`) {
		t.Errorf("the second of a leaky bucket has no turn of its own: %s", got)
	}
	f(`{"rule":"priced","key":"192.0.2.1"}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":6,"reset":60}`)
	f(`{"rule":"priced","key":"192.0.2.1","cost":1}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":5,"reset":60}`)
	// An estimate, what is spent beyond it, and what is spent beyond the limit.
	f(`{"rule":"priced","key":"192.0.2.8","cost":3}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":7,"reset":60}`)
	f(`{"rule":"priced","key":"192.0.2.8","cost":5,"estimated":3}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":5,"reset":60}`)
	f(`{"rule":"priced","key":"192.0.2.8","cost":2,"estimated":3}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":5,"reset":60}`)
	f(`{"rule":"priced","key":"192.0.2.8","cost":90,"estimated":1}`, `{"allowed":false,"rule":"priced","verdict":"limited","limit":10,"window":60,"remaining":0,"reset":60,"retry_after":60}`)
	f(`{"rule":"priced","key":"192.0.2.8","cost":0}`, `{"allowed":false,"rule":"priced","verdict":"mitigated","limit":10,"window":60,"remaining":0,"reset":60,"retry_after":60}`)
	f(`{"rule":"priced","key":"192.0.2.9","cost":10}`, `{"allowed":true,"rule":"priced","verdict":"pass","limit":10,"window":60,"remaining":0,"reset":60}`)
	f(`{"rule":"ranked","key":"192.0.2.1"}`, `{"allowed":true,"rule":"ranked","verdict":"pass","limit":2,"window":60,"remaining":1,"reset":60}`)
}

// A list has an answer for each, in its order; what is no ask among them has nothing decided.
func TestLists(t *testing.T) {
	s := newService(t, "")
	if status, got := post(s, `{"asks":[{"rule":"all","cost":4},{"rule":"all"},{"rule":"user","key":"a"}]}`); status != 200 ||
		!strings.HasPrefix(got, `{"answers":[{"allowed":true,"rule":"all",`) || !strings.Contains(got, `{"allowed":false,"rule":"all"`) || !strings.Contains(got, `{"allowed":true,"rule":"user"`) {
		t.Errorf("%d %s", status, got)
	}
	if status, got := post(s, `{"asks":[{"rule":"user","key":"b","cost":3},{"rule":"user"}]}`); status != 422 || !strings.Contains(got, "asks[1]: key: rule user counts by header:X-User: want one value, and not 0") {
		t.Errorf("%d %s", status, got)
	}
	if _, got := post(s, `{"rule":"user","key":"b","cost":0}`); !strings.Contains(got, `"remaining":3`) {
		t.Errorf("the one before it was counted: %s", got)
	}
}

// What is wrong gets an answer that says what to do.
func TestWrongCalls(t *testing.T) {
	s := newService(t, "")
	for body, want := range map[string]string{
		``:                                    `400 bad_request the body is not {"rule": "NAME", "key": "WHO", "cost": 1} or {"asks": [...]}: EOF`,
		`{"rule":"api"} {}`:                   "400 bad_request the body goes on after its end: send one object",
		`{"rule":"api","who":"a"}`:            `400 bad_request the body is not {"rule": "NAME", "key": "WHO", "cost": 1} or {"asks": [...]}: json: unknown field "who"`,
		`{"key":"a"}`:                         "400 bad_request rule is missing: name the rule that decides",
		`{"rule":"api","asks":[]}`:            "400 bad_request asks is beside rule, key, cost or estimated: send one ask, or a list",
		`{"asks":[]}`:                         "400 bad_request asks is empty: send at least one",
		`{"rule":"user","key":"a","cost":-1}`: "400 bad_request cost: want a number from 0 to 1000000, not number -1",
		`{"asks":[` + strings.Repeat(`{"rule":"all"},`, MaxAsks) + `{"rule":"all"}]}`: "400 bad_request more than 100 asks in a call: send 100 at most",
		`{"rule":"all","key":[` + strings.Repeat(`"a",`, maxParts) + `"a"]}`:          "400 bad_request key: more than 64 texts: no rule has a key of so many parts",
		`{"rule":"` + strings.Repeat("a", maxBody) + `"}`:                             "413 too_large the body is larger than 131072 bytes: send fewer asks",
		`{"rule":"apt","key":"192.0.2.1"}`:                                            `404 no_rule rule "apt": there is no such rule: want one of api, user, pair, all, wide, shadowed, tagged, bucket, leaky, priced, ranked, plan, planned`,
		`{"rule":"off","key":"192.0.2.1"}`:                                            `404 no_rule rule "off": there is no such rule: want one of api, user, pair, all, wide, shadowed, tagged, bucket, leaky, priced, ranked, plan, planned`,
		`{"rule":"api","key":"alice"}`:                                                "422 bad_ask key: the value of source is no address",
		`{"rule":"api"}`:                                                              "422 bad_ask key: rule api counts by source: want one value, and not 0",
		`{"rule":"pair","key":"192.0.2.1"}`:                                           "422 bad_ask key: rule pair counts by source and header:X-User: want a list of 2 values, and not 1",
		`{"rule":"all","key":"a"}`:                                                    "422 bad_ask key: rule all counts by global: want no value, and not 1",
		`{"rule":"user","key":""}`:                                                    "422 bad_ask key: the value of header:x-user is empty",
		`{"rule":"user","key":"a","cost":1000001}`:                                    "422 bad_ask cost: 1000001 is out of range: want 0 to 1000000",
		`{"rule":"bucket","key":"192.0.2.1","cost":2}`:                                "422 bad_ask cost: rule bucket counts by algorithm: token_bucket, one at a time: want 0 or 1, or no cost",
		`{"rule":"ranked","key":"192.0.2.1","cost":0}`:                                "422 bad_ask cost: rule ranked has check: sync, which keeps one at a time: want 1, or no cost",
		`{"rule":"planned","key":"192.0.2.1"}`:                                        "422 bad_ask rule planned goes by the plan of header:x-api-key, which is no part of its key: ask a rule that counts by it",
		`{"rule":"slots","key":"192.0.2.1"}`:                                          "422 bad_ask rule slots has a concurrency, and nobody would say here when the request has ended: ask another",
		`{"rule":"failed","key":"192.0.2.1"}`:                                         "422 bad_ask rule failed counts by the status of an answer, and here is none: ask another",
		`{"rule":"told","key":"a"}`:                                                   "422 bad_ask rule told is about descriptors, which the rate limit service gets: ask another",
	} {
		status, got := post(s, body)
		if said := fmt.Sprint(status, " ", failure(t, got)); said != want {
			t.Errorf("%.80s\n got %s\nwant %s", body, said, want)
		}
	}
	if status, got := post(s, `{"rule":"all"}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); status != 415 {
		t.Errorf("a form: %d %s", status, got)
	}
	if status, got := post(s, `{"rule":"all"}`, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:8083") }); status != 403 {
		t.Errorf("a page: %d %s", status, got)
	}
}

func failure(t *testing.T, text string) string {
	t.Helper()
	var a struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return a.Error.Code + " " + a.Error.Message
}

// With a token nobody is answered who does not have it.
func TestToken(t *testing.T) {
	s := newService(t, "secret")
	for header, want := range map[string]int{"": 401, "Bearer secre": 401, "Bearer secret": 200} {
		if got, text := post(s, `{"rule":"all","cost":0}`, func(r *http.Request) { r.Header.Set("Authorization", header) }); got != want {
			t.Errorf("%q: %d %s", header, got, text)
		}
	}
}

// schema is one of the document's.
func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, err := goyaml.YAMLToJSON(described)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("doc.json", value); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("doc.json#/components/schemas/" + name)
}

// A drain answers what is under way, tells programs whose connections are used to connect anew, and loses no call.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "")
		ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		near, far := net.Pipe()
		ln.conns <- far
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}}
		ask := func() (closes bool) {
			t.Helper()
			resp, err := client.Post("http://edge/v1/limit", "application/json", strings.NewReader(`{"rule":"all","cost":0}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.Close
		}
		if ask() {
			t.Error("a connection ends with nothing under way")
		}
		drained := make(chan struct{})
		go func() { s.Drain(context.Background()); close(drained) }()
		time.Sleep(notice / 2)
		if !ask() {
			t.Error("a program is not told that its connection ends")
		}
		<-drained
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A body that does not come is waited for as long as bodyTime, and the answer says no more than that.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "")
		ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		near, far := net.Pipe()
		ln.conns <- far
		began := time.Now()
		if _, err := io.WriteString(near, "POST /v1/limit HTTP/1.1\r\nHost: edge\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(near)
		if waited := time.Since(began); waited < bodyTime || waited > bodyTime+time.Second {
			t.Errorf("it waits %v", waited)
		}
		if !strings.HasPrefix(string(text), "HTTP/1.1 408 ") || !strings.HasSuffix(string(text), `{"error":{"code":"timeout","message":"the body did not come within 10s"}}`+"\n") {
			t.Errorf("%s", text)
		}
		s.Drain(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener to which clients come by net.Pipe.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A list is counted without room being made for its values, whatever is in them.
func TestTooMany(t *testing.T) {
	for list, want := range map[string]bool{
		`[]`: false, `[1]`: false, `[1,2]`: false, `[1,2,3]`: true,
		`["a,b,c,d"]`: false, `["\\",","]`: false, `["a\",b,c,d"]`: false, `[[1,2,3],{"a":1,"b":2,"c":3}]`: false, `[{},{},{}]`: true,
	} {
		if got := tooMany([]byte(list), 2); got != want {
			t.Errorf("%s has more than two: %t, want %t", list, got, want)
		}
	}
}

// A body as long as may be with as many asks as have place in it takes no more memory than a few times its size.
func TestManyEmptyAsks(t *testing.T) {
	text := `{"asks":[{}` + strings.Repeat(",{}", maxBody/3-5) + `]}`
	var c call
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, _, err := c.read(strings.NewReader(text)); err == nil {
				b.Fatal("it is taken")
			}
		}
	})
	if got := r.AllocedBytesPerOp(); got > 4*maxBody {
		t.Errorf("%d bytes for a body of %d", got, len(text))
	}
}

// Of asks that are sent twice the latter count, and nothing of the former is in them.
func TestAsksSentTwice(t *testing.T) {
	var c call
	asks, _, err := c.read(strings.NewReader(`{"asks":[{"rule":"a","key":"x","cost":0}],"asks":[{"rule":"b"}]}`))
	if err != nil || len(asks) != 1 || asks[0].Rule != "b" || asks[0].Key != nil || asks[0].Cost != nil {
		t.Errorf("%+v, %v", asks, err)
	}
}
