package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/socket"
	"sluice/loadgen/trace"
)

// script is a trace of GET requests: the i-th source of sources sends the i-th request at the i-th of a millisecond.
func script(sources ...int32) *trace.Trace {
	t := &trace.Trace{}
	for i, s := range sources {
		for int(s) >= len(t.Sources) {
			t.Sources = append(t.Sources, trace.Source{Name: fmt.Sprint(len(t.Sources))})
		}
		t.Requests = append(t.Requests, trace.Request{
			At: time.Duration(i) * time.Millisecond, Source: s, Method: "GET", Path: fmt.Sprint("/", i),
		})
	}
	return t
}

func replay(t *testing.T, r Replay, trace *trace.Trace) *Outcome {
	t.Helper()
	out, err := r.Run(t.Context(), trace)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Decisions) != len(trace.Requests) {
		t.Errorf("%d decisions for %d requests", len(out.Decisions), len(trace.Requests))
	}
	return out
}

func TestReplaySendsFromPeersOfTheirOwn(t *testing.T) {
	type seen struct{ peers, connections, requests map[string]int }
	var mu sync.Mutex
	edges := make([]netip.AddrPort, 3)
	got := make([]seen, 3)
	for i := range edges {
		got[i] = seen{map[string]int{}, map[string]int{}, map[string]int{}}
		edges[i] = serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			got[i].peers[host]++
			got[i].connections[r.RemoteAddr]++
			got[i].requests[r.URL.Path]++
			w.Header().Set("Sluice-Verdict", fmt.Sprintf("pass;at=%d;e=1", time.Now().UnixNano()))
		})
	}
	sources := make([]int32, 300)
	for i := range sources {
		sources[i] = int32(i * i % 7)
	}
	trace := script(sources...)
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{edges}, PerConnection: 10, Speed: 2}, trace)
	mu.Lock()
	defer mu.Unlock()

	requests, peers := map[string]int{}, map[string]int{}
	for i := range got {
		for p, n := range got[i].requests {
			requests[p] += n
		}
		for p, n := range got[i].peers {
			peers[p] += n
		}
		for c, n := range got[i].connections {
			if n > 10 {
				t.Errorf("connection %s carried %d requests, want at most 10", c, n)
			}
		}
		if len(got[i].connections) == 0 {
			t.Errorf("edge %d got no connection", i)
		}
	}
	wantPeers := map[string]int{}
	for i, q := range trace.Requests {
		wantPeers[out.Addresses[q.Source].String()]++
		if n := requests[q.Path]; n != 1 {
			t.Errorf("request %d came %d times", i, n)
		}
	}
	if diff := cmp.Diff(wantPeers, peers); diff != "" {
		t.Errorf("requests by peer (-want +got):\n%s", diff)
	}
	if out.Sent != 300 || out.Answered != 300 || out.Statuses[200] != 300 || out.ClientErrors() != 0 {
		t.Errorf("sent %d, answered %d, statuses %v, errors %v", out.Sent, out.Answered, out.Statuses, out.Errors)
	}
	if n := out.SendError.TotalCount(); n != 300 {
		t.Errorf("lateness of %d requests known, want 300", n)
	}
	edgesUsed := map[int16]int{}
	last := time.Duration(math.MinInt64)
	for _, d := range out.Decisions {
		edgesUsed[d.Edge]++
		if d.Verdict != judge.Admitted || d.Estimate != 1 {
			t.Fatalf("decision %+v", d)
		}
		if d.At < last {
			t.Fatalf("decisions are out of order: %v after %v", d.At, last)
		}
		last = d.At
	}
	for i := range got {
		n := 0
		for _, c := range got[i].peers {
			n += c
		}
		if edgesUsed[int16(i)] != n {
			t.Errorf("edge %d answered %d requests, %d are said to be its", i, n, edgesUsed[int16(i)])
		}
	}
	if last < 149*time.Millisecond {
		t.Errorf("the last of 300 requests, 1 ms apart at speed 2, was decided at %v", last)
	}
}

