package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
