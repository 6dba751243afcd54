package answer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/loadgen/judge"
)

func TestAnswer(t *testing.T) {
	f := func(name, text string, head bool, status int, body int64, closes bool, want error) {
		t.Helper()
		for size := 1; size <= len(text); size++ { // however the bytes are cut, the answer is the same
			var a Answer
			a.Reset(head)
			var err error
			for i := 0; i < len(text) && err == nil; i += size {
				err = a.Feed([]byte(text[i:min(i+size, len(text))]))
			}
			if !errors.Is(err, want) {
				t.Fatalf("%s, in pieces of %d: error %v, want %v", name, size, err, want)
			}
			if want != nil {
				continue
			}
			if !a.Done() && !a.Ended() {
				t.Fatalf("%s, in pieces of %d: not done", name, size)
			}
			if a.Status != status || a.body != body || a.Close != closes {
				t.Fatalf("%s, in pieces of %d: status %d, body %d, close %v; want %d, %d, %v",
					name, size, a.Status, a.body, a.Close, status, body, closes)
			}
		}
	}
	f("length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, 200, 5, false, nil)
	f("no body", "HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", false, 200, 0, false, nil)
	f("bare line feeds", "HTTP/1.1 200\x20\nContent-Length: 2\n\nok", false, 200, 2, false, nil)
	f("head", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, 200, 0, false, nil)
	f("no content", "HTTP/1.1 204 No Content\r\n\r\n", false, 204, 0, false, nil)
	f("not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, 304, 0, false, nil)
	f("closes", "HTTP/1.1 429 Too Many Requests\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", false, 429, 1, true, nil)
	f("1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false, 200, 1, true, nil)
	f("until close", "HTTP/1.1 200 OK\r\n\r\nall of this", false, 200, 11, true, nil)
	f("interim", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, 200, 2, false, nil)
	f("chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n", false, 200, 15, false, nil)

	f("not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n", false, 0, 0, false, ErrMalformed)
	f("odd status", "HTTP/1.1 2x0 OK\r\n\r\n", false, 0, 0, false, ErrMalformed)
	f("negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false, 0, 0, false, ErrMalformed)
	f("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", false, 0, 0, false, ErrMalformed)
	f("huge chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", false, 0, 0, false, ErrMalformed)
	f("chunk runs on", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhello\r\n", false, 0, 0, false, ErrMalformed)
	f("another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, 0, 0, false, ErrMalformed)
	f("more than asked", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", false, 0, 0, false, ErrExtra)
}

func TestAnswerCutShort(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"HTTP/1.1 200 OK\r\nContent-",
	} {
		var a Answer
		a.Reset(false)
		if err := a.Feed([]byte(text)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if a.Ended() {
			t.Errorf("%q counts as complete", text)
		}
		if !a.Started() {
			t.Errorf("%q counts as nothing", text)
		}
	}
	var long Answer
	long.Reset(false)
	if err := long.Feed([]byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", MaxLine+1))); !errors.Is(err, ErrTooLong) {
		t.Errorf("an endless header line: %v", err)
	}
}

func TestParseVerdict(t *testing.T) {
	none := math.NaN()
	f := func(in string, want Verdict) {
		t.Helper()
		got := ParseVerdict([]byte(in))
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
	f(`pass;at=1700000000000000001;e=3.25;until=0;rule="default"`,
		Verdict{Found: true, At: 1700000000000000001, Estimate: 3.25})
	f(`limited;at=5;e=21;until=9;rule="a;at=7"`, Verdict{Found: true, Is: judge.Limited, At: 5, Until: 9, Estimate: 21})
	f(`mitigated;at=5;until=9;rule="x"`, Verdict{Found: true, Is: judge.Mitigated, At: 5, Until: 9, Estimate: none})
	f(`shadow; at=5; e=21`, Verdict{Found: true, Shadow: true, At: 5, Estimate: 21})
	f(`open;at=5;until=0;rule="x"`, Verdict{Found: true, At: 5, Estimate: none})
	f(`closed`, Verdict{Found: true, Is: judge.Closed, Estimate: none})
	f(`pass;at=x;e=y;until=-1`, Verdict{Found: true, Estimate: none})
	f(`perhaps;at=5`, Verdict{})
	f(``, Verdict{})
}

// What goes wrong if a status alone were taken for a decision: an origin's own 429 is judged as a block of the limiter's, and the 503 of an
// edge that has no room as a rule that fails closed.
func TestDecisionOfAnswer(t *testing.T) {
	epoch := time.Unix(1700000000, 0)
	asked, sent, answered := 9*time.Second, 10*time.Second, 10*time.Second+4*time.Millisecond
	at := func(d time.Duration) string { return fmt.Sprint("at=", epoch.Add(d).UnixNano()) }
	f := func(name, text string, want judge.Decision, whyNot string) {
		t.Helper()
		var a Answer
		a.Reset(false)
		if err := a.Feed([]byte("HTTP/1.1 " + text)); err != nil {
			t.Fatal(err)
		}
		got, why := a.Decision(epoch, asked, sent, answered)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" || why != whyNot {
			t.Errorf("%s: not judged because of %q, want %q (-want +got):\n%s", name, why, whyNot, diff)
		}
	}
	none := math.NaN()
	middle := func(v judge.Verdict) judge.Decision {
		return judge.Decision{At: 10*time.Second + 2*time.Millisecond, Verdict: v, Estimate: none}
	}
	const limits, closes, other = "\r\n\r\n{\"error\":{\"code\":\"rate_limited\",\"rule\":\"default\"", "\r\n\r\n{\"error\":{\"code\":\"unavailable\",\"rule\":\"default\"",
		"\r\n\r\n{\"error\":{\"code\":\"rate_limited\"}}"

	f("the edge tells", "429 X\r\nSluice-Verdict: limited;"+at(10*time.Second)+fmt.Sprintf(";e=21;until=%d", epoch.Add(70*time.Second).UnixNano())+limits,
		judge.Decision{At: 10 * time.Second, Verdict: judge.Limited, Over: true, Estimate: 21, Until: 70 * time.Second}, "")
	f("in the status that a rule has for it", "403 X\r\nSluice-Verdict: mitigated;until=0\r\n\r\n", middle(judge.Mitigated), "")
	f("shadow", "200 X\r\nSluice-Verdict: shadow;e=3\r\n\r\n", judge.Decision{At: middle(0).At, Verdict: judge.Admitted, Over: true, Estimate: 3}, "")
	f("the origin's trouble is no verdict's", "502 X\r\nSluice-Verdict: pass\r\n\r\n", middle(judge.Admitted), "")
	f("the origin's own 429", "429 X\r\nSluice-Verdict: pass"+limits, middle(judge.Admitted), "")
	f("a refusal that let pass", "200 X\r\nSluice-Verdict: limited\r\n\r\n", middle(judge.Failed), otherStatus)
	f("decided before it was asked", "200 X\r\nSluice-Verdict: pass;"+at(asked-2*ClockSlack)+"\r\n\r\n", middle(judge.Failed), otherTime)
	f("decided after it was answered", "200 X\r\nSluice-Verdict: pass;"+at(answered+2*ClockSlack)+"\r\n\r\n", middle(judge.Failed), otherTime)
	f("before the load generator knew that it was sent", "200 X\r\nSluice-Verdict: pass;"+at(asked)+"\r\n\r\n",
		judge.Decision{At: asked, Verdict: judge.Admitted, Estimate: none}, "")

	f("told by the body", "429 X\r\nRateLimit: x"+limits, middle(judge.Limited), "")
	f("told by RateLimit", "404 X\r\nratelimit: x\r\n\r\n", middle(judge.Admitted), "")
	f("closed, told by the body", "503 X\r\nRetry-After: 2"+closes, middle(judge.Closed), "")
	f("another's refusal", "429 X"+other, middle(judge.Failed), noVerdict)
	f("an origin's 429 behind an edge that admits", "429 X\r\nRateLimit: x"+other, middle(judge.Failed), noVerdict)
	f("an edge without room", "503 X\r\nRetry-After: 1\r\n\r\n{\"error\":{\"code\":\"unavailable\",\"message\":", middle(judge.Failed), noVerdict)
	f("nobody's", "200 X\r\n\r\n", middle(judge.Failed), noVerdict)
	f("bad gateway", "502 X\r\n\r\n", middle(judge.Failed), noVerdict)
}

// Others than Sluice tell by their status alone.
func TestDecisionByStatus(t *testing.T) {
	f := func(status int, want judge.Verdict, whyNot string) {
		t.Helper()
		a := Answer{Status: status}
		if d, why := a.ByStatus(time.Second, 2*time.Second); d.Verdict != want || d.At != 1500*time.Millisecond || why != whyNot {
			t.Errorf("%d: %+v, not judged because of %q", status, d, why)
		}
	}
	f(200, judge.Admitted, "")
	f(404, judge.Admitted, "")
	f(429, judge.Limited, "")
	f(502, judge.Failed, noVerdict)
}

// However an answer is cut into pieces, it is read the same, and nothing makes the reader hang or panic.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), uint8(3), false)
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), uint8(1), false)
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 No\r\nSluice-Verdict: limited;at=1;e=2\r\n\r\n"), uint8(7), true)
	f.Fuzz(func(t *testing.T, text []byte, size uint8, head bool) {
		read := func(size int) (a Answer, failed bool) {
			a.Reset(head)
			for i := 0; i < len(text); i += size {
				if a.Feed(text[i:min(i+size, len(text))]) != nil {
					return a, true
				}
			}
			return a, false
		}
		whole, failed := read(len(text) + 1)
		pieces, failedToo := read(int(size) + 1)
		if failed != failedToo || !failed && (whole.Status != pieces.Status || whole.body != pieces.body || whole.stage != pieces.stage ||
			!bytes.Equal(whole.begin, pieces.begin)) {
			t.Errorf("at once: %v, stage %d, status %d, body %d; in pieces of %d: %v, stage %d, status %d, body %d", failed,
				whole.stage, whole.Status, whole.body, int(size)+1, failedToo, pieces.stage, pieces.Status, pieces.body)
		}
	})
}
