package replay

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/loadgen/trace"
)

func TestLoopbackAddresses(t *testing.T) {
	traffic := &trace.Trace{Sources: make([]trace.Source, 100_000)}
	got := Loopback.Addresses(traffic)
	seen := make(map[netip.Addr]bool)
	networks := make(map[byte]int)
	for i, a := range got {
		b := a.As4()
		if b[0] != 127 || b[1] == 0 || b[1] == 255 {
			t.Fatalf("source %d has %s", i, a)
		}
		if seen[a] {
			t.Fatalf("%s is given twice", a)
		}
		seen[a] = true
		networks[b[1]]++
	}
	for n := range 254 {
		if c := networks[byte(n+1)]; c < 350 || c > 440 {
			t.Errorf("127.%d.0.0/16 has %d of 100,000 sources: not spread", n+1, c)
		}
	}
	for i, a := range Loopback.Addresses(&trace.Trace{Sources: make([]trace.Source, 10)}) {
		if a != got[i] {
			t.Errorf("source %d: %s in a short trace, %s in a long one", i, a, got[i])
		}
	}
}

func TestForwardedAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	trace := &trace.Trace{Sources: []trace.Source{
		{Addr: addr("192.0.2.1")},
		{Addr: addr("198.51.100.7")}, {Addr: addr("198.51.100.7")}, // two days of a folded log
		{Addr: addr("2001:db8::1")},
		{Addr: addr("::ffff:192.0.2.9")},
		{}, // a host name, or a workload's source
		{Addr: addr("10.1.158.54").Prev()},
	}}
	got := Forwarded.Addresses(trace)
	for i, want := range map[int]string{0: "192.0.2.1", 4: "192.0.2.9", 6: "10.1.158.53"} {
		if got[i] != addr(want) {
			t.Errorf("source %d has %s, want %s", i, got[i], want)
		}
	}
	seen := make(map[netip.Addr]bool)
	for i, a := range got {
		if !a.Is4() || seen[a] {
			t.Errorf("source %d has %s: not IPv4, or given twice", i, a)
		}
		seen[a] = true
	}
}

func TestParseCarrier(t *testing.T) {
	for c := Loopback; c <= Proxy; c++ {
		if got, err := ParseCarrier(c.String()); err != nil || got != c {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if _, err := ParseCarrier("carrier pigeon"); err == nil || !strings.Contains(err.Error(), "xff") {
		t.Errorf("error %v does not tell the choices", err)
	}
}

func TestAppendRequest(t *testing.T) {
	f := func(q trace.Request, forwarded, want string) {
		t.Helper()
		var a netip.Addr
		if forwarded != "" {
			a = netip.MustParseAddr(forwarded)
		}
		if got := string(appendRequest(nil, &q, a)); got != strings.ReplaceAll(want, "|", "\r\n")+"\r\n\r\n" {
			t.Errorf("%+v: %q", q, got)
		}
	}
	f(trace.Request{Method: "GET", Host: "example.org:8080", Path: "/a?b=c"}, "", "GET /a?b=c HTTP/1.1|Host: example.org:8080")
	f(trace.Request{}, "192.0.2.1", "GET / HTTP/1.1|Host: sluice.test|X-Forwarded-For: 192.0.2.1")
	f(trace.Request{Method: "POST", Path: "/x y\x00"}, "", "POST /x%20y%00 HTTP/1.1|Host: sluice.test|Content-Length: 0")
	f(trace.Request{Method: "\x16\x03", Host: "a:b", Path: "\xff"}, "", "GET /%FF HTTP/1.1|Host: sluice.test")
	f(trace.Request{Method: "GET", Host: "evil\r\nX: y", Path: "http://h/p"}, "", "GET /p HTTP/1.1|Host: sluice.test")
	f(trace.Request{Method: "HEAD", Path: "http://h"}, "", "HEAD / HTTP/1.1|Host: sluice.test")
	f(trace.Request{Method: "OPTIONS", Path: "*"}, "", "OPTIONS /* HTTP/1.1|Host: sluice.test")
	f(trace.Request{Path: "/go?to=http://h/"}, "", "GET /go?to=http://h/ HTTP/1.1|Host: sluice.test")
}

func TestAppendProxy(t *testing.T) {
	got := appendProxy(nil, netip.MustParseAddr("192.0.2.1"), 0x1234, netip.MustParseAddrPort("127.0.0.1:80"))
	want := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\x7f\x00\x00\x01\x12\x34\x00\x50"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReplayCarriers(t *testing.T) {
	trace := script(0, 1, 2, 0, 1, 2)
	trace.Sources[1].Addr = netip.MustParseAddr("192.0.2.7")
	var mu sync.Mutex
	got := map[string]int{}
	count := func(name string) {
		mu.Lock()
		got[name]++
		mu.Unlock()
	}
	check := func(name string, out *Outcome) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]int{}
		for _, a := range out.Addresses {
			want[a.String()] = 2
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		got = map[string]int{}
	}

	edge := serve(t, func(w http.ResponseWriter, r *http.Request) { count(r.Header.Get("X-Forwarded-For")) })
	out := replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}, Carrier: Forwarded}, trace)
	check("xff", out)
	if out.Addresses[1] != trace.Sources[1].Addr {
		t.Errorf("xff: the source of %s is sent as %s", trace.Sources[1].Addr, out.Addresses[1])
	}

	edge = serveOn(t, proxied{listen(t)}, func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		count(host)
	})
	check("proxy", replay(t, Replay{PoPs: [][]netip.AddrPort{{edge}}, Carrier: Proxy}, trace))
}
