package peers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/pop/across"
)

var key = across.KeyOf([]byte("peers share this secret"))

type imposed struct {
	from  string
	block across.Block
}

// listen is an edge of ams1, and what it has been told.
func listen(t *testing.T) (address string, received chan imposed) {
	t.Helper()
	received = make(chan imposed, 10)
	p := New(&config.PoP{Name: "ams1", Peers: []config.Peer{{Name: "fra1", Edges: []string{"x:1"}}}}, []across.Key{key}, nil)
	p.AddPeerBlock = func(from string, b across.Block, _, _ time.Time) across.Outcome {
		received <- imposed{from, b}
		return across.Imposed
	}
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = p.Server(slog.New(slog.DiscardHandler))
	ts.Start()
	t.Cleanup(ts.Close)
	return ts.Listener.Addr().String(), received
}

// dead is an address where nobody listens.
func dead(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func block(source string) across.Block {
	now := time.Now()
	return across.Block{Rule: "login", Counts: "login source enforce", Source: counter.SourceOf(netip.MustParseAddr(source), 32, 64),
		Start: now, End: now.Add(time.Hour), Limit: 5, Window: time.Minute}
}

// send runs a fra1 that has a peer with these edges, until the test ends.
func send(t *testing.T, happened *events.Log, edges ...string) *Peers {
	t.Helper()
	p := New(&config.PoP{Name: "fra1", Peers: []config.Peer{{Name: "ams1", Edges: edges}}}, []across.Key{key}, happened)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Send(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p
}

func receive(t *testing.T, received chan imposed) imposed {
	t.Helper()
	select {
	case got := <-received:
		return got
	case <-time.After(time.Minute):
		t.Fatal("nothing has come")
		panic("")
	}
}

// Where an edge of a peer is down, or will not have it, the next is told; each block once, and all together.
func TestNextEdge(t *testing.T) {
	var asked []string
	unwilling := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect) // which is not followed
	}))
	defer unwilling.Close()
	address, received := listen(t)
	p := send(t, nil, dead(t), strings.TrimPrefix(unwilling.URL, "http://"), address)
	for _, source := range []string{"192.0.2.1", "192.0.2.2"} {
		p.Announce(block(source))
	}
	for _, source := range []string{"192.0.2.1", "192.0.2.2"} {
		if got := receive(t, received); got.from != "fra1" || got.block.Source.String() != source || got.block.Rule != "login" || got.block.Window != time.Minute {
			t.Errorf("%+v", got)
		}
	}
	p.Announce(block("2001:db8::1")) // to the one that took the others
	if got := receive(t, received); got.block.Source.String() != "2001:db8::/64" {
		t.Errorf("%+v", got)
	}
	if len(asked) > 1 {
		t.Errorf("who would not have it was asked again: %v", asked)
	}
}

// No edge of a peer takes anything: an operator is told once, and what waits comes when one does.
func TestAwayAndBack(t *testing.T) {
	reply := make(chan events.Event, 10)
	happened := events.New(10, func(e events.Event) { reply <- e })
	address := dead(t)
	p := send(t, happened, address)
	p.Announce(block("192.0.2.1"))
	if e := <-reply; e.Kind != events.Peer || e.Level != slog.LevelWarn || !strings.HasPrefix(e.Text, "no edge of PoP ams1 accepts blocks") {
		t.Errorf("%+v", e)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan imposed, 1)
	there := New(&config.PoP{Name: "ams1", Peers: []config.Peer{{Name: "fra1"}}}, []across.Key{key}, nil)
	there.AddPeerBlock = func(from string, b across.Block, _, _ time.Time) across.Outcome {
		received <- imposed{from, b}
		return across.Imposed
	}
	server := there.Server(slog.New(slog.DiscardHandler))
	go server.Serve(l)
	defer server.Close()
	receive(t, received)
	if e := <-reply; e.Kind != events.Peer || e.Text != "PoP ams1 receives blocks again" {
		t.Errorf("%+v", e)
	}
}

