package accesslog

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"sluice/edge"
)

// Settings are which requests are logged, where and how.
type Settings struct {
	File string `json:"file" want:"file"` // "" is no log, "-" standard output
	// Format is json (an object a line, with why) or combined (that of Apache and nginx).
	Format string `json:"format" want:"combined or json"`
	// Refused, if above 1, logs only one of so many refused requests; the line then ends with
	// sample=N, or has a field of that name. 0 and 1 are all of them.
	Refused int `json:"refused" want:"1 to 1000000"`
	// Succeeded, if above 1, logs one of so many successes, each with the same chance, and says so
	// in the same way. A success is answered below 400, and no rule had anything against it, not
	// even a shadow. 0 and 1 are all of them.
	Succeeded int `json:"succeeded" want:"1 to 1000000"`
}

const (
	// MaxLines is how many lines may wait to be written, and accessBytes how much memory they may
	// take: the reader of the log may have stopped, and clients choose how long their lines are.
	MaxLines = 4096
	maxBytes = 4 << 20
	// maxSpare is how large the memory of a line may be to be used again: one long line must not
	// make all of them dear.
	maxSpare = 2 << 10
)

// A Log writes a line for every request, when its answer is made; its bytes are those announced,
// or - where the answer has no length. Requests never wait for it: when lines come faster than they
// can be written, those that find the queue full are lost, and counted.
type Log struct {
	config  Settings
	edge    string // what operators call it
	open    func() (io.WriteCloser, error)
	out     io.WriteCloser
	lines   chan *[]byte
	queued  atomic.Int64 // memory of those lines, bytes
	reopen  chan struct{}
	spare   sync.Pool
	refused atomic.Uint64
	lost    atomic.Uint64
	// Why lines were lost last that were being written; nil: the last were not
	failed atomic.Pointer[error]
}

// New makes the log of an edge, by what operators call that. open is called by Open and for every
// Reopen.
func New(c Settings, edge string, open func() (io.WriteCloser, error)) *Log {
	l := &Log{config: c, edge: edge, open: open, lines: make(chan *[]byte, MaxLines),
		reopen: make(chan struct{}, 1)}
	l.spare.New = func() any { return new([]byte) }
	return l
}

// Open opens the file, once, before Run.
func (l *Log) Open() (err error) {
	l.out, err = l.open()
	return err
}

// Reopen makes Run open the file again, after log rotation has moved it away. It does not wait.
func (l *Log) Reopen() {
	select {
	case l.reopen <- struct{}{}:
	default: // it is under way
	}
}

// Lost is how many lines could not be written.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Failed is why the lines that were to be written last could not be; nil: they were, and if any are
// lost, they came faster than that.
func (l *Log) Failed() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// write writes a batch, and counts what that loses.
func (l *Log) write(w *batch) {
	if len(w.text) == 0 {
		return
	}
	lost, err := w.flush()
	l.lost.Add(lost)
	if err == nil {
		l.failed.Store(nil)
	} else {
		l.failed.Store(&err)
	}
}

// accessBatch is how many bytes are written at once while more lines wait.
const accessBatch = 64 << 10

// Run writes until ctx is done and what was queued by then is written. failed is called when the
// file cannot be opened again; the old one is kept then.
func (l *Log) Run(ctx context.Context, failed func(error)) {
	w := batch{out: l.out}
	add := func(line *[]byte) {
		w.text = append(w.text, *line...)
		l.queued.Add(-int64(cap(*line)))
		l.giveBack(line)
		if len(w.text) >= accessBatch {
			l.write(&w)
		}
	}
	queued := func() { // by now
		for range len(l.lines) {
			add(<-l.lines)
		}
		l.write(&w)
	}
	for {
		select {
		case line := <-l.lines:
			add(line)
			if len(l.lines) == 0 {
				l.write(&w)
			}
		case <-l.reopen:
			queued()
			if out, err := l.open(); err != nil {
				failed(err)
			} else {
				_ = w.out.Close()
				w.out = out
			}
		case <-ctx.Done():
			for queued(); len(l.lines) > 0; queued() { // what came meanwhile
			}
			_ = w.out.Close()
			return
		}
	}
}

// A batch is lines that are written together.
type batch struct {
	out  io.WriteCloser
	text []byte
	torn bool // the file ends in the middle of a line
}

// flush writes the lines, and returns how many were lost, and why. One of which only the beginning
// could be written is, and ends there, so that it spoils no other.
func (w *batch) flush() (lost uint64, err error) {
	if w.torn && len(w.text) > 0 {
		if _, err = w.out.Write([]byte{'\n'}); err == nil {
			w.torn = false
		}
	}
	n := 0
	if !w.torn && len(w.text) > 0 {
		n, err = w.out.Write(w.text)
		w.torn = n > 0 && w.text[n-1] != '\n'
	}
	lost = uint64(bytes.Count(w.text[n:], []byte{'\n'}))
	w.text = w.text[:0]
	return lost, err
}

// succeeded reports whether the request is a success, of which a sample is enough.
func succeeded(e *edge.Outcome) bool {
	return e.Status < 400 && !e.Limited && (e.Verdict == "" || e.Verdict == "pass")
}

// Note queues the line of a request. It does not wait.
func (l *Log) Note(e *edge.Outcome) {
	sample := uint64(1)
	switch {
	case l.config.Refused > 1 && e.Limited:
		if sample = uint64(l.config.Refused); l.refused.Add(1)%sample != 1 {
			return
		}
	case l.config.Succeeded > 1 && succeeded(e):
		// By chance: every Nth would meet the same one of clients that take turns.
		if sample = uint64(l.config.Succeeded); rand.Uint64N(sample) != 0 {
			return
		}
	}
	if len(l.lines) == cap(l.lines) || l.queued.Load() >= maxBytes {
		l.lost.Add(1) // without writing it first: under attack that is most of the work
		return
	}
	line := l.spare.Get().(*[]byte)
	if l.config.Format == "json" {
		*line = appendJSON((*line)[:0], e, l.edge, sample)
	} else {
		*line = appendCombined((*line)[:0], e, sample)
	}
	size := int64(cap(*line)) // before it is another's
	if l.queued.Add(size) <= maxBytes {
		select {
		case l.lines <- line:
			return
		default:
		}
	}
	l.queued.Add(-size)
	l.giveBack(line)
	l.lost.Add(1)
}

func (l *Log) giveBack(line *[]byte) {
	if cap(*line) <= maxSpare {
		l.spare.Put(line)
	}
}
