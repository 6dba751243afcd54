package edge

import (
	"syscall"
	"testing"
	"time"
)

// Without descriptors no server can be reached: that is not held against any.
func TestNoDescriptorsIsNotTheOriginsFault(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "")
	c := e.talk()
	c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // it is connected
	o := e.snap.Load().origins.All[0]
	o.Sweep(time.Time{}) // and no connection to the origin is kept
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}))
	for range 4 {
		if resp, _ := c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("without: %d", resp.StatusCode)
		}
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if n := o.Failures.Load(); n != 0 {
		t.Errorf("%d failures of the origin", n)
	}
	if resp, _ := c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("with: %d", resp.StatusCode)
	}
}
