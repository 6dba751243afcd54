package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/upstream"
)

func groupOf(balance upstream.Balance, most int64, names ...string) *upstream.Group {
	g := &upstream.Group{Balance: balance, Most: most}
	for _, name := range names {
		g.Servers = append(g.Servers, upstream.NewOrigin(&url.URL{Scheme: "http", Host: name}))
	}
	return g
}

// Which server each of ten requests goes to, none of them ending, as failures come and time passes.
func TestPick(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	source := func(i int) counter.Source {
		return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32, 64)
	}
	picks := func(g *upstream.Group, now time.Time, n int) string {
		out := ""
		for i := range n {
			if o := g.Pick(source(i), now, nil); o != nil {
				out += o.Host
			} else {
				out += "-"
			}
		}
		return out
	}
	fail := func(o *upstream.Origin, n int) {
		for range n {
			o.Failing(start)
		}
	}

	g := groupOf(upstream.RoundRobin, 0, "a", "b", "c")
	fail(g.Servers[0], upstream.EjectAfter-1)
	if got := picks(g, start, 6); got != "bcabca" {
		t.Errorf("two failures: %s", got)
	}
	fail(g.Servers[0], 1)
	if got := picks(g, start, 4); strings.Contains(got, "a") {
		t.Errorf("three failures: %s", got)
	}
	if got := picks(g, start.Add(upstream.EjectTime), 3); strings.Count(got, "a") != 1 {
		t.Errorf("after its time: %s", got)
	}
	fail(g.Servers[0], 1)
	if got := picks(g, start, 4); strings.Contains(got, "a") {
		t.Errorf("failed again: %s", got)
	}
	g.Servers[0].Succeeded()
	if got := picks(g, start, 3); strings.Count(got, "a") != 1 {
		t.Errorf("back: %s", got)
	}
	for _, o := range g.Servers {
		o.Down.Store(true)
	}
	if got := picks(g, start, 6); len(strings.Trim(got, "-")) != 6 {
		t.Errorf("all down: %s", got)
	}

	g = groupOf(upstream.RoundRobin, 0, "a")
	fail(g.Servers[0], 10)
	if got := picks(g, start, 2); got != "aa" {
		t.Errorf("an only server: %s", got)
	}

	g = groupOf(upstream.LeastConnections, 2, "a", "b")
	g.Servers[0].Active.Store(1)
	if got := picks(g, start, 5); strings.Count(got, "a") != 1 || strings.Count(got, "b") != 2 || !strings.HasSuffix(got, "--") || got[0] != 'b' {
		t.Errorf("with room for two each: %s", got)
	}

	g = groupOf(upstream.BySource, 0, "a", "b", "c")
	first := picks(g, start, 200)
	if again := picks(g, start, 200); again != first {
		t.Error("a source did not stay")
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := strings.Count(first, name); n < 40 {
			t.Errorf("%s has %d of 200 sources", name, n)
		}
	}
	g.Servers[1].Down.Store(true)
	for i, name := range picks(g, start, 200) {
		if was := first[i]; was != 'b' && byte(name) != was || name == 'b' {
			t.Fatalf("source %d moved from %c to %c", i, was, name)
		}
	}
}

// A server that is gone fails nobody while there is another, and is soon left alone.
func TestDeadServer(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	o := startRecorder(t, hello)
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: ['http://%s', %q]}]", dead.Addr(), o.url()))
	for i := range 20 {
		request := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		if i%2 == 0 {
			request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
		}
		if resp, _ := e.talk().say(request); resp.StatusCode != 200 {
			t.Fatalf("request %d: %d", i, resp.StatusCode)
		}
	}
	if n := e.metrics()["sluice_origin_attempts_total{origin=http://"+dead.Addr().String()+"}"]; n != upstream.EjectAfter {
		t.Errorf("%v attempts at the dead server, want %d", n, upstream.EjectAfter)
	}
	e.rest()
}

