// Package answer reads answers of HTTP/1.1 as they come from a socket, and what an edge says in
// them of its own decision.
package answer

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/judge"
)

// Sentinels of an answer that is not HTTP/1.1 as RFC 9112 has it, or not ours to read.
var (
	ErrMalformed = errors.New("malformed answer")
	ErrExtra     = errors.New("bytes that nobody asked for")
	ErrTooLong   = errors.New("header line over 64 KiB")
)

// MaxLine is how long a line of a head may be.
const MaxLine = 64 << 10

// Answer reads one HTTP/1.1 answer from however many pieces it arrives in. It keeps what a judge
// needs (the status and the edge's own verdict) and counts the body's bytes away. The zero answer
// is ready for the first byte.
type Answer struct {
	Status  int
	Verdict Verdict
	Asked   bool // it has a RateLimit header: a rule was asked about the request
	Close   bool // the peer closes after it
	body    int64
	begin   []byte // of the body, as far as ruleRefusal may be seen in it

	stage   stage
	head    bool   // answers a HEAD request: no body whatever the headers say
	length  int64  // Content-Length, -1 without
	chunked bool   // Transfer-Encoding: chunked
	left    int64  // bytes of the body or the chunk still to come
	line    []byte // the start of a line that came in pieces
}

type stage uint8

const (
	atStatus stage = iota
	atHeader
	atBody     // left bytes
	atChunk    // a chunk's size
	atChunkEnd // the line end behind a chunk
	atTrailer
	atClose // a body that ends with the connection
	atEnd
)

// Verdict is what an edge says of its own decision in the Sluice-Verdict header.
type Verdict struct {
	Found    bool
	Shadow   bool // a rule in shadow mode would have refused
	Is       judge.Verdict
	At       int64 // Unix nanoseconds; 0 if it has none
	Until    int64 // Unix nanoseconds; 0 if nothing ends
	Estimate float64
}

// Reset makes a ready for the answer to the next request, keeping its buffer.
func (a *Answer) Reset(head bool) {
	*a = Answer{head: head, length: -1, line: a.line[:0], begin: a.begin[:0]}
}

// Started reports whether any byte of the answer has come.
func (a *Answer) Started() bool { return a.stage != atStatus || len(a.line) > 0 }

// Done reports whether the answer is complete.
func (a *Answer) Done() bool { return a.stage == atEnd }