// What goes wrong if every answer were a decision: an origin's own 429, and an edge's 503, are judged as the limiter's.
func TestReplayJudgesOnlyDecisions(t *testing.T) {
	edge := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/0":
			w.Header().Set("Sluice-Verdict", fmt.Sprintf("pass;at=%d;e=1", time.Now().UnixNano()))
		case "/1":
			w.Header().Set("Sluice-Verdict", fmt.Sprintf("pass;at=%d;e=2", time.Now().UnixNano()))
			w.WriteHeader(429)
		case "/2":
			w.WriteHeader(429)
		case "/3":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(503)
		case "/4":
			w.Header().Set("Sluice-Verdict", fmt.Sprintf("pass;at=%d;e=1", time.Now().Add(-time.Minute).UnixNano()))
		}
	})
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}}, script(0, 0, 0, 0, 0))
	judged := map[judge.Verdict]int{}
	for _, d := range out.Decisions {
		judged[d.Verdict]++
	}
	if diff := cmp.Diff(map[judge.Verdict]int{judge.Admitted: 2, judge.Failed: 3}, judged); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if said := out.Judged(); len(said) != 2 || !strings.HasSuffix(said[0], "slack 1ms") || out.Decided.TotalCount() != 2 || !strings.Contains(said[1],
		"not 3 answers (decided before it was sent, or after it was answered: status 200: 1, no verdict of the limiter's: status 429: 1, no verdict of the limiter's: status 503: 1)") {
		t.Errorf("it says %q", said)
	}
}

// The handler answers nobody until all requests are there: a closed loop would wait for ever.
func TestReplayIsAnOpenLoop(t *testing.T) {
	const n = 20
	var mu sync.Mutex
	came, all := 0, make(chan struct{})
	edge := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if came++; came == n {
			close(all)
		}
		mu.Unlock()
		<-all
	})
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}}, script(make([]int32, n)...))
	if out.Connections != n || out.Statuses[200] != n {
		t.Errorf("%d connections, statuses %v, errors %v", out.Connections, out.Statuses, out.Errors)
	}
}

func TestReplayBoundsConnections(t *testing.T) {
	f := func(name string, r Replay, trace *trace.Trace, most int) {
		t.Helper()
		var now, peak atomic.Int32
		edge := serve(t, func(w http.ResponseWriter, r *http.Request) {
			n := now.Add(1)
			defer now.Add(-1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
		})
		r.PoPs = [][]netip.AddrPort{{edge}}
		r.Speed = 1000 // all at once
		out := replay(t, r, trace)
		if out.Statuses[200] != len(trace.Requests) {
			t.Errorf("%s: statuses %v, errors %v", name, out.Statuses, out.Errors)
		}
		if n := int(peak.Load()); n > most {
			t.Errorf("%s: %d requests under way at once, want at most %d", name, n, most)
		}
	}
	many := make([]int32, 200)
	for i := range many {
		many[i] = int32(i % 50)
	}
	f("in all", Replay{MaxConns: 4}, script(many...), 4)
	f("in all, used once", Replay{MaxConns: 4, PerConnection: 1}, script(many...), 4)
	f("per source", Replay{MaxPerSource: 3}, script(make([]int32, 100)...), 3)
	f("per source, used once", Replay{MaxPerSource: 3, PerConnection: 1}, script(make([]int32, 100)...), 3)
	f("shared", Replay{Carrier: Forwarded, MaxConns: 5}, script(many...), 5)
}

func TestReplaySendsAgainOnlyWhatItMay(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	f := func(name, method string, turns [][]string, answered, retried int, errs map[string]int) {
		t.Helper()
		trace := script(0, 0)
		trace.Requests[1].Method = method
		trace.Requests[1].At = 50 * time.Millisecond
		out := replay(t, Replay{PoPs: [][]netip.AddrPort{{scripted(t, turns...)}}}, trace)
		if out.Answered != answered || out.Retried != retried {
			t.Errorf("%s: %d answered, %d sent again; want %d, %d", name, out.Answered, out.Retried, answered, retried)
		}
		if diff := cmp.Diff(errs, out.Errors); diff != "" {
			t.Errorf("%s: errors (-want +got):\n%s", name, diff)
		}
		if out.Sent != 2 {
			t.Errorf("%s: %d sent, want 2", name, out.Sent)
		}
	}
	none := map[string]int{}
	f("GET, reused connection closed", "GET", [][]string{{ok, ""}, {ok}}, 2, 1, none)
	f("DELETE, reused connection closed", "DELETE", [][]string{{ok, ""}, {ok}}, 2, 1, none)
	f("POST, reused connection closed", "POST", [][]string{{ok, ""}, {ok}}, 1, 0, map[string]int{errClosedEarly.Error(): 1})
	f("the second connection too", "GET", [][]string{{ok, ""}, {""}}, 1, 1, map[string]int{errClosedEarly.Error(): 1})
	f("half an answer", "GET", [][]string{{ok, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}}, 1, 0,
		map[string]int{errCut.Error(): 1})
	f("garbage", "GET", [][]string{{ok, "220 smtp.example.org ESMTP\r\n"}}, 1, 0, map[string]int{answer.ErrMalformed.Error(): 1})
}

func TestReplayGoesRoundRefusingEdges(t *testing.T) {
	dead := listen(t)
	gone := dead.Addr().(*net.TCPAddr).AddrPort()
	dead.Close()
	alive := serve(t, func(http.ResponseWriter, *http.Request) {})

	sources := make([]int32, 40)
	for i := range sources {
		sources[i] = int32(i)
	}
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{gone, alive, gone}}}, script(sources...))
	if out.Statuses[200] != 40 || out.Rerouted == 0 {
		t.Errorf("one of three edges serves: statuses %v, errors %v, %d rerouted", out.Statuses, out.Errors, out.Rerouted)
	}
	out = replay(t, Replay{PoPs: [][]netip.AddrPort{{gone, gone}}}, script(sources...))
	if diff := cmp.Diff(map[string]int{socket.ErrRefused.Error(): 40}, out.Errors); diff != "" {
		t.Errorf("no edge serves (-want +got):\n%s", diff)
	}
	if out.ClientErrors() != 40 {
		t.Errorf("%d client errors, want 40", out.ClientErrors())
	}
}

