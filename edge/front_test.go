package edge_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/front"
	"sluice/edge/message"
)

var _, _ edge.Front = (*front.Exchange)(nil), (*edgetest.Exchange)(nil)

// handleAll has requests handled, one after the other, by an edge without a socket before an origin.
func handleAll(t *testing.T, yaml string, origin http.HandlerFunc, list ...*edgetest.Exchange) *edge.Server {
	t.Helper()
	s := before(t, yaml, origin)
	for _, e := range list {
		s.Handle(e)
	}
	return s
}

// before is an edge without a socket before an origin.
func before(t *testing.T, yaml string, origin http.HandlerFunc, change ...func(*edge.Options)) *edge.Server {
	t.Helper()
	behind := httptest.NewServer(origin)
	t.Cleanup(behind.Close)
	return edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['"+behind.URL+"'], upgrades: [echo]}]\n"+yaml), change...)
}

// A request that comes by another protocol is judged, gets its limit in headers, is passed on and counted as any other,
// and one that is over is refused.
func TestRequestWithoutASocket(t *testing.T) {
	var asked, logged []string
	first, over := edgetest.NewExchange("GET", "/x?y=1", "X-Mine: 1"), edgetest.NewExchange("GET", "/x")
	first.TLS = true
	s := before(t, "rules: [{name: r, limit: 1, window: 1h, mitigation_timeout: 1h}]", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Header.Get("X-Mine")+" "+r.Header.Get("X-Forwarded-For")+" "+
			r.Header.Get("X-Forwarded-Proto")+" "+r.Header.Get("Via"))
		w.Header().Set("Sluice-Verdict", "forged")
		_, _ = io.WriteString(w, "hello")
	}, observed(func(o *edge.Outcome) { logged = append(logged, o.Rule+" "+o.Verdict+" "+string(o.Version)) }))
	s.Handle(first)
	s.Handle(over)
	if first.Status != 200 || first.Own || !first.Whole || first.Text != "hello" || first.Line("X-RateLimit-Remaining") != "0" || first.Line("Sluice-Verdict") != "" {
		t.Errorf("admitted: %+v", first)
	}
	if over.Status != 429 || !over.Own || !over.Whole || !strings.Contains(over.Text, `"rate_limited"`) || over.Line("X-RateLimit-Limit") != "1" ||
		over.Line("Retry-After") == "" || over.Closed || time.Until(over.Until) < 59*time.Minute {
		t.Errorf("refused: %+v", over)
	}
	if want := "GET /x?y=1 a 1 192.0.2.1 https test sluice"; len(asked) != 1 || asked[0] != want {
		t.Errorf("the origin was asked %q, want %q", asked, want)
	}
	if len(logged) != 2 || logged[0] != "r pass HTTP/test" || logged[1] != "r limited HTTP/test" {
		t.Errorf("%q", logged)
	}
	if m := edgetest.Metrics(t, s); m["sluice_received_total"] != 2 || m["sluice_answers_total{code=200,from=origin}"] != 1 || m["sluice_answers_total{code=429,from=limit}"] != 1 {
		t.Errorf("%v", m)
	}
}

