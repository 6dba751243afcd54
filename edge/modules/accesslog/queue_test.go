package accesslog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"sluice/edge"
	"sluice/edge/message"
)

// files keeps what was written to every file that was opened.
type files struct {
	text []*bytes.Buffer
	full bool // writing fails
}

type file struct {
	all *files
	buf *bytes.Buffer
}

func (f *files) open() (io.WriteCloser, error) {
	b := new(bytes.Buffer)
	f.text = append(f.text, b)
	return file{f, b}, nil
}

func (f file) Write(p []byte) (int, error) {
	if f.all.full {
		return 0, errors.New("no space left")
	}
	return f.buf.Write(p)
}

func (file) Close() error { return nil }

// opened is a log that may run.
func opened(t *testing.T, c Settings, f *files) *Log {
	t.Helper()
	l := New(c, "", f.open)
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	return l
}

// run has a log write until the function is done and everything that it queued is written. It must be called in a bubble.
func run(t *testing.T, c Settings, note func(*Log, *files)) (*Log, *files) {
	t.Helper()
	f := &files{}
	l := opened(t, c, f)
	ctx, cancel := context.WithCancel(t.Context())
	go l.Run(ctx, func(err error) { t.Error(err) })
	note(l, f)
	cancel()
	synctest.Wait()
	return l, f
}

// entry is a request for a path, with header lines whose value is text.
func entry(path, text string, names ...string) *edge.Outcome {
	r := &message.Request{Method: []byte("GET"), Target: []byte(path), RawHost: []byte("a")}
	for _, name := range names {
		r.Head.Lines = append(r.Head.Lines, message.Line{Name: []byte(name), Value: []byte(text)})
	}
	return &edge.Outcome{Client: netip.MustParseAddr("192.0.2.7"), Head: r, Version: []byte("HTTP/1.1"), Status: 200}
}

// Of refusals one in ten is written, and its line says so; a reopened file gets what comes then; what cannot be written is counted.
func TestSamplesReopensAndLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := entry("/", "")
		refused.Status, refused.Limited = 429, true
		l, f := run(t, Settings{Format: "combined", Refused: 10}, func(l *Log, f *files) {
			l.Note(entry("/", ""))
			for range 20 {
				l.Note(refused)
			}
			l.Reopen()
			synctest.Wait()
			for range 10 {
				l.Note(refused)
			}
			synctest.Wait()
			if f.full = true; l.Failed() != nil {
				t.Errorf("before the disk is full: %v", l.Failed())
			}
			for range 20 {
				l.Note(refused)
			}
			synctest.Wait()
		})
		if len(f.text) != 2 {
			t.Fatalf("%d files were opened", len(f.text))
		}
		first, second := f.text[0].String(), f.text[1].String()
		if strings.Count(first, "\n") != 3 || strings.Count(first, " sample=10\n") != 2 || strings.Count(second, "\n") != 1 || strings.Count(second, " sample=10\n") != 1 {
			t.Errorf("first:\n%ssecond:\n%s", first, second)
		}
		if l.Lost() != 2 || l.Failed() == nil {
			t.Errorf("%d lost, %v", l.Lost(), l.Failed())
		}
	})
}

// Of successes a sample is written, with its weight; everything else is, whatever its chance. A log without it writes all of them.
func TestSamplesSuccesses(t *testing.T) {
	const n = 4000
	for _, format := range []string{"combined", "json"} {
		synctest.Test(t, func(t *testing.T) {
			success, mark := entry("/well", ""), map[string]string{"combined": " sample=4\n", "json": `,"sample":4}`}[format]
			success.Verdict = "pass"
			_, f := run(t, Settings{Format: format, Succeeded: 4}, func(l *Log, _ *files) {
				for i := range n {
					if l.Note(success); i%100 == 0 {
						synctest.Wait()
					}
				}
				for _, change := range []func(*edge.Outcome){
					func(e *edge.Outcome) { e.Status = 400 },
					func(e *edge.Outcome) { e.Status = 502 },
					func(e *edge.Outcome) { e.Status, e.Limited, e.Verdict = 429, true, "limited" },
					func(e *edge.Outcome) { e.Limited = true }, // a refusal with a status of its own
					func(e *edge.Outcome) { e.Verdict = "shadow" },
					func(e *edge.Outcome) { e.Verdict = "tagged" },
					func(e *edge.Outcome) { e.Verdict = "open" },
				} {
					e := entry("/odd", "")
					change(e)
					for range 20 {
						l.Note(e)
					}
				}
			})
			text := f.text[0].String()
			// 4,000 draws at 1 in 4: the bounds are ten standard deviations away.
			if got := strings.Count(text, "/well"); got < n/4-274 || got > n/4+274 || strings.Count(text, mark) != got {
				t.Errorf("%s: %d of %d successes, %d with their weight", format, got, n, strings.Count(text, mark))
			}
			if got := strings.Count(text, "/odd"); got != 7*20 {
				t.Errorf("%s: %d of %d others", format, got, 7*20)
			}
			_, f = run(t, Settings{Format: format, Succeeded: 1}, func(l *Log, _ *files) {
				for range 100 {
					l.Note(success)
				}
			})
			if text := f.text[0].String(); strings.Count(text, "\n") != 100 || strings.Contains(text, "sample") {
				t.Errorf("%s: without a sample:\n%s", format, text)
			}
		})
	}
}

// A log that nobody writes holds up no request: lines that find the queue full are lost, and counted.
func TestNoteNeverWaits(t *testing.T) {
	l := opened(t, Settings{}, &files{})
	for range MaxLines + 100 {
		l.Note(entry("/", ""))
	}
	if l.Lost() != 100 {
		t.Errorf("lost %d", l.Lost())
	}
}

// What waits to be written takes some megabytes, however long the lines that clients make: long fields are cut, lines beyond are lost, and
// each is one or the other.
func TestQueueIsBoundedInBytes(t *testing.T) {
	const n = 2000
	long := strings.Repeat(`"`, 8000)
	for _, format := range []string{"combined", "json"} {
		synctest.Test(t, func(t *testing.T) {
			f := &files{}
			l := opened(t, Settings{Format: format}, f)
			for range n {
				l.Note(entry("/"+long, long, "Referer", "User-Agent"))
			}
			if queued := l.queued.Load(); queued > maxBytes || queued < maxBytes/2 {
				t.Errorf("%s: %d bytes wait", format, queued)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			l.Run(ctx, func(err error) { t.Error(err) })
			text := f.text[0].String()
			written := strings.Count(text, "\n")
			if lost := l.Lost(); written < 100 || lost == 0 || written+int(lost) != n || l.queued.Load() != 0 {
				t.Errorf("%s: %d lines written, %d lost, of %d; %d bytes wait still", format, written, lost, n, l.queued.Load())
			}
			line, _, _ := strings.Cut(text, "\n")
			if got := strings.Count(line, cutMark); got != 3 || len(line) > 15_000 {
				t.Errorf("%s: %d fields are cut: %s", format, got, line[:min(len(line), 2000)])
			}
		})
	}
}