// Behind a wall a connection that is refused, or closed before anything was read from it, is a refusal: no error, no reason to ask another edge, and none to leave
// this one out. One that was used before may have died of its age.
func TestReplayKnowsAWall(t *testing.T) {
	dead := listen(t)
	gone := dead.Addr().(*net.TCPAddr).AddrPort()
	dead.Close()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	f := func(name string, to netip.AddrPort, per int, want map[judge.Verdict]int, unread int) {
		t.Helper()
		trace := script(0, 0, 0)
		for i := range trace.Requests {
			trace.Requests[i].At = time.Duration(i) * 50 * time.Millisecond
		}
		out := replay(t, Replay{Walled: true, PerConnection: per, PoPs: [][]netip.AddrPort{{to, to}}}, trace)
		got := make(map[judge.Verdict]int)
		for _, d := range out.Decisions {
			got[d.Verdict]++
			if d.Since > d.At {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || out.Rerouted != 0 || out.ClientErrors() != 0 || out.Unread != unread {
			t.Errorf("%s: %s; %d rerouted, errors %v, %d unread, want %d", name, diff, out.Rerouted, out.Errors, out.Unread, unread)
		}
	}
	f("nobody listens", gone, 1, map[judge.Verdict]int{judge.Walled: 3}, 0)
	f("closed on the request", scripted(t, []string{""}), 1, map[judge.Verdict]int{judge.Shed: 3}, 3)
	f("answered once, then closed, and asked again", scripted(t, []string{ok, ""}, []string{ok, ok}), 3, map[judge.Verdict]int{judge.Failed: 3}, 0)
}

func TestReplayChoosesPoPsByAffinity(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{}
	pop := func(name string) []netip.AddrPort {
		return []netip.AddrPort{serve(t, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			got[name]++
			mu.Unlock()
		})}
	}
	trace := script(0, 1, 2, 0, 0)
	for i := range trace.Sources {
		trace.Sources[i].Addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	for _, c := range []Carrier{Loopback, Forwarded} {
		out := replay(t, Replay{
			PoPs:     [][]netip.AddrPort{pop("even"), pop("odd")},
			Affinity: func(a netip.Addr, _ time.Duration) int { return int(a.As4()[3] % 2) },
			Carrier:  c,
		}, trace)
		mu.Lock()
		if diff := cmp.Diff(map[string]int{"even": 4, "odd": 1}, got); diff != "" {
			t.Errorf("%s: requests by PoP (-want +got):\n%s", c, diff)
		}
		clear(got)
		mu.Unlock()
		for _, d := range out.Decisions {
			if want := int16(d.Source % 2); d.Edge != want {
				t.Errorf("%s: source %d was decided by edge %d, want %d", c, d.Source, d.Edge, want)
			}
		}
	}
}

// TestReplayFollowsRoutes: a source whose route changes meets the other PoP with its next request, though it has an idle connection
// to the first.
func TestReplayFollowsRoutes(t *testing.T) {
	edge := func() []netip.AddrPort {
		return []netip.AddrPort{serve(t, func(http.ResponseWriter, *http.Request) {})}
	}
	for _, c := range []Carrier{Loopback, Forwarded} {
		trace := script(0, 0, 0, 0)
		for i := range trace.Requests {
			trace.Requests[i].At = time.Duration(i) * 40 * time.Millisecond
		}
		asked := -1 // once at the start, and with each request
		out := replay(t, Replay{
			PoPs: [][]netip.AddrPort{edge(), edge()}, Carrier: c,
			Affinity: func(_ netip.Addr, at time.Duration) int {
				if asked >= 0 && at < trace.Requests[asked].At {
					t.Errorf("%s: request %d is routed at %v", c, asked, at)
				}
				if asked++; asked > 2 {
					return 1
				}
				return 0
			},
		}, trace)
		var got []int16
		for _, d := range out.Decisions {
			got = append(got, d.Edge)
		}
		if diff := cmp.Diff([]int16{0, 0, 1, 1}, got); diff != "" {
			t.Errorf("%s: edges (-want +got):\n%s", c, diff)
		}
	}
}

func TestReplayStops(t *testing.T) {
	trace := script(make([]int32, 3)...)
	trace.Requests[2].At = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	edge := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/1" {
			cancel()
		}
	})
	out, err := Replay{PoPs: [][]netip.AddrPort{{edge}}}.Run(ctx, trace)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if out.Sent != 2 || out.Answered != 2 {
		t.Errorf("%d sent, %d answered; want the 2 that were due", out.Sent, out.Answered)
	}
}