// What is no request is charged to its source, and ends the connection.
func TestMalformedWithoutASocket(t *testing.T) {
	var list []*edgetest.Exchange
	for range 2 {
		e := edgetest.NewExchange("GET", "/%zz")
		e.In.Refused = message.BadTarget
		list = append(list, e)
	}
	handleAll(t, "rules: [{name: r, limit: 1, window: 1h}]", nil, list...)
	for i, want := range []int{400, 429} {
		if e := list[i]; e.Status != want || !e.Closed {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

// A body goes on as it comes, with the trailers that were announced, and the answer's comes back with its own. Interim answers go before it.
func TestBodyWithoutASocket(t *testing.T) {
	e := edgetest.NewExchange("POST", "/", "Trailer: X-Sum").Body()
	e.In.TakesTrailers = true
	e.Say("one ")
	s := handleAll(t, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		first := make([]byte, 4)
		_, _ = io.ReadFull(r.Body, first) // the second part is sent when the first is here
		e.Say("two")
		e.Done("X-Sum: 7", "X-Other: 8")
		rest, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Back")
		_, _ = io.WriteString(w, string(first)+string(rest)+" "+r.Trailer.Get("X-Sum")+r.Trailer.Get("X-Other"))
		w.(http.Flusher).Flush()
		w.Header().Set("X-Back", "9")
	}, e)
	if e.Status != 200 || e.Text != "one two 7" || !e.Whole || e.Broken || e.Closed || len(e.After) != 1 || e.After[0] != "X-Back: 9" || len(e.Before) != 1 || e.Before[0] != 103 {
		t.Errorf("%+v", e)
	}
	if got, m := e.Got(), edgetest.Metrics(t, s); got != 7 || m["sluice_answers_total{code=200,from=origin}"] != 1 {
		t.Errorf("%d bytes of the body, %v", got, m)
	}
}

// A client that waits to be invited is, once the origin wants the body.
func TestInvitedWithoutASocket(t *testing.T) {
	e := edgetest.NewExchange("POST", "/").Body()
	e.In.ExpectContinue = true
	invited := false
	e.Invited = func() {
		invited = true
		e.Say("x")
		e.Done()
	}
	handleAll(t, "", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, e)
	if !invited || e.Status != 200 || e.Text != "x" {
		t.Errorf("%+v", e)
	}
}

// A client that goes ends the exchange with its origin, before the answer and in its midst, and is counted as aborted.
func TestClientGoneWithoutASocket(t *testing.T) {
	for _, begun := range []bool{false, true} {
		e, ended := edgetest.NewExchange("GET", "/"), make(chan struct{})
		s := handleAll(t, "", func(w http.ResponseWriter, r *http.Request) {
			if begun {
				_, _ = io.WriteString(w, "a part")
				w.(http.Flusher).Flush()
			}
			e.Leave()
			if begun {
				_, _ = io.WriteString(w, "another")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			close(ended)
		}, e)
		if e.Whole || e.Broken != (e.Status != 0) || edgetest.Metrics(t, s)["sluice_aborted_total"] != 1 {
			t.Errorf("begun %t: %+v, %v aborted", begun, e, edgetest.Metrics(t, s)["sluice_aborted_total"])
		}
		<-ended
	}
}

// An answer that switches protocols joins the client's connection and the origin's.
func TestTunnelWithoutASocket(t *testing.T) {
	near, far := net.Pipe()
	e := edgetest.NewExchange("GET", "/")
	e.In.Upgrade, e.Conn = []byte("echo"), near
	said := make(chan string, 1)
	go func() {
		_, _ = io.WriteString(far, "hello\n")
		line, _ := bufio.NewReader(far).ReadString('\n')
		said <- line
		_ = far.Close()
	}()
	s := handleAll(t, "", func(w http.ResponseWriter, r *http.Request) {
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		line, _ := both.ReadString('\n')
		_, _ = io.WriteString(c, line)
	}, e)
	if got, m := <-said, edgetest.Metrics(t, s); got != "hello\n" || e.Status != 101 || m["sluice_answers_total{code=101,from=origin}"] != 1 || m["sluice_tunnels"] != 0 {
		t.Errorf("%q, %+v, %v", got, e, m)
	}
}

// Only a request whose verdict may have to wait leaves the loop that reads its connection: one under a rule that has it wait, and not every request of
// an edge that has such a rule; nor one of somebody who is blocked whatever he asks for.
func TestStartWaitsForNobody(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.Parse(t, `
origins: [{servers: ["http://127.0.0.1:9"]}]
rules:
  - {name: slow, match: {path: /slow}, algorithm: leaky_bucket, limit: 60, window: 1m, burst: 5}
  - {name: little, match: {path: /little}, limit: 1, window: 1h}
  - {name: all, limit: 4, window: 1h, mitigation_timeout: 1h}`))
	for i, c := range []struct {
		path   string
		status int // 0: it is not answered at once
	}{{"/little", 0}, {"/little", 429}, {"/slow", 0}, {"/", 0}, {"/", 0}, {"/", 0}, {"/", 429}, {"/slow", 429}} {
		e := edgetest.NewExchange("GET", c.path)
		rest := s.Start(e)
		if e.Status != c.status || (rest == nil) != (c.status != 0) {
			t.Errorf("request %d, %s: answered %d, and left: %v", i, c.path, e.Status, rest != nil)
		}
	}
}
