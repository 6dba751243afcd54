package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestChecks(t *testing.T) {
	var status atomic.Int32
	var path atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path.Store(r.URL.Path)
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	o := NewOrigin(u)
	for i, step := range []struct {
		status int32
		down   bool
	}{{200, false}, {500, false}, {204, false}, {500, false}, {503, true}, {404, true}, {302, false}} {
		status.Store(step.status)
		if o.check(context.Background(), "/ok", func(*Origin, string) {}); o.Down.Load() != step.down {
			t.Errorf("step %d: down %t", i, !step.down)
		}
	}
	if path.Load() != "/ok" {
		t.Errorf("asked for %v", path.Load())
	}
}

// Names are dialled by the addresses known of them, one after another.
func TestAddressesOfAName(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	o := NewOrigin(&url.URL{Scheme: "http", Host: "name.invalid:" + port})
	if _, err := o.connect(time.Now().Add(time.Minute)); err == nil {
		t.Error("a name that does not exist was dialled")
	}
	o.learn([]netip.Addr{netip.MustParseAddr("127.0.0.99"), netip.MustParseAddr("::ffff:" + host)})
	for range 4 {
		nc, err := o.connect(time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	o.learn([]netip.Addr{netip.MustParseAddr("127.0.0.99")})
	o.ResolveAt.Store(5)
	if _, err := o.connect(time.Now().Add(time.Minute)); err == nil || o.ResolveAt.Load() != 0 {
		t.Errorf("%v; looked up again at %d", err, o.ResolveAt.Load())
	}
}

func TestResolve(t *testing.T) {
	o := NewOrigin(&url.URL{Scheme: "http", Host: "localhost:81"})
	o.resolve(context.Background())
	known := o.addrs.Load()
	if known == nil || len(*known) == 0 {
		t.Fatal("localhost was not found")
	}
	for _, a := range *known {
		if !netip.MustParseAddrPort(a).Addr().IsLoopback() || !strings.HasSuffix(a, ":81") {
			t.Errorf("localhost is %s", a)
		}
	}
	o.lookup = "no name"
	if o.resolve(context.Background()); o.addrs.Load() != known {
		t.Error("a lookup that failed took what was known away")
	}
}
