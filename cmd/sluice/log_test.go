package main

import (
	"bytes"
	"fmt"
	stdlog "log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/events"
)

// A failure that every request meets is told once a second, and how often it was met.
func TestLogIsCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newLog(&out, "info", "text")
		for range 1000 {
			log.Warn("origin unreachable", "origin", "a")
			log.With("x", 1).Warn("another")
		}
		time.Sleep(time.Second)
		log.Warn("origin unreachable", "origin", "b")
		log.Debug("not at this level")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			got = append(got, text)
		}
		want := `"origin unreachable" origin=a|another x=1|"origin unreachable" origin=b repeated=999`
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("got %s\nwant %s", s, want)
		}
	})
}

// What libraries write to the standard library's log goes through the edge's, as calmly.
func TestLogOfLibraries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		restore := takeLibraryLog(newLog(&out, "info", "json"))
		for i := range 10 {
			stdlog.Printf("protocol error: received DATA on a HEAD request %d", i)
		}
		restore()
		if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, `"msg":"a library reports a fault","text":"protocol error: received DATA on a HEAD request 0"`) {
			t.Errorf("got %s", s)
		}
		stdlog.SetOutput(&out)
		if restore(); stdlog.Writer() == &out {
			t.Error("what was before is not restored")
		}
	})
}

// Messages that differ, as by what is wrong with a file, take no room for good: what every request meets is told once a second still.
func TestLogStaysCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newLog(&out, "info", "text")
		for i := range 2 * maxRecent {
			log.Warn("wrong", "n", i)
			log.Warn(fmt.Sprint("wrong at line ", i))
			time.Sleep(time.Second)
		}
		out.Reset()
		for range 1000 {
			log.Warn("origin unreachable")
		}
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("%d lines", n)
		}
	})
}

// What operators do is a line each, however fast it comes; the log's warnings are events, as often as the log says them.
func TestEventsAreLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newLog(&out, "info", "text")
		happened := newEvents(log)
		for range 3 {
			happened.Add(events.Event{Time: time.Now(), Kind: events.Operator, Text: "lifted", Source: "192.0.2.1", Who: "ada", Old: "until then"})
			log.Error("origin unreachable", "origin", "a")
			log.Info("no warning")
		}
		if got := strings.Count(out.String(), "msg=lifted event="); got != 3 {
			t.Errorf("%d lines:\n%s", got, out.String())
		}
		if !strings.Contains(out.String(), `kind=operator source=192.0.2.1 who=ada old="until then"`) {
			t.Errorf("%s", out.String())
		}
		if list := happened.Since(0); len(list) != 4 || happened.Count(events.Warning) != 1 || list[2].Text != "origin unreachable (origin=a)" ||
			list[2].Level != slog.LevelError {
			t.Errorf("%+v", list)
		}
	})
}

// blocked is a reader who does not read, until it is let go.
type blocked struct {
	bytes.Buffer
	entered, leave chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	select {
	case b.entered <- struct{}{}:
	default:
	}
	<-b.leave
	return b.Buffer.Write(p)
}

// Whoever logs does not wait for whoever reads the log; what was lost is said.
func TestLogNeverBlocks(t *testing.T) {
	out := &blocked{entered: make(chan struct{}, 1), leave: make(chan struct{})}
	var lost uint64
	w := newLogWriter(out, func(n uint64) { lost += n })
	_, _ = w.Write([]byte("first\n"))
	<-out.entered // it is being written
	for range logQueue + 10 {
		_, _ = w.Write([]byte("line\n"))
	}
	close(out.leave)
	w.close()
	if n := strings.Count(out.String(), "line\n"); n != logQueue || lost != 10 {
		t.Errorf("%d lines written, %d lost", n, lost)
	}
}
