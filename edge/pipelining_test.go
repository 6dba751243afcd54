package edge

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/listen"
)

// A burst is a client that sends all its requests at once, and notes how many have been answered.
type burst struct {
	crowd
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
	s := newServer(t, parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nrules: [{name: r, limit: 1, mitigation_timeout: 1h}]"))
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	if _, err := s.Block("r", "10.0.0.1", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	serve := func(client *burst) {
		served.Go(func() { s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client)) })
	}
	many, before := &burst{crowd: crowd{rest: []byte(strings.Repeat(request, 100))}}, int64(100)
	var mu sync.Mutex
	note := func() {
		mu.Lock()
		defer mu.Unlock()
		before = min(before, many.answered.Load())
	}
	many.onAnswer = sync.OnceFunc(func() {
		for range 8 { // the race detector has the scheduler choose by chance
			serve(&burst{crowd: crowd{rest: []byte(request)}, onAnswer: note})
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