// An edge whose clock was ahead, and is right again, is believed at once, as it is after a small step back.
func TestTheClockStepsBack(t *testing.T) {
	in := across.NewInbox("ams1", []string{"fra1"})
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var by sender
	for i, step := range []struct {
		there, here time.Duration
		want        error
	}{
		{0, 0, nil},
		{time.Second, time.Second, nil},
		{time.Hour, 2 * time.Second, across.ErrClock},
		{3 * time.Second, 3 * time.Second, nil},
		{2 * time.Second, 4 * time.Second, nil},
		{2 * time.Second, 4 * time.Second, nil}, // a clock of coarse steps
		{5 * time.Second, 5 * time.Second, nil},
	} {
		id, made := by.stamp(noon.Add(step.there))
		body, mac := key.Seal(&across.Message{From: "fra1", To: "ams1", Edge: id, At: made})
		if _, _, err := in.Take([]across.Key{key}, body, mac, noon.Add(step.here)); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
}

// virtual runs a fra1 that has the peer ams1, in virtual time and without a network.
func virtual(t *testing.T) (fra, ams *Peers, reply chan events.Event, received chan imposed) {
	t.Helper()
	reply, received = make(chan events.Event, 100), make(chan imposed, 100)
	happened := events.New(100, func(e events.Event) { reply <- e })
	fra = New(&config.PoP{Name: "fra1", Peers: []config.Peer{{Name: "ams1", Edges: []string{"a:1", "b:1"}}}}, []across.Key{key}, happened)
	ams = New(&config.PoP{Name: "ams1", Peers: []config.Peer{{Name: "fra1", Edges: []string{"c:1"}}}}, []across.Key{key}, nil)
	ams.AddPeerBlock = func(from string, b across.Block, _, _ time.Time) across.Outcome {
		received <- imposed{from, b}
		return across.Imposed
	}
	handler := ams.Server(slog.New(slog.DiscardHandler)).Handler
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fra.send(ctx, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Result(), nil
		})}, fra.list[0])
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return fra, ams, reply, received
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// shown is a number that Prometheus is shown; "": it is not shown.
func shown(t *testing.T, p *Peers, name string) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metric.Collector(p.Collect))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if v, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Where there is nothing to tell, a peer that does not take messages is known all the same, and so is one that does again.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fra, ams, reply, received := virtual(t)
		receive := func(secret string) string {
			return shown(t, ams, `sluice_peer_messages_received_total{peer="fra1",secret="`+secret+`"}`)
		}
		check := func(what, up, first, other string, want ...string) {
			t.Helper()
			time.Sleep(checkEvery)
			synctest.Wait()
			var texts []string
			for len(reply) > 0 {
				texts = append(texts, regexp.MustCompile(`[ab]:1 answers`).ReplaceAllString((<-reply).Text, "EDGE answers"))
			}
			if v := shown(t, fra, `sluice_peer_up{peer="ams1"}`); v != up || receive("first") != first || receive("other") != other || !slices.Equal(texts, want) {
				t.Errorf("%s: up %q, heard %s and %s, want %q, %s and %s; %q", what, v, receive("first"), receive("other"), up, first, other, texts)
			}
		}
		check("at rest", "1", "1", "0")
		check("at rest", "1", "2", "0")
		ams.SetKeys([]across.Key{across.KeyOf([]byte("another secret, of others"))})
		check("another secret", "0", "2", "0", "no edge of PoP ams1 accepts blocks: sources that are blocked here are not blocked there: "+
			"EDGE answers 403 Forbidden the signature is wrong: the first line of the sender's peers_secret_file is not in the one here")
		check("another secret still", "0", "2", "0")
		ams.SetKeys([]across.Key{across.KeyOf([]byte("another secret, of others")), key})
		check("both secrets", "1", "2", "1", "PoP ams1 receives blocks again")
		fra.Turn(false)
		check("off", "", "2", "1")
		if len(received) > 0 {
			t.Error("a block came of nothing")
		}
		fra.Turn(true)
		ams.Turn(false)
		check("off there", "0", "2", "1", "no edge of PoP ams1 accepts blocks: sources that are blocked here are not blocked there: EDGE answers 403 Forbidden pop.peers_mode is off here")
		fra.Announce(block("192.0.2.1")) // it waits
		time.Sleep(time.Second)
		ams.Turn(true)
		check("back", "1", "2", "3", "PoP ams1 receives blocks again")
		if len(received) != 1 {
			t.Errorf("%d blocks came", len(received))
		}
	})
}

