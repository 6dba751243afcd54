package restart

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/lab/check"
)

// The kinds of clients together make the rate that was asked for, and each makes some of it.
func TestClientMixMakesItsRate(t *testing.T) {
	for _, mix := range []func(int, func() string) *clientMix{newClientMix, newStreamMix} {
		for _, rate := range []int{60, 200, 500, 2000} {
			sum := 0.0
			for _, h := range mix(rate, nil).kinds {
				clients := max(h.clients, 1)
				perSecond := float64(clients*h.ahead) / h.each.Seconds()
				if sum += perSecond; perSecond < 1 {
					t.Errorf("%d requests/s: %s makes %v", rate, h.name, perSecond)
				}
			}
			if math.Abs(sum-float64(rate)) > 0.01*float64(rate) {
				t.Errorf("%d requests/s: the kinds make %v", rate, sum)
			}
		}
	}
}

// A client counts what became of its requests by what its users would see: refused, reset, or no right answer.
func TestWhatBecameOfRequests(t *testing.T) {
	for _, test := range []struct {
		err                    error
		refused, reset, failed int
	}{
		{nil, 0, 0, 0},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 3, 0, 0},
		{errors.Join(errors.New("unexpected EOF"), syscall.EPIPE), 0, 3, 0},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), 0, 3, 0},
		{errors.New("GET /: 502"), 0, 0, 3},
	} {
		h := newClientMix(100, nil).kinds[0]
		h.note(3, time.Millisecond, test.err)
		h.note(1, time.Millisecond, errors.New("a later one"))
		if h.made != 4 || h.refused != test.refused || h.reset != test.reset || h.failed != test.failed+1 {
			t.Errorf("%v: %d made, %d refused, %d reset, %d failed", test.err, h.made, h.refused, h.reset, h.failed)
		}
		want := "a later one"
		if test.err != nil {
			want = test.err.Error()
		}
		if h.why != want {
			t.Errorf("%v: the first is %q", test.err, h.why)
		}
	}
}

// Clients of every kind have their answers from an origin that gives them, on connections that it closes as well; from one that gives others
// they have failures.
func TestClientsReadTheirAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		serve  http.HandlerFunc
		failed bool
	}{
		"right": {mixOrigin, false},
		"closing": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			mixOrigin(w, r)
		}, false},
		"another's": {func(w http.ResponseWriter, r *http.Request) { r.URL.Path += "1"; mixOrigin(w, r) }, true},
		"an error":  {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(test.serve)
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			defer s.Close()
			to := func() string { return strings.TrimPrefix(s.URL, "http://") }
			c, streams := newClientMix(100, to), newStreamMix(100, to)
			for _, h := range append(c.kinds, streams.kinds...) {
				v := &client{clientMix: c, clientKind: h}
				if h.shared != nil {
					v.over = h.shared[0]
					defer v.over.CloseIdleConnections()
				}
				for turn := range 4 { // the last of them is a POST
					v.send(turn, turn)
				}
				v.leave()
				if h.made != 4*h.ahead || (h.failed == h.made) != test.failed || h.failed > 0 != test.failed || h.refused+h.reset > 0 {
					t.Errorf("%s: %d made, %d failed, %d refused, %d reset: %s", h.name, h.made, h.failed, h.refused, h.reset, h.why)
				}
			}
		})
	}
}

// The promise is kept if every kind made requests, none came to grief, and at least half of the rate was made: less is another test.
func TestVerdict(t *testing.T) {
	const rate = 100
	for name, test := range map[string]struct {
		change func(*clientMix)
		kept   bool
	}{
		"all is well":        {func(*clientMix) {}, true},
		"one refused":        {func(c *clientMix) { c.kinds[0].refused = 1 }, false},
		"one reset":          {func(c *clientMix) { c.kinds[1].reset = 1 }, false},
		"one failed":         {func(c *clientMix) { c.kinds[2].failed, c.kinds[2].why = 1, "GET /: 502" }, false},
		"a kind was silent":  {func(c *clientMix) { c.kinds[3].made = 0 }, false},
		"too few were made":  {func(c *clientMix) { c.kinds[0].made -= rate/2*10 + 1 }, false},
		"just enough of all": {func(c *clientMix) { c.kinds[0].made -= rate / 2 * 10 }, true},
	} {
		c := newClientMix(rate, nil)
		for _, h := range c.kinds {
			h.made = 1
		}
		c.kinds[0].made = rate*10 - 3
		test.change(c)
		result := &check.Result{Kept: true}
		tell(result, "test", c, 10*time.Second)
		if result.Kept != test.kept {
			t.Errorf("%s: kept %t\n%s", name, result.Kept, strings.Join(result.Seen, "\n"))
		}
	}
}

// A balancer sends new connections to the edges that were ready, in turn; with none ready, it stays with those that were.
func TestBalancer(t *testing.T) {
	b := &balancer{}
	b.ready.Store(&[]string{"a", "b"})
	b.ask() // of no edges
	got := make(map[string]int)
	for range 10 {
		got[b.next()]++
	}
	if got["a"] != 5 || got["b"] != 5 {
		t.Errorf("%v", got)
	}
}