// Feed takes the bytes that arrived. Bytes behind the answer's end are an error, because nothing
// else was asked.
func (a *Answer) Feed(b []byte) error {
	for len(b) > 0 {
		switch a.stage {
		case atEnd:
			return ErrExtra
		case atClose:
			a.Take(b)
			return nil
		case atBody:
			n := min(int64(len(b)), a.left)
			a.Take(b[:n])
			b, a.left = b[n:], a.left-n
			if a.left == 0 {
				a.stage = atEnd
				if a.chunked {
					a.stage = atChunkEnd
				}
			}
		default:
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				if len(a.line)+len(b) > MaxLine {
					return ErrTooLong
				}
				a.line = append(a.line, b...)
				return nil
			}
			line := b[:i]
			if len(a.line) > 0 {
				a.line = append(a.line, line...)
				line = a.line
			}
			b = b[i+1:]
			err := a.lineEnds(bytes.TrimSuffix(line, []byte("\r")))
			a.line = a.line[:0]
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Ended takes the end of the connection, and reports whether the answer is complete with it.
func (a *Answer) Ended() bool {
	if a.stage == atClose {
		a.stage = atEnd
	}
	return a.stage == atEnd
}

// Take takes bytes of the body.
func (a *Answer) Take(b []byte) {
	a.body += int64(len(b))
	a.begin = append(a.begin, b[:min(len(b), refusalLength-len(a.begin))]...)
}

// lineEnds reads one line of the header, of chunk framing or of the trailer.
func (a *Answer) lineEnds(line []byte) error {
	switch a.stage {
	case atStatus:
		if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
			return ErrMalformed
		}
		n, ok := number(line[9:12], 10)
		if !ok || n < 100 {
			return ErrMalformed
		}
		a.Status = int(n)
		a.Close = line[7] == '0'
		a.stage = atHeader
	case atHeader:
		if len(line) == 0 {
			a.headerDone()
			return nil
		}
		return a.field(line)
	case atChunk:
		if i := bytes.IndexByte(line, ';'); i >= 0 {
			line = line[:i]
		}
		n, ok := number(bytes.TrimSpace(line), 16)
		if !ok {
			return ErrMalformed
		}
		a.left, a.stage = n, atBody
		if n == 0 {
			a.stage = atTrailer
		}
	case atChunkEnd:
		if len(line) != 0 {
			return ErrMalformed
		}
		a.stage = atChunk
	case atTrailer:
		if len(line) == 0 {
			a.stage = atEnd
		}
	}
	return nil
}

func (a *Answer) headerDone() {
	switch {
	case a.Status < 200: // an interim answer: the real one follows
		a.Reset(a.head)
	case a.head || a.Status == 204 || a.Status == 304:
		a.stage = atEnd
	case a.chunked:
		a.stage = atChunk
	case a.length > 0:
		a.left, a.stage = a.length, atBody
	case a.length == 0:
		a.stage = atEnd
	default:
		a.Close, a.stage = true, atClose
	}
}

// field reads a header line. Only a few names matter here; the length of the name rules most others
// out at once.
func (a *Answer) field(line []byte) error {
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return ErrMalformed
	}
	name, value := line[:i], bytes.TrimSpace(line[i+1:])
	switch {
	case is(name, "content-length"):
		n, ok := number(value, 10)
		if !ok || a.length >= 0 && a.length != n {
			return ErrMalformed
		}
		a.length = n
	case is(name, "sluice-verdict"):
		a.Verdict = ParseVerdict(value)
	case is(name, "connection"):
		a.Close = a.Close || is(value, "close")
	case is(name, "ratelimit"):
		a.Asked = true
	case is(name, "transfer-encoding"):
		if !is(value, "chunked") {
			return ErrMalformed
		}
		a.chunked = true
	}
	return nil
}

// is compares ASCII text with a lower-case word, ignoring case.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// number reads digits only: no sign, no blanks, nothing beyond 2^62.
func number(b []byte, base int64) (int64, bool) {
	var n int64
	for _, c := range b {
		d := int64(99)
		switch {
		case '0' <= c && c <= '9':
			d = int64(c - '0')
		case 'a' <= c && c <= 'f':
			d = int64(c-'a') + 10
		case 'A' <= c && c <= 'F':
			d = int64(c-'A') + 10
		}
		if d >= base || n > (1<<62)/base-1 {
			return 0, false
		}
		n = n*base + d
	}
	return n, len(b) > 0
}

// ParseVerdict reads VERDICT;at=UNIX_NANOSECONDS;e=ESTIMATE;until=UNIX_NANOSECONDS;rule="NAME".
// Without a known word in front there is no verdict; parameters it does not know, or cannot read,
// it leaves out.
func ParseVerdict(b []byte) Verdict {
	v := Verdict{Found: true, Estimate: math.NaN()}
	word, rest, _ := bytes.Cut(b, []byte(";"))
	switch string(bytes.TrimSpace(word)) {
	case "pass", "open": // open: without the tier, and not counted
		v.Is = judge.Admitted
	case "shadow", "tagged": // over, and admitted
		v.Is, v.Shadow = judge.Admitted, true
	case "limited":
		v.Is = judge.Limited
	case "mitigated":
		v.Is = judge.Mitigated
	case "closed":
		v.Is = judge.Closed
	default:
		return Verdict{}
	}
	for len(rest) > 0 {
		var parameter []byte
		parameter, rest, _ = bytes.Cut(rest, []byte(";"))
		name, value, _ := bytes.Cut(bytes.TrimSpace(parameter), []byte("="))
		switch string(name) {
		case "at":
			v.At, _ = number(value, 10)
		case "until":
			v.Until, _ = number(value, 10)
		case "e":
			if e, err := strconv.ParseFloat(string(value), 64); err == nil {
				v.Estimate = e
			}
		case "rule":
			return v // the last one, and its quoted name may hold anything
		}
	}
	return v
}