// A secret changes at one PoP after the other, and no message is refused: the new one is believed everywhere before anybody signs with it.
func TestSecretChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fra, ams, reply, received := virtual(t)
		before, after := key, across.KeyOf([]byte("the secret of this year"))
		n := 0
		for _, keys := range [][]across.Key{{before, after}, {after, before}, {after}} {
			for _, p := range []*Peers{fra, ams} {
				if !p.SetKeys(keys) || p.SetKeys(slices.Clone(keys)) {
					t.Error("it does not tell what is another key")
				}
				fra.Announce(block("192.0.2.1"))
				n++
				time.Sleep(time.Second)
				if synctest.Wait(); len(received) != n {
					t.Fatalf("%d blocks came of %d", len(received), n)
				}
			}
		}
		if len(reply) > 0 || ams.inbox.Refused()["signature"] > 0 {
			t.Errorf("%v, %v", ams.inbox.Refused(), reply)
		}
	})
}

// A block of a newer version is told as such, and the next one counts.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fra, ams, _, received := virtual(t)
		digest := block("192.0.2.1")
		digest.Source = counter.SourceOfDigest([16]byte{1}) // no PoP sends one
		fra.Announce(digest)
		fra.Announce(across.Block{End: digest.End}) // reads as nobody
		fra.Announce(block("192.0.2.1"))
		time.Sleep(time.Second)
		synctest.Wait()
		if v := shown(t, ams, `sluice_peer_blocks_received_total{peer="fra1",result="unreadable"}`); v != "2" || len(received) != 1 {
			t.Errorf("%s are unreadable, %d were read", v, len(received))
		}
	})
}

// What is no message is refused, however it is sent.
func TestListener(t *testing.T) {
	address, received := listen(t)
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/blocks", "{}", 403},
		{"POST", "/v1/blocks", strings.Repeat("x", across.MaxBytes+1), 413},
		{"GET", "/v1/blocks", "", 405},
		{"POST", "/v1/rules", "{}", 404},
		{"GET", "/metrics", "", 404},
	} {
		req, _ := http.NewRequest(test.method, "http://"+address+test.path, strings.NewReader(test.body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status {
			t.Errorf("%s %s: %d, want %d", test.method, test.path, resp.StatusCode, test.status)
		}
	}
	if len(received) > 0 {
		t.Error("it was believed")
	}
}

// Strangers who are slow to send what they announce keep no peer out: of those the first to come has to go.
func TestSlowStrangersMakeRoom(t *testing.T) {
	address, received := listen(t)
	var slow []net.Conn
	for range readersAtOnce {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "POST /v1/blocks HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 100 { // it is read now
			t.Fatal(resp, err)
		}
		slow = append(slow, c)
	}
	body, mac := key.Seal(&across.Message{From: "fra1", To: "ams1", Edge: "e", At: time.Now(), Blocks: []across.Block{block("192.0.2.1")}})
	req, _ := http.NewRequest("POST", "http://"+address+path, bytes.NewReader(body))
	req.Header.Set(signature, mac)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("a peer gets %s", resp.Status)
	}
	receive(t, received)
	if text, _ := io.ReadAll(slow[0]); !strings.HasPrefix(string(text), "HTTP/1.1 413 ") {
		t.Errorf("who was the first is told %q", text)
	}
}

// A peer's message that is under way stays while strangers come, however many, and whose it is is known before its body.
func TestStrangersPushOutNoMessage(t *testing.T) {
	address, received := listen(t)
	begin := func(head string, length int) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = fmt.Fprintf(c, "POST /v1/blocks HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", head, length)
		r := bufio.NewReader(c)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 100 { // it is read now
			t.Fatal(resp, err)
		}
		return c, r
	}
	body, mac := key.Seal(&across.Message{From: "fra1", To: "ams1", Edge: "e", At: time.Now(), Blocks: []across.Block{block("192.0.2.1")}})
	peer, reply := begin(signature+": "+mac+"\r\n"+ticket+": "+key.Ticket("ams1", time.Now())+"\r\n", len(body))
	for range 3 * readersAtOnce {
		begin("", 100)
	}
	_, _ = peer.Write(body)
	if resp, err := http.ReadResponse(reply, nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	receive(t, received)
}
