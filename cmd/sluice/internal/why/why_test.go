package why

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// entry is a line of the log as an edge writes it.
func entry(at, edge, source, rest string) string {
	return fmt.Sprintf(`{"time":"2026-05-04T%sZ","t":1,"id":"id-%s","edge":"%s","source":"%s","status":200%s}`+"\n", at, at, edge, source, rest)
}

const (
	passed    = `,"rule":"login","verdict":"pass","estimate":1.00,"limit":2,"window":60`
	started   = `,"rule":"login","verdict":"limited","estimate":3.00,"limit":2,"window":60,"until":"2026-05-04T14:06:04.500Z"`
	mitigated = `,"rule":"login","verdict":"mitigated","estimate":2.00,"limit":2,"window":60,"until":"2026-05-04T14:06:04.501Z"`
)

// Two edges' logs: the source comes, is blocked at one and refused at both, and comes again.
var first = entry("13:50:00.000", "a", "192.0.2.7", passed) +
	entry("14:05:01.000", "a", "192.0.2.7", passed) +
	entry("14:05:02.000", "a", "192.0.2.70", passed) +
	entry("14:05:04.500", "a", "192.0.2.7", started) +
	entry("14:05:05.000", "a", "192.0.2.7", mitigated+`,"sample":10`) +
	entry("14:07:00.000", "a", "192.0.2.7", passed)

var second = entry("14:05:03.000", "b", "192.0.2.7", passed) +
	entry("14:06:01.000", "b", "192.0.2.7", mitigated) +
	entry("14:06:30.000", "b", "192.0.2.7", `,"verdict":"denied"`) +
	"127.0.0.1 - - [T] \"GET / HTTP/1.1\" 200 5\n"

// Lines with a word where the client stands, or before the whole of it, are counted, and more than 1 % of them is an error that shows one.
func TestStrangeLines(t *testing.T) {
	q := Question{Source: netip.MustParsePrefix("192.0.2.7/32")}
	good := strings.Repeat(entry("14:05:01.000", "a", "192.0.2.7", passed), 99)
	for _, odd := range []string{entry("14:05:01.000", "a", "mill", passed), "May  4 14:05:01 mill sluice: " + entry("14:05:01.000", "a", "192.0.2.7", passed)} {
		s, err := Explain(q, strings.NewReader(good+odd))
		if err != nil || s.Strange != 1 || s.Bad != 1 || s.Requests != 99 || !strings.Contains(text(t, s), "1 of 100 lines are no access log in JSON") {
			t.Errorf("%q: %+v, %v", odd, s, err)
		}
		_, err = Explain(q, strings.NewReader(good), strings.NewReader(odd+odd))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line 100: %.160q: its source is no address", odd[:len(odd)-1])) || !strings.Contains(err.Error(), "2 of 101 lines") {
			t.Errorf("%q: %v", odd, err)
		}
	}
	combined := "192.0.2.7 - - [04/May/2026:14:05:01 +0000] \"GET / HTTP/1.1\" 200 5\n"
	if _, err := Explain(q, strings.NewReader(combined)); err == nil || !strings.Contains(err.Error(), "access_log.format: json") {
		t.Error(err)
	}
}

