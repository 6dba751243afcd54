// Package accesslog writes a line for every request, and never lets one wait for it: what comes
// faster than it can be written is lost, and counted.
package accesslog

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sluice/edge/message"
)

// Config is which requests are logged, where and how.
type Config struct {
	File   string // "" is no log, "-" standard output
	Format string // json (an object a line, with why) or combined (that of Apache and nginx)
	// Refused, if above 1, logs only one of so many refused requests; the line then ends with
	// sample=N, or has a field of that name. 0 and 1 are all of them.
	Refused int
	// Succeeded, if above 1, logs one of so many successes, each with the same chance, and says so
	// in the same way. A success is answered below 400, and no rule had anything against it, not
	// even a shadow. 0 and 1 are all of them.
	Succeeded int
}

const (
	// MaxLines is how many lines may wait to be written, and accessBytes how much memory they may
	// take: the reader of the log may have stopped, and clients choose how long their lines are.
	MaxLines = 4096
	maxBytes = 4 << 20
	// maxField is how many bytes are written of each name and value that a client sent. What is cut
	// ends in accessCut.
	maxField = 1024
	cutMark  = "…"
	// maxSpare is how large the memory of a line may be to be used again: one long line must not
	// make all of them dear.
	maxSpare = 2 << 10
)

// An Log writes a line for every request, when its answer is made; its bytes are those announced,
// or - where the answer has no length. Requests never wait for it: when lines come faster than they
// can be written, those that find the queue full are lost, and counted.
type Log struct {
	config  Config
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

// Open opens the log. open is called again for every Reopen.
func Open(c Config, open func() (io.WriteCloser, error)) (*Log, error) {
	out, err := open()
	if err != nil {
		return nil, err
	}
	l := &Log{config: c, open: open, out: out, lines: make(chan *[]byte, MaxLines),
		reopen: make(chan struct{}, 1)}
	l.spare.New = func() any { return new([]byte) }
	return l, nil
}

// Reopen makes Run open the file again, after log rotation has moved it away. It does not wait.
func (l *Log) Reopen() {
	select {
	case l.reopen <- struct{}{}:
	default: // it is under way
	}
}

// File is where it is written, as configured.
func (l *Log) File() string { return l.config.File }

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

// An Entry is what is written of a request and its answer. Nothing of it is kept.
type Entry struct {
	Client  netip.Addr
	At      time.Time // when it came
	Head    *message.Request
	Version []byte // of the protocol
	Status  int
	Length  int64  // of the answer's body, bytes; less than 0: it is not announced
	From    string // which side answered
	Limited bool   // rules refused the request
	Rule    string // the one that decided; "": none
	Verdict string // "": nothing was decided

	ID    []byte // the request's name
	Edge  string // this edge's
	Limit uint32 // the rule's; 0: there is no estimate
	// What the source had in that limit's window, this request included where it was counted
	Estimate float64
	Window   time.Duration // of that limit
	Until    time.Time     // when the block that is in force ends; zero: there is none
	Policy   string        // which of the rule's limits, where it has several; "": the first

	// Of an operator's block that refused the request: admin, his name, and why; "": none did
	By, Who, Reason string

	// The digest of the key that the request was counted by, by that rule or, if it counts by
	// address, by another; nil: by none
	Key      []byte
	KeyOf    string // what the key is of
	KeyStart []byte // its first characters, where a rule shows them

	Country [2]byte // that a rule has found the client in; zero: none
	ASN     uint32  // of the client, in the same way
}

// succeeded reports whether the request is a success, of which a sample is enough.
func (e *Entry) succeeded() bool {
	return e.Status < 400 && !e.Limited && (e.Verdict == "" || e.Verdict == "pass")
}

// Note queues the line of a request. It does not wait.
func (l *Log) Note(e *Entry) {
	sample := uint64(1)
	switch {
	case l.config.Refused > 1 && e.Limited:
		if sample = uint64(l.config.Refused); l.refused.Add(1)%sample != 1 {
			return
		}
	case l.config.Succeeded > 1 && e.succeeded():
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
		*line = e.appendJSON((*line)[:0], sample)
	} else {
		*line = e.appendCombined((*line)[:0], sample)
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

func (e *Entry) appendCombined(b []byte, sample uint64) []byte {
	b = e.Client.AppendTo(b)
	b = append(b, " - - ["...)
	b = e.At.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	if e.Head.Method == nil {
		b = append(b, "- - -"...)
	} else {
		b = appendEscaped(b, e.Head.Method)
		b = append(b, ' ')
		b = appendEscaped(b, withoutUser(e.Head.Target))
		b = append(b, ' ')
		b = appendEscaped(b, e.Version)
	}
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	b = append(b, ' ')
	if n := e.Length; n >= 0 {
		b = strconv.AppendInt(b, n, 10)
	} else {
		b = append(b, '-')
	}
	for _, name := range [...]string{"referer", "user-agent"} {
		b = append(b, ` "`...)
		if v := e.Head.Head.First(name); len(v) > 0 {
			if name == "referer" {
				v = withoutUser(v)
			}
			b = appendEscaped(b, v)
		} else {
			b = append(b, '-')
		}
		b = append(b, '"')
	}
	if sample > 1 {
		b = append(b, " sample="...)
		b = strconv.AppendUint(b, sample, 10)
	}
	return append(b, '\n')
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func (e *Entry) appendJSON(b []byte, sample uint64) []byte {
	b = append(b, `{"time":"`...)
	b = e.At.UTC().AppendFormat(b, timeFormat)
	b = append(b, `","t":`...)
	b = strconv.AppendFloat(b, float64(e.At.UnixMicro())/1e6, 'f', 6, 64)
	b = appendText(b, "id", e.ID)
	b = appendText(b, "edge", []byte(e.Edge))
	b = append(b, `,"source":"`...)
	b = e.Client.AppendTo(b)
	b = append(b, '"')
	if e.Head.Method != nil {
		b = appendText(b, "host", withoutUser(e.Head.RawHost))
		b = appendText(b, "method", e.Head.Method)
		b = appendText(b, "path", withoutUser(e.Head.Target))
		b = appendText(b, "referer", withoutUser(e.Head.Head.First("referer")))
		b = appendText(b, "user_agent", e.Head.Head.First("user-agent"))
	}
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	if n := e.Length; n >= 0 {
		b = append(b, `,"bytes":`...)
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, `,"seconds":`...)
	b = strconv.AppendFloat(b, time.Since(e.At).Seconds(), 'f', 6, 64)
	b = appendName(b, "from", e.From)
	if len(e.Version) > 0 {
		b = append(b, `,"protocol":"`...)
		b = appendJSONText(b, e.Version)
		b = append(b, '"')
	}
	b = appendName(b, "rule", e.Rule)
	b = appendName(b, "policy", e.Policy)
	b = appendName(b, "verdict", e.Verdict)
	if e.Key != nil {
		b = appendText(b, "key", e.Key)
		b = appendText(b, "key_of", []byte(e.KeyOf))
		b = appendText(b, "key_start", e.KeyStart)
	}
	if e.Country != [2]byte{} {
		b = appendText(b, "country", e.Country[:])
	}
	if e.ASN != 0 {
		b = strconv.AppendUint(append(b, `,"asn":`...), uint64(e.ASN), 10)
	}
	if e.Limit > 0 {
		b = append(b, `,"estimate":`...)
		b = strconv.AppendFloat(b, e.Estimate, 'f', 2, 64)
		b = append(b, `,"limit":`...)
		b = strconv.AppendUint(b, uint64(e.Limit), 10)
		b = append(b, `,"window":`...)
		b = strconv.AppendFloat(b, e.Window.Seconds(), 'f', -1, 64)
	}
	if !e.Until.IsZero() {
		b = append(b, `,"until":"`...)
		b = e.Until.UTC().AppendFormat(b, timeFormat)
		b = append(b, '"')
	}
	b = appendName(b, "by", e.By)
	b = appendText(b, "who", []byte(e.Who))
	b = appendText(b, "reason", []byte(e.Reason))
	if sample > 1 {
		b = append(b, `,"sample":`...)
		b = strconv.AppendUint(b, sample, 10)
	}
	return append(b, "}\n"...)
}

// appendText appends a field of what a client sent, unless it is empty, and appendName one of a
// name of ours, in which there is nothing to escape.
func appendText(b []byte, field string, text []byte) []byte {
	if len(text) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":"`...)
	return append(appendJSONText(b, text), '"')
}

func appendName(b []byte, field, name string) []byte {
	if name == "" {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":"`...)
	return append(append(b, name...), '"')
}

const hexDigits = "0123456789abcdef"

// withoutUser is a URL, an authority or a path without the user and the password that may be before
// its host. Requests with any are refused, and the log is no place for a password.
func withoutUser(text []byte) []byte {
	if len(text) == 0 || text[0] == '/' || bytes.IndexByte(text, '@') < 0 {
		return text
	}
	start, end := 0, len(text)
	if i := bytes.Index(text, []byte("//")); i >= 0 && !bytes.ContainsAny(text[:i], "/?#@") {
		start = i + len("//")
	}
	if i := bytes.IndexAny(text[start:], "/?#"); i >= 0 {
		end = start + i
	}
	at := bytes.LastIndexByte(text[start:end], '@')
	if at < 0 {
		return text
	}
	return slices.Concat(text[:start], text[start+at+1:])
}

// appendEscaped writes what a client sent so that it stays within its quotes and its line, as nginx
// and Apache do.
func appendEscaped(b, text []byte) []byte {
	text, cut := cutField(text)
	for _, c := range text {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			continue
		}
		b = append(b, c)
	}
	return append(b, cut...)
}

// cutField returns what is written of a field, and the mark that comes after it.
func cutField(text []byte) ([]byte, string) {
	if len(text) <= maxField {
		return text, ""
	}
	return text[:maxField], cutMark
}

// appendJSONText writes text as the inside of a JSON string; bytes that are no UTF-8 become U+FFFD.
// What is not to be seen is escaped: some readers take U+0085 or U+2028 for the end of a line, and
// a terminal obeys U+009B.
func appendJSONText(b, text []byte) []byte {
	text, cut := cutField(text)
	for len(text) > 0 {
		c := text[0]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune(text)
			if unicode.IsPrint(r) {
				b = utf8.AppendRune(b, r)
			} else {
				var units [2]uint16
				for _, u := range utf16.AppendRune(units[:0], r) {
					b = append(b, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15],
						hexDigits[u>>4&15], hexDigits[u&15])
				}
			}
			text = text[n:]
			continue
		}
		text = text[1:]
	}
	return append(b, cut...)
}