// What the body of an edge's own answer begins with where a rule refuses, and where one fails
// closed. No origin says that of the edge's rules by chance.
const (
	ruleLimits    = `{"error":{"code":"rate_limited","rule":`
	ruleCloses    = `{"error":{"code":"unavailable","rule":`
	refusalLength = len(ruleLimits)
)

// Why an answer is not judged.
const (
	// An origin's own 429, say, or an edge that has no room for another connection
	noVerdict   = "no verdict of the limiter's"
	otherStatus = "a refusal with the status of an admission"
	otherTime   = "decided before it was sent, or after it was answered"
)

// ClockSlack is how badly the time of a decision is known: edges report it themselves, by a clock
// that may run a little apart from that of the load generator, and another thread may have run
// between a clock's reading and the verdict.
const ClockSlack = time.Millisecond

// Grace is how long a live edge may go on admitting a source when it has come to have its block,
// and how far from its end it may refuse: what its threads do at once has no order, and a busy
// machine holds one back. It is as late as the load may be sent in a run that is a measurement.
func Grace(window time.Duration) time.Duration { return window / 50 }

// Decision is what the answer says that the limiter decided about a request, which was written
// between asked and sent; or, as judge.Failed, why it says nothing of that. What counts is the
// edge's own word: the verdict header, which no origin's answer keeps. Where edges do not send it,
// a refusal is known by its body, and an admission by RateLimit, which the edge puts on what the
// origin answers. A status alone says nothing: a 429 may be the origin's own, and a 503 that of an
// edge that has no room for another connection.
func (a *Answer) Decision(epoch time.Time, asked, sent,
	answered time.Duration) (d judge.Decision, why string) {
	d = judge.Decision{At: sent + (answered-sent)/2, Verdict: judge.Failed, Estimate: math.NaN()}
	v := a.Verdict
	if !v.Found {
		switch {
		case a.Status == 429 && string(a.begin) == ruleLimits:
			d.Verdict = judge.Limited
		case a.Status == 503 && strings.HasPrefix(string(a.begin), ruleCloses):
			d.Verdict = judge.Closed
		case a.Asked && a.Status != 429 && a.Status != 503:
			d.Verdict = judge.Admitted
		default:
			return d, noVerdict
		}
		return d, ""
	}
	if v.At > 0 {
		if !v.between(epoch, asked, answered) {
			return d, otherTime
		}
		d.At = time.Duration(v.At - epoch.UnixNano())
	}
	if v.Is != judge.Admitted && a.Status < 400 {
		return d, otherStatus
	}
	d.Verdict, d.Over, d.Estimate = v.Is, v.Shadow || v.Is == judge.Limited, v.Estimate
	if v.Until > 0 && (v.Is == judge.Limited || v.Is == judge.Mitigated || v.Shadow) {
		d.Until = time.Duration(v.Until - epoch.UnixNano())
	}
	return d, ""
}

func (v Verdict) between(epoch time.Time, asked, answered time.Duration) bool {
	at := time.Duration(v.At - epoch.UnixNano())
	return at >= asked-ClockSlack && at <= answered+ClockSlack
}

// Within is the verdict with its times by our clock, where the edge's has been stepped ahead since:
// only then is it outside of the time between its request and its answer.
func (v Verdict) Within(epoch time.Time, asked, answered, ahead time.Duration) Verdict {
	if v.At > 0 && !v.between(epoch, asked, answered) {
		v.At -= int64(ahead)
		if v.Until > 0 {
			v.Until -= int64(ahead)
		}
	}
	return v
}

// ByStatus is what the status alone says, of an edge that tells no more before an origin that
// refuses nothing itself.
func (a *Answer) ByStatus(sent, answered time.Duration) (d judge.Decision, why string) {
	d = judge.Decision{At: sent + (answered-sent)/2, Estimate: math.NaN()}
	switch {
	case a.Status == 429:
		d.Verdict, d.Over = judge.Limited, true
	case a.Status >= 500:
		d.Verdict = judge.Failed
		return d, noVerdict
	}
	return d, ""
}