func explain(t *testing.T, q Question, logs ...string) *Story {
	t.Helper()
	var readers []io.Reader
	for _, l := range logs {
		readers = append(readers, strings.NewReader(l))
	}
	s, err := Explain(q, readers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func text(t *testing.T, s *Story) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestStory(t *testing.T) {
	source := netip.MustParsePrefix("192.0.2.7/32")
	at, _ := time.Parse("15:04", "14:05")
	want := `192.0.2.7, from 2026-05-04 13:55:00Z to 2026-05-04 14:15:00Z
1 of 10 lines are no access log in JSON (access_log.format: json)
first seen 2026-05-04 13:50:00Z, last 2026-05-04 14:07:00Z: 17 requests, 13 refused
the log holds a sample: about 9 of them are not in it, and counted by the lines that stand for them
  2026-05-04 14:05Z  13 requests, 11 refused
  2026-05-04 14:06Z  2 requests, 2 refused
  2026-05-04 14:07Z  1 request
2026-05-04 14:05:04.500Z blocked by rule login, until 2026-05-04 14:06:04.500Z
  with request id-14:05:04.500 at edge a: 3 requests in 1m0s, 2 are allowed
  12 requests refused under it, the last at 2026-05-04 14:06:01.000Z
  then: admitted again at 2026-05-04 14:07:00.000Z
refused by the list deny: 1 request, from 2026-05-04 14:06:30.000Z to 2026-05-04 14:06:30.000Z
`
	for _, q := range []Question{{Source: source, At: at, Clock: true}, {Source: source, At: time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)}} {
		for _, logs := range [][]string{{first, second}, {second, first}} {
			if d := cmp.Diff(want, text(t, explain(t, q, logs...))); d != "" {
				t.Error(d)
			}
		}
	}
	// Without a time it is about the latest refusal; with the other edge's log alone nobody knows how the block began.
	s := explain(t, Question{Source: source, Around: time.Minute}, second)
	if got := text(t, s); !strings.Contains(got, "from 2026-05-04 14:05:30Z to 2026-05-04 14:07:30Z") || !strings.Contains(got, "  began elsewhere: ") ||
		!strings.Contains(got, "no request that was admitted") {
		t.Errorf("%s", got)
	}
	if b, err := json.Marshal(s); err != nil || !strings.Contains(string(b), `"source":"192.0.2.7/32"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// Shadows, throttles, prefixes, and who is not there.
func TestOtherStories(t *testing.T) {
	log := entry("10:00:00.000", "a", "2001:db8::1", `,"protocol":"HTTP/2.0","rule":"s","verdict":"shadow","estimate":4.00,"limit":3,"window":10,"until":"2026-05-04T10:00:20Z"`) +
		entry("10:00:01.000", "a", "2001:db8::2", `,"rule":"s","verdict":"shadow","estimate":3.00,"limit":3,"window":10,"until":"2026-05-04T10:00:20Z"`) +
		entry("10:00:02.000", "a", "2001:db8::1", `,"rule":"t","verdict":"limited","estimate":9.00,"limit":8,"window":10`) +
		entry("10:00:03.000", "a", "2001:db8::1", `,"rule":"c","verdict":"closed"`)
	want := `2001:db8::/64, from 2026-05-04 09:50:03Z to 2026-05-04 10:10:03Z
first seen 2026-05-04 10:00:00Z, last 2026-05-04 10:00:03Z: 4 requests, 2 refused, 1 by HTTP/2
  2026-05-04 10:00Z  4 requests, 2 refused
2026-05-04 10:00:00.000Z would have been blocked by rule s, until 2026-05-04 10:00:20.000Z
  with request id-10:00:00.000 at edge a: 4 requests in 10s, 3 are allowed
over the limit of rule t, which throttles and does not block: 1 request, from 2026-05-04 10:00:02.000Z to 2026-05-04 10:00:02.000Z
refused by rule c, because no node of the tier answered: 1 request, from 2026-05-04 10:00:03.000Z to 2026-05-04 10:00:03.000Z
`
	if d := cmp.Diff(want, text(t, explain(t, Question{Source: netip.MustParsePrefix("2001:db8::/64")}, log))); d != "" {
		t.Error(d)
	}
	nobody := explain(t, Question{Source: netip.MustParsePrefix("198.51.100.1/32")}, log)
	if got := text(t, nobody); got != "198.51.100.1\nno request of it in 4 lines\n" {
		t.Errorf("%s", got)
	}
	if _, err := Explain(Question{}, strings.NewReader(strings.Repeat("x", 2<<20))); err == nil {
		t.Error("a line of two megabytes is read")
	}
}

// The request that began a block is found behind those that were refused under it: in the same millisecond, or by the clock of another edge.
func TestBlockBeginsLate(t *testing.T) {
	q := Question{Source: netip.MustParsePrefix("192.0.2.7/32")}
	for _, earlier := range []string{"14:05:04.500", "14:05:04.480"} {
		s := explain(t, q, entry(earlier, "b", "192.0.2.7", mitigated), entry("14:05:04.500", "z", "192.0.2.7", started))
		if len(s.Blocks) != 1 || !s.Blocks[0].Known || s.Blocks[0].Edge != "z" || s.Blocks[0].Estimate != 3 || s.Blocks[0].Refused != 2 {
			t.Errorf("%s: %+v", earlier, s.Blocks)
		}
	}
}
