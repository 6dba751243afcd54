package closedloop

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The server counts what arrives: connections are kept unless each request has its own, and handshakes are full ones unless the load
// keeps sessions. The first connections have no session to resume yet.
func TestLoadOverTLS(t *testing.T) {
	const conns = 4
	for _, c := range []struct {
		name           string
		fresh, resumed bool
	}{
		{"kept", false, false},
		{"a connection each", true, false},
		{"a connection each, sessions resumed", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests, full, resumed atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				io.WriteString(w, strings.Repeat("x", 100_000)) // more than a record
			}))
			s.TLS = &tls.Config{VerifyConnection: func(state tls.ConnectionState) error {
				if state.DidResume {
					resumed.Add(1)
				} else {
					full.Add(1)
				}
				return nil
			}}
			s.StartTLS()
			defer s.Close()
			config := &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}
			if c.resumed {
				config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			}
			marks := 0
			mark := func() { marks++ }
			out, err := Load{Edge: netip.MustParseAddrPort(s.Listener.Addr().String()), Conns: conns, Fresh: c.fresh, TLS: config,
				Warm: 50 * time.Millisecond, For: 300 * time.Millisecond, Begun: mark, Ended: mark}.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if out.Answers == 0 || out.Statuses[200] != out.Answers || out.Failed != 0 || int(out.Latency.TotalCount()) != out.Answers || marks != 2 || out.Took <= 0 {
				t.Errorf("%+v, %d marks", out, marks)
			}
			all, again := full.Load()+resumed.Load(), resumed.Load()
			switch {
			case !c.fresh && all != conns:
				t.Errorf("%d connections, want %d", all, conns)
			case c.fresh && all < requests.Load():
				t.Errorf("%d connections for %d requests, want one each", all, requests.Load())
			case !c.resumed && (again != 0 || out.Resumed != 0):
				t.Errorf("%d handshakes were resumed, and %d said to be; want none", again, out.Resumed)
			case c.resumed && (full.Load() > conns || out.Resumed == 0 || out.Answers-out.Resumed > conns):
				t.Errorf("%d full handshakes, %d of %d answers on resumed connections; want all but the first %d", full.Load(), out.Resumed, out.Answers, conns)
			}
		})
	}
}