func TestReplayRefuses(t *testing.T) {
	f := func(r Replay, want string) {
		t.Helper()
		if _, err := r.Run(t.Context(), script(0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", r, err, want)
		}
	}
	edges := [][]netip.AddrPort{{netip.MustParseAddrPort("127.0.0.1:1")}}
	f(Replay{}, "no edge")
	f(Replay{PoPs: [][]netip.AddrPort{{}}}, "PoP 0")
	f(Replay{PoPs: [][]netip.AddrPort{{netip.MustParseAddrPort("[::1]:80")}}}, "[::1]:80")
	f(Replay{PoPs: edges, Speed: -1}, "speed -1")
	f(Replay{PoPs: edges, Speed: math.NaN()}, "speed NaN")
	f(Replay{PoPs: edges, PerConnection: -1}, "per connection")
	f(Replay{PoPs: edges, Walled: true, HTTP2: true}, "over HTTP/1.1 alone")
}

func TestDue(t *testing.T) {
	f := func(speed float64, at, want time.Duration) {
		t.Helper()
		r := Replay{Speed: speed}
		if got := r.due(at); got != want {
			t.Errorf("at speed %v, %v is due at %v, want %v", speed, at, got, want)
		}
	}
	f(1, 90*time.Second, 90*time.Second)
	f(60, time.Hour, time.Minute)
	f(0.5, time.Second, 2*time.Second)
	f(1, 100*24*time.Hour+1, 100*24*time.Hour+1)
}

func TestEdgeOfConnection(t *testing.T) {
	edges := make([]netip.AddrPort, 8)
	r := Replay{PoPs: [][]netip.AddrPort{edges}, Seed: 7}
	counts := make([]int, len(edges))
	for source := range int32(100) {
		for nth := range uint32(800) {
			counts[r.edgeOf(0, source, nth)]++
		}
	}
	for edge, n := range counts {
		if n < 9600 || n > 10400 { // 4 standard deviations
			t.Errorf("edge %d got %d of 80,000 connections", edge, n)
		}
	}
	other := Replay{PoPs: r.PoPs, Seed: 8}
	same := 0
	for nth := range uint32(800) {
		if r.edgeOf(0, 3, nth) == other.edgeOf(0, 3, nth) {
			same++
		}
	}
	if same > 200 {
		t.Errorf("two seeds agree on %d of 800 connections", same)
	}
}
