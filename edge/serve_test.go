package edge_test

import (
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
	"sluice/edge/front"
	"sluice/edge/listen"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// Every request comes to fasthttp's handler, or to its handler of errors: what is no request as well, and what fasthttp
// refuses although it may be shown.
func TestEveryRequestHasAHandler(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_bytes: 4KiB}")
	var calls, errors atomic.Uint64
	server := e.HTTP()
	handler, refuse := server.Handler, server.ErrorHandler
	server.Handler = func(ctx *fasthttp.RequestCtx) { calls.Add(1); handler(ctx) }
	server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) { errors.Add(1); refuse(ctx, err) }
	requests := []struct {
		Text    string
		Answers string // "" is one that fasthttp refuses, with 400
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200"},
		{"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "200"},
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 200"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", "400"},
		{"SSH-2.0-OpenSSH\r\n\r\n", "400"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 5000) + "\r\n\r\n", "431"},
		{"GET /" + strings.Repeat("y", 5000), "414"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
		{"GET / HTTP/1.1\r\nHost: a%zz\r\n\r\n", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nTrailer: content-length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
	}
	refused, received := uint64(0), uint64(0)
	for _, r := range requests {
		c := e.Dial()
		_, _ = io.WriteString(c, r.Text)
		_ = c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		var got []string
		for _, answer := range strings.Split(string(all), "HTTP/1.1 ")[1:] {
			got = append(got, answer[:3])
		}
		want := strings.Fields(r.Answers)
		if r.Answers == "" {
			want = []string{"400"}
			refused++
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.60q: %s, want %s", r.Text, got, want)
		}
		received += uint64(len(want))
	}
	m := e.Rest()
	if errors.Load() != refused || calls.Load()+errors.Load() != received || m["sluice_received_total"] != float64(received) {
		t.Errorf("%d calls of the handler and %d of errors, want %d together and %d; %v received",
			calls.Load(), errors.Load(), received, refused, m["sluice_received_total"])
	}
}

// The time that an origin has to answer does not begin before another was found to be out of reach.
func TestTimeOfTheNextServer(t *testing.T) {
	s := edgetest.MemoryServer(t, nil, "")
	g := s.Upstreams().Of(nil)
	far, near := g.Servers[0], upstream.NewOrigin(&url.URL{Scheme: "http", Host: "127.0.0.1:10"})
	far.Idle = nil
	conn := &timed{Repeater: edgetest.Repeater{Text: []byte("HTTP/1.1 204 No Content\r\n\r\n")}}
	near.Idle = []*upstream.Link{{Conn: conn, Origin: near, Until: time.Now().Add(time.Hour)}}
	g.Servers = append(g.Servers, near)
	for range 2 { // the one out of reach is asked first by one of them
		on := front.New((&listen.Listener{Registry: s.Registry()}).Admit(&edgetest.Sender{})).(*front.HeadFilter)
		e := s.Begin(on)
		if r := e.In.Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), message.MaxLines); r != nil {
			t.Fatal(r)
		}
		conn.due = time.Time{}
		before := far.Attempts.Load()
		status := e.Forward(time.Hour) // so long it took to connect
		if far.Attempts.Load() > before && (status != 204 || !conn.due.After(time.Now())) {
			t.Errorf("%d, %v before it began", status, time.Since(conn.due))
		}
		e.Finish()
	}
	if far.Attempts.Load() == 0 {
		t.Fatal("the one out of reach was not asked")
	}
}

// timed is a connection that notes its deadline.
type timed struct {
	edgetest.Repeater
	due time.Time
}

func (c *timed) SetDeadline(due time.Time) error { c.due = due; return nil }