// A server that has no room answers nobody else's requests late.
func TestOriginConcurrency(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	slow := netOrigin(t, func(w http.ResponseWriter, r *http.Request) { close(arrived); <-leave })
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: [%q], max_requests: 1, max_requests_per_source: 2}]", slow))
	first := e.talk()
	_, _ = io.WriteString(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	if resp, body := e.get("/"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, "origin_busy") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	close(leave)
	if resp, _ := first.hear("GET"); resp.StatusCode != 200 {
		t.Errorf("the first: %d", resp.StatusCode)
	}
	e.rest()
	if o := e.snap.Load().origins.All[0]; o.Active.Load() != 0 {
		t.Errorf("%d under way at rest", o.Active.Load())
	}
}

func TestChecks(t *testing.T) {
	var status atomic.Int32
	var path atomic.Value
	u, _ := url.Parse(netOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		path.Store(r.URL.Path)
		w.WriteHeader(int(status.Load()))
	}))
	o := upstream.NewOrigin(u)
	for i, step := range []struct {
		status int32
		down   bool
	}{{200, false}, {500, false}, {204, false}, {500, false}, {503, true}, {404, true}, {302, false}} {
		status.Store(step.status)
		if o.Check(context.Background(), "/ok", func(string, ...any) {}); o.Down.Load() != step.down {
			t.Errorf("step %d: down %t", i, !step.down)
		}
	}
	if path.Load() != "/ok" {
		t.Errorf("asked for %v", path.Load())
	}
}

// Names are dialled by the addresses known of them, one after another.
func TestAddressesOfAName(t *testing.T) {
	r := startRecorder(t, hello)
	host, port, _ := net.SplitHostPort(r.addr)
	o := upstream.NewOrigin(&url.URL{Scheme: "http", Host: "name.invalid:" + port})
	if _, err := o.Connect(time.Now().Add(time.Second)); err == nil {
		t.Error("a name that does not exist was dialled")
	}
	o.Learn([]netip.Addr{netip.MustParseAddr("127.0.0.99"), netip.MustParseAddr("::ffff:" + host)})
	for range 4 {
		nc, err := o.Connect(time.Now().Add(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	o.Learn([]netip.Addr{netip.MustParseAddr("127.0.0.99")})
	o.ResolveAt.Store(5)
	if _, err := o.Connect(time.Now().Add(time.Second)); err == nil || o.ResolveAt.Load() != 0 {
		t.Errorf("%v; looked up again at %d", err, o.ResolveAt.Load())
	}
}

// Watch checks the servers that are to be checked, one check of each at a time, and looks names up again.
func TestWatch(t *testing.T) {
	var status atomic.Int32
	asked := make(chan struct{})
	origin := netOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
		}
		w.WriteHeader(int(status.Load()))
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(origin, "http://"))
	e := startEdge(t, "", fmt.Sprintf("origins: [{servers: ['http://localhost:%s'], health: {active: /ok, interval: 100ms}}]", port))
	o := e.snap.Load().origins.All[0]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Watch(ctx) }()
	for _, step := range []struct {
		status int32
		down   bool
	}{{500, true}, {200, false}, {503, true}} {
		status.Store(step.status)
		for range upstream.ProbeFailures + 1 { // when the last comes, those before it have been judged
			<-asked
		}
		if o.Down.Load() != step.down {
			t.Errorf("after %d: down %t", step.status, !step.down)
		}
		if got := e.metrics()["sluice_origin_up{origin="+o.Name+"}"]; (got == 1) == step.down {
			t.Errorf("after %d: the metric says %v", step.status, got)
		}
	}
	cancel()
	<-ended
	if o.ResolveAt.Load() < time.Now().UnixNano() {
		t.Error("the name was not looked up")
	}
}

func TestResolve(t *testing.T) {
	o := upstream.NewOrigin(&url.URL{Scheme: "http", Host: "localhost:81"})
	o.Resolve(context.Background())
	known := o.Addrs.Load()
	if known == nil || len(*known) == 0 {
		t.Fatal("localhost was not found")
	}
	for _, a := range *known {
		if !netip.MustParseAddrPort(a).Addr().IsLoopback() || !strings.HasSuffix(a, ":81") {
			t.Errorf("localhost is %s", a)
		}
	}
	o.Lookup = "no name"
	if o.Resolve(context.Background()); o.Addrs.Load() != known {
		t.Error("a lookup that failed took what was known away")
	}
}
