package front_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/listen"
)

// An empty line after a request is no other: who sends one and then nothing is no slow client, and gets no answer.
func TestEmptyLineIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := edgetest.MemoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']\nlimits: {header_timeout: 10s, idle_timeout: 1m}")
		var got []byte
		took := edgetest.ServeAlone(s, edgetest.Unchanged, func(client net.Conn) {
			_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n")
			got, _ = io.ReadAll(client)
		})
		if n, received := strings.Count(string(got), "HTTP/1.1 "), edgetest.Metrics(t, s)["sluice_received_total"]; n != 1 || received != 1 || took != time.Minute {
			t.Errorf("%d answers to %v requests after %v: %q", n, received, took, got)
		}
	})
}

// A burst is a client that sends all its requests at once, and notes how many have been answered.
type burst struct {
	edgetest.Crowd
	answered atomic.Int64
	onAnswer func()
}

func (b *burst) Write(p []byte) (int, error) {
	b.answered.Add(int64(bytes.Count(p, []byte("HTTP/1.1 429"))))
	if b.onAnswer != nil {
		b.onAnswer()
	}
	return len(p), nil
}

// Whoever sends a hundred requests at once does not keep the processor until all of them are answered.
func TestPipeliningTakesTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nrules: [{name: r, limit: 1, mitigation_timeout: 1h}]"))
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	if _, err := s.Block("r", "10.0.0.1", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	serve := func(client *burst) {
		served.Go(func() { s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client)) })
	}
	many, before := &burst{Crowd: edgetest.Crowd{Rest: []byte(strings.Repeat(request, 100))}}, int64(100)
	var mu sync.Mutex
	note := func() {
		mu.Lock()
		defer mu.Unlock()
		before = min(before, many.answered.Load())
	}
	many.onAnswer = sync.OnceFunc(func() {
		for range 8 { // the race detector has the scheduler choose by chance
			serve(&burst{Crowd: edgetest.Crowd{Rest: []byte(request)}, onAnswer: note})
		}
	})
	serve(many)
	served.Wait()
	if got := many.answered.Load(); got != 100 {
		t.Fatalf("%d requests were refused, want 100", got)
	}
	if before > 64 {
		t.Errorf("eight requests waited for %d others of one client, want at most %d", before, 64)
	}
}
