package upstream_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/events"
)

// ejectAfter failures in a row take a server out of its group.
const ejectAfter = 3

// A server that is gone fails nobody while there is another, and is soon left alone.
func TestDeadServer(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	dead.Close()
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, "", fmt.Sprintf("origins: [{servers: ['http://%s', %q]}]", dead.Addr(), o.URL()))
	for i := range 20 {
		request := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		if i%2 == 0 {
			request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
		}
		if resp, _ := e.Talk().Say(request); resp.StatusCode != 200 {
			t.Fatalf("request %d: %d", i, resp.StatusCode)
		}
	}
	if n := e.Metrics()["sluice_origin_attempts_total{origin=http://"+dead.Addr().String()+"}"]; n != ejectAfter {
		t.Errorf("%v attempts at the dead server, want %d", n, ejectAfter)
	}
	e.Rest()
}

// Watch checks the servers that are to be checked, one check of each at a time, and looks names up again.
func TestWatch(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	asked := make(chan struct{})
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
		}
		w.WriteHeader(int(status.Load()))
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(origin, "http://"))
	e := edgetest.Serve(t, edgetest.NewServer(t, edgetest.Parse(t, fmt.Sprintf("origins: [{servers: ['http://localhost:%s'], health: {active: /ok, interval: 100ms}}]", port)), func(o *edge.Options) {
		o.Events = events.New(10, nil)
	}))
	o := e.Upstreams().All[0]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Watch(ctx) }()
	for _, step := range []struct {
		status int32
		down   bool
	}{{500, true}, {200, false}, {503, true}} {
		status.Store(step.status)
		for range 3 { // two failures are enough: when the last comes, those before it have been judged
			<-asked
		}
		if o.Down.Load() != step.down {
			t.Errorf("after %d: down %t", step.status, !step.down)
		}
		if got := e.Metrics()["sluice_origin_up{origin="+o.Name+"}"]; (got == 1) == step.down {
			t.Errorf("after %d: the metric says %v", step.status, got)
		}
	}
	cancel()
	<-ended
	var reported []string
	for _, ev := range slices.Backward(e.Events().Since(0)) {
		reported = append(reported, fmt.Sprint(ev.Kind, " ", ev.Level, " ", ev.Text, " ", ev.Old, " ", ev.New))
	}
	if want := []string{"origin WARN origin " + o.Name + " fails its checks (status 500): it gets no requests while others do not up down", "origin INFO origin " + o.Name + " is back down up",
		"origin WARN origin " + o.Name + " fails its checks (status 503): it gets no requests while others do not up down"}; !slices.Equal(reported, want) {
		t.Errorf("operators get %q, want %q", reported, want)
	}
	if o.ResolveAt.Load() < time.Now().UnixNano() {
		t.Error("the name was not looked up")
	}
}
