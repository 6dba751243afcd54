package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logFile writes text to a file of that name in a directory of the test's own.
func logFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		data = b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCLF(t *testing.T) {
	at := func(y int, m time.Month, d, h, min, s int) int64 {
		return time.Date(y, m, d, h, min, s, 0, time.UTC).UnixNano()
	}
	type want struct {
		client, host, method, path string
		status                     int16
		at                         int64
	}
	f := func(line string, w want) {
		t.Helper()
		var r record
		if skipped := new(clfParser).parse([]byte(line), &r); skipped != "" {
			t.Errorf("%s\nskipped: %s", line, skipped)
			return
		}
		got := want{string(r.client), string(r.host), string(r.method), string(r.path), r.status, r.at}
		if diff := cmp.Diff(w, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s\n%s", line, diff)
		}
		if !r.coarse || r.relative {
			t.Errorf("%s\ncoarse %t, relative %t", line, r.coarse, r.relative)
		}
	}
	noon := at(2021, 3, 15, 12, 0, 0)

	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:13:00:00 +0100] "GET /a HTTP/1.1" 200 12 "-" "Mill/1.0 (x; y)"`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:06:30:00 -0530] "POST /a?b=c HTTP/1.0" 302 - "http://x/" "Mill" "-"`, want{"192.0.2.7", "", "POST", "/a?b=c", 302, noon})
	f(`192.0.2.7 - - [29/Feb/2020:23:59:59 +0000] "GET / HTTP/1.1" 200 1`, want{"192.0.2.7", "", "GET", "/", 200, at(2020, 2, 29, 23, 59, 59)})
	f(`192.0.2.7 - - [31/Dec/2016:23:59:60 +0000] "GET / HTTP/1.1" 200 1`, want{"192.0.2.7", "", "GET", "/", 200, at(2016, 12, 31, 23, 59, 59)})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - - [2021-03-15T13:00:00+01:00] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})

	// Who.
	f(`mill.example.net - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"mill.example.net", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - ada [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - ada l [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7 - [x] [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`::1 - - [15/Mar/2021:12:00:00 +0000] "OPTIONS * HTTP/1.0" 200 12`, want{"::1", "", "OPTIONS", "*", 200, noon})
	f(`2001:db8::7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"2001:db8::7", "", "GET", "/a", 200, noon})
	f(`192.0.2.7, 10.0.0.1 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "", "GET", "/a", 200, noon})
	f(`www.example.org:80 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "www.example.org", "GET", "/a", 200, noon})
	f(`www.example.org 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "www.example.org", "GET", "/a", 200, noon})
	f(`www.example.org:443 2001:db8::7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"2001:db8::7", "www.example.org", "GET", "/a", 200, noon})
	f(`www.example.org:443 mill.example.net - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"mill.example.net", "www.example.org", "GET", "/a", 200, noon})
	f(`192.0.2.1:80 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`, want{"192.0.2.7", "192.0.2.1", "GET", "/a", 200, noon})

	// What: odd lines are requests all the same.
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "-" 408 -`, want{"192.0.2.7", "", "", "", 408, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "\x16\x03\x01\"\x01" 400 0`, want{"192.0.2.7", "", "", "", 400, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "\n" 400 3406 "-" "-"`, want{"192.0.2.7", "", "", "", 400, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "" 400 0`, want{"192.0.2.7", "", "", "", 400, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a b c HTTP/1.1" 400 0`, want{"192.0.2.7", "", "", "", 400, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /no-version" 200 0`, want{"192.0.2.7", "", "GET", "/no-version", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "get /a HTTP/1.1" 400 0`, want{"192.0.2.7", "", "", "", 400, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "CONNECT x.example:443 HTTP/1.1" 405 0`, want{"192.0.2.7", "", "", "", 405, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET http://x.example/y HTTP/1.1" 200 0`, want{"192.0.2.7", "", "GET", "/y", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /q?a=\"b\\c HTTP/1.1" 200 0`, want{"192.0.2.7", "", "GET", "/q?a=%22b%5Cc", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /caf\xc3\xa9 HTTP/1.1" 200 0`, want{"192.0.2.7", "", "GET", "/caf%C3%A9", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /caf`+"\xe9"+` HTTP/1.1" 200 0`, want{"192.0.2.7", "", "GET", "/caf%E9", 200, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /never closed`, want{"192.0.2.7", "", "", "", 0, noon})
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000]`, want{"192.0.2.7", "", "", "", 0, noon})
}

func TestCLFSkips(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		if got := new(clfParser).parse([]byte(line), new(record)); got != want {
			t.Errorf("%s\ngot %q, want %q", line, got, want)
		}
	}
	f(`no stamp at all`, SkippedTime)
	f(`192.0.2.7 - - [32/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedTime)
	f(`192.0.2.7 - - [29/Feb/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedTime)
	f(`192.0.2.7 - - [15/Mrz/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedTime)
	f(`192.0.2.7 - - [15/Mar/2021:24:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedTime)
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +00x0] "GET / HTTP/1.1" 200 1`, SkippedTime)
	f(`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000`, SkippedTime)
	f(`[15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedSource)
	f(`, [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, SkippedSource)
}

// A word where the client stands is no client, whoever wrote it there: the line is counted, and more than 1 % of them is an
// error that shows one.
func TestClientIsNoAddress(t *testing.T) {
	const good = `192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`
	for _, line := range []string{
		"nginx ada - " + good[len("192.0.2.7 - - "):], "unix: ada - " + good[len("192.0.2.7 - - "):],
		"Mar 15 12:00:00 mill nginx: unix: - - " + good[len("192.0.2.7 - - "):],
		"Mar 15 12:00:00 mill nginx: mill.example.net - - " + good[len("192.0.2.7 - - "):],
		`Mar 15 12:00:00 mill nginx: - - - [15/Mar/2021:12:00:00 +0000] "GET /?192.0.2.9 - - [15/Mar/2021:12:00:00 +0000] HTTP/1.1" 200 1`,
	} {
		if got := new(clfParser).parse([]byte(line), new(record)); got != SkippedClient {
			t.Errorf("%s: got %q", line, got)
		}
		shown := "line 2: " + strconv.Quote(line[:min(len(line), exampleMax)])
		files := []string{logFile(t, "good.log", good+"\n"), logFile(t, "odd.log", good+"\n"+line+"\n")}
		_, err := Read(ReadOptions{}, files...)
		if err == nil || !strings.Contains(err.Error(), "odd.log: 1 of 2 lines are no requests") || !strings.Contains(err.Error(), shown+": client is no address") ||
			!strings.Contains(err.Error(), "--skip") {
			t.Errorf("%s: %v", line, err)
		}
		trace, err := Read(ReadOptions{Skip: true}, files...)
		if err != nil || len(trace.Requests) != 2 || len(trace.Unread) != 1 || trace.Unread[0] != shown+": client is no address" {
			t.Errorf("%s: %+v, %v", line, trace, err)
		}
		if trace, err = Read(ReadOptions{}, logFile(t, "few.log", strings.Repeat(good+"\n", 99)+line+"\n")); err != nil {
			t.Fatal(err)
		}
		if len(trace.Requests) != 99 || len(trace.Sources) != 1 || trace.Skipped[SkippedClient] != 1 ||
			SkippedText(trace.Skipped) != "client is no address: 1" || len(trace.Unread) != 1 {
			t.Errorf("%s: %d requests, %+v, %v", line, len(trace.Requests), trace.Sources, trace.Skipped)
		}
	}
	for _, file := range []string{
		logFile(t, "a.jsonl", `{"t":1.5,"source":"Mar"}`+"\n"), logFile(t, "a.csv", "1.5,mill\n"),
		logFile(t, "a.log", "1.2.3.999 - - "+good[len("192.0.2.7 - - "):]+"\n"),
	} {
		if _, err := Read(ReadOptions{}, file); err == nil || !strings.Contains(err.Error(), "none of its 1 lines is a request (client is no address: 1)") {
			t.Errorf("%s: %v", file, err)
		}
	}
	named, err := Read(ReadOptions{}, logFile(t, "named.log", strings.Replace(good, "192.0.2.7", "mill.example.net", 1)+"\n"+good+"\n"))
	if err != nil || named.HostNames != 1 || LinesText(named.Skipped, named.HostNames) != "nothing skipped, client by host name: 1" {
		t.Errorf("%+v, %v", named, err)
	}
	_, err = Read(ReadOptions{}, logFile(t, "other.log", "2021-03-15 GET / 192.0.2.7\n"))
	if err == nil || !strings.Contains(err.Error(), `line 1: "2021-03-15 GET / 192.0.2.7": no time: want CLIENT`) {
		t.Error(err)
	}
}

// TestDirtyLog reads a log with all kinds of dirt in it and accounts for every line.
func TestDirtyLog(t *testing.T) {
	text := "\xef\xbb\xbf" + strings.Join([]string{
		`192.0.2.7 - - [15/Mar/2021:12:00:05 +0000] "GET /1 HTTP/1.1" 200 12` + "\r",
		``,
		`192.0.2.8 - - [15/Mar/2021:12:00:07 +0000] "GET /2 HTTP/1.1" 200 12`,
		`192.0.2.7 - - [15/Mar/2021:12:00:01 +0000] "-" 408 -`, // older than the line before
		`- - - [15/Mar/2021:12:00:01 +0000] "GET /4 HTTP/1.1" 200 12`,
		`::ffff:192.0.2.7 - - [15/Mar/2021:12:00:08 +0000] "GET /5 HTTP/1.1" 200 12`,
		`2001:db8:0:1::1 - - [15/Mar/2021:12:00:08 +0000] "GET /6 HTTP/1.1" 200 12`,
		`2001:db8:0:1::2 - - [15/Mar/2021:12:00:09 +0000] "GET /7 HTTP/1.1" 200 12`, // the same /64
		`2001:db8:0:2::1 - - [15/Mar/2021:12:00:10 +0000] "GET /8 HTTP/1.1" 200 12`,
		`mill.example.net - - [15/Mar/2021:12:00:11 +0000] "GET /9 HTTP/1.1" 200 12`,
		`what is this`,
		`192.0.2.9 - - [15/Mar/2021:12:00:12 +0000] "GET /` + strings.Repeat("x", 3*lineMax) + ` HTTP/1.1" 200 12`,
		`192.0.2.9 - - [15/Mar/2021:12:00:13 +0000] "GET /last`, // cut short
	}, "\n")
	trace, err := Read(ReadOptions{Seed: 7, Skip: true}, logFile(t, "dirty.log.gz", text))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{SkippedEmpty: 1, SkippedSource: 1, SkippedTime: 1}; !maps.Equal(trace.Skipped, want) {
		t.Errorf("skipped %v, want %v", trace.Skipped, want)
	}
	if trace.Lines != 13 || len(trace.Requests) != 10 {
		t.Errorf("%d lines, %d requests, want 13 and 10", trace.Lines, len(trace.Requests))
	}
	if want := time.Date(2021, 3, 15, 12, 0, 1, 0, time.UTC); !trace.Start.Equal(want) {
		t.Errorf("start %v, want %v", trace.Start, want)
	}
	var who []string
	var last time.Duration
	for i, r := range trace.Requests {
		who = append(who, trace.Sources[r.Source].Name)
		if r.At < last {
			t.Errorf("request %d at %v is before the one before it", i, r.At)
		}
		last = r.At
		if m, p := r.Line(); m == "" || p == "" {
			t.Errorf("request %d has no line to send", i)
		}
	}
	want := []string{"192.0.2.7", "192.0.2.7", "192.0.2.8", "192.0.2.7", "2001:db8:0:1::1", "2001:db8:0:1::1", "2001:db8:0:2::1",
		"mill.example.net", "192.0.2.9", "192.0.2.9"}
	// Two requests of one second may come in either order.
	if who[3] == "2001:db8:0:1::1" {
		who[3], who[4] = who[4], who[3]
	}
	if diff := cmp.Diff(want, who); diff != "" {
		t.Error(diff)
	}
	for _, s := range trace.Sources {
		if !s.Addr.IsValid() {
			t.Errorf("source %s has no address", s.Name)
		}
	}
}

func TestSpreadOfStamps(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "192.0.2.7 - - [15/Mar/2021:12:00:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", i%10)
	}
	path := logFile(t, "spread.log", b.String())
	read := func(o ReadOptions) *Trace {
		trace, err := Read(o, path)
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	one := read(ReadOptions{Seed: 1})
	if again := read(ReadOptions{Seed: 1}); !cmp.Equal(one.Requests, again.Requests) {
		t.Error("the same seed gives another trace")
	}
	if other := read(ReadOptions{Seed: 2}); cmp.Equal(one.Requests, other.Requests) {
		t.Error("another seed gives the same trace")
	}
	sum := 0.0
	seconds := make(map[int]int)
	for _, r := range one.Requests {
		seconds[int(r.At/time.Second)]++
		sum += (r.At % time.Second).Seconds()
	}
	if mean := sum / 1000; math.Abs(mean-0.5) > 0.05 {
		t.Errorf("mean place in the second %.3f, want about 0.5", mean)
	}
	for s := range 10 {
		if seconds[s] != 100 {
			t.Errorf("second %d has %d requests, want 100", s, seconds[s])
		}
	}
	// A part is spread as the whole is.
	start := one.Start.Add(3 * time.Second)
	part := read(ReadOptions{Seed: 1, From: start, To: start.Add(2 * time.Second)})
	if part.Skipped[SkippedRange] != 800 || len(part.Requests) != 200 || !part.Start.Equal(start) {
		t.Fatalf("part has %d requests from %v, %v", len(part.Requests), part.Start, part.Skipped)
	}
	for i, r := range part.Requests {
		if want := one.Requests[300+i].At - 3*time.Second; r.At != want {
			t.Fatalf("request %d of the part at %v, want %v", i, r.At, want)
		}
	}
}

func TestFold(t *testing.T) {
	a := logFile(t, "a.log", `192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12
192.0.2.7 - - [16/Mar/2021:11:59:00 +0000] "GET /b HTTP/1.1" 200 12
192.0.2.7 - - [16/Mar/2021:12:00:30 +0000] "GET /c HTTP/1.1" 200 12
192.0.2.8 - - [16/Mar/2021:23:59:59 +0000] "GET /d HTTP/1.1" 200 12
`)
	b := logFile(t, "b.log", `192.0.2.7 - - [16/Mar/2022:12:00:10 +0000] "GET /e HTTP/1.1" 200 12`+"\n")
	trace, err := Read(ReadOptions{Fold: true}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range trace.Requests {
		got = append(got, fmt.Sprint(r.At.Truncate(time.Second), r.Path, " ", trace.Sources[r.Source].Name, " ", trace.Sources[r.Source].Addr))
	}
	want := []string{
		"0s/b a.log 2021-03-16 192.0.2.7 192.0.2.7",
		"1m0s/a a.log 2021-03-15 192.0.2.7 192.0.2.7",
		"1m10s/e b.log 2022-03-16 192.0.2.7 192.0.2.7",
		"1m30s/c a.log 2021-03-16 192.0.2.7 192.0.2.7",
		"12h0m59s/d a.log 2021-03-16 192.0.2.8 192.0.2.8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := time.Date(2021, 3, 15, 11, 59, 0, 0, time.UTC); !trace.Start.Equal(want) {
		t.Errorf("start %v, want %v", trace.Start, want)
	}

	noon, err := Read(ReadOptions{Fold: true, FoldFrom: 12 * time.Hour, FoldTo: 13 * time.Hour}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(noon.Requests) != 3 || len(noon.Sources) != 3 || noon.Start.Hour() != 12 || noon.Requests[0].At > time.Second {
		t.Errorf("noon: %d requests, %d sources, from %v, first at %v", len(noon.Requests), len(noon.Sources), noon.Start, noon.Requests[0].At)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	good := logFile(t, "good.log", `192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`+"\n")
	empty := logFile(t, "empty.log", "")
	junk := logFile(t, "junk.log", "what\nis\n\nthis\n")
	broken := logFile(t, "broken.log.gz", strings.Repeat("192.0.2.7 - - [15/Mar/2021:12:00:00 +0000]\n", 50_000))
	data, _ := os.ReadFile(broken)
	os.WriteFile(broken, data[:len(data)-20], 0o600)
	plain := logFile(t, "plain.log", "x")
	os.Rename(plain, plain+".gz")
	mixed := logFile(t, "mixed.jsonl", `{"t":1.5,"source":"192.0.2.7"}`+"\n"+`{"t":1600000000,"source":"192.0.2.7"}`+"\n")

	f := func(want string, o ReadOptions, files ...string) {
		t.Helper()
		trace, err := Read(o, files...)
		if err == nil {
			t.Errorf("%v: no error, %d requests; want %q", files, len(trace.Requests), want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q; want %q in it", files, err, want)
		}
	}
	f("no file given", ReadOptions{})
	f("nowhere.log: no such file", ReadOptions{}, good, filepath.Join(dir, "nowhere.log"))
	f("empty.log: none of its 0 lines is a request", ReadOptions{}, empty)
	f("none of its 4 lines is a request (no time: 3, empty line: 1)", ReadOptions{}, junk)
	f("broken.log.gz: ", ReadOptions{}, broken)
	f("line ", ReadOptions{}, broken)
	f("plain.log.gz: it ends in .gz, but", ReadOptions{}, plain+".gz")
	f("mixed.jsonl: line 2: ", ReadOptions{}, mixed)
	f("no request in the chosen time; it has them from 2021-03-15T12:00:00Z to", ReadOptions{From: time.Unix(0, 0), To: time.Unix(1, 0)}, good)
	f("is not before its end", ReadOptions{From: time.Unix(5, 0), To: time.Unix(5, 0)}, good)
}

func TestJSONAndCSV(t *testing.T) {
	want := []Request{
		{At: 1_250_000_000, Source: 0, Status: 200, Method: "GET", Host: "x.example", Path: "/a,b", Role: Good},
		{At: 2_000_000_001, Source: 1},
	}
	f := func(name, text string, skipped map[string]int) {
		t.Helper()
		trace, err := Read(ReadOptions{Skip: true}, logFile(t, name, text))
		if err != nil {
			t.Error(err)
			return
		}
		if diff := cmp.Diff(want, trace.Requests); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !maps.Equal(trace.Skipped, skipped) {
			t.Errorf("%s: skipped %v, want %v", name, trace.Skipped, skipped)
		}
	}
	f("a.jsonl", `{"t":1.25,"source":"192.0.2.7","host":"x.example","method":"GET","path":"/a,b","status":200,"role":"good","more":[1]}
{"t":2.000000001,"source":"192.0.2.8"}
not json
{"t":"noon","source":"192.0.2.8"}
{"t":3}
`, map[string]int{SkippedSyntax: 1, SkippedTime: 1, SkippedSource: 1})
	f("access.log.1", `{"t":1.25,"source":"192.0.2.7","host":"x.example","method":"GET","path":"/a,b","status":200,"role":"good","sample":10}
{"t":2.000000001,"source":"192.0.2.8","sample":"x"}
`, map[string]int{SkippedSample: 9})
	f("a.csv", `status,source,t,path,x,host,method,role
200,192.0.2.7,1.25,"/a,b",,x.example,GET,good
,192.0.2.8,2.000000001
,192.0.2.8,
,"
`, map[string]int{SkippedComment: 1, SkippedSyntax: 1, SkippedTime: 1})
	f("bare.csv", `1.25,192.0.2.7,x.example,GET,"/a,b",200,good
2.000000001,192.0.2.8
`, map[string]int{})
}

func FuzzCLF(f *testing.F) {
	f.Add([]byte(`www.example.org:80 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /q?a=\"b\xc3 HTTP/1.1" 200 12 "-" "x"`))
	f.Add([]byte(`::1 - - [15/Mar/2021:12:00:00 +0000] "OPTIONS * HTTP/1.0" 200 -`))
	f.Add([]byte(`192.0.2.7 - - [2021-03-15T13:00:00+01:00] "-" 408`))
	f.Fuzz(func(t *testing.T, line []byte) {
		p := new(clfParser)
		var r, again record
		skipped := p.parse(line, &r)
		if skipped != "" && skipped != SkippedTime && skipped != SkippedSource && skipped != SkippedClient && skipped != SkippedEmpty {
			t.Fatalf("skipped for %q", skipped)
		}
		// A parser that has seen other days says the same.
		if p.parse(line, &again) != skipped || skipped == "" && again.at != r.at {
			t.Fatalf("%q read twice gives two records", line)
		}
		if skipped != "" {
			return
		}
		if len(r.client) == 0 || r.at < -int64(2*day) || len(r.method) == 0 != (len(r.path) == 0) {
			t.Fatalf("%q gives %+v", line, r)
		}
		for _, c := range r.path {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("%q gives the target %q", line, r.path)
			}
		}
	})
}

// How clients call themselves is read where it is asked for, of every format that says it.
func TestAgents(t *testing.T) {
	const head, tail = `192.0.2.1 - - [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 5`, "\n"
	files := []string{
		logFile(t, "a.log", head+` "-" "curl/8 \"x\""`+tail+head+` "http://a/\\\"b" "-" 0.003 "-"`+tail+head+tail+head+` "-" "cut off`+tail),
		logFile(t, "b.jsonl", `{"t":1615809601,"source":"192.0.2.2","user_agent":"curl/8 \"y\""}`+tail+`{"t":1615809602,"source":"192.0.2.2"}`+tail),
	}
	lines := func(tr *Trace) (list []string) {
		for i := range tr.Requests {
			list = append(list, tr.Agents[tr.Requests[i].Agent])
		}
		slices.Sort(list)
		return list
	}
	with, err := Read(ReadOptions{Agents: true}, files...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "", "", "", `curl/8 "y"`, `curl/8 \"x\"`}
	if diff := cmp.Diff(want, lines(with)); diff != "" {
		t.Error(diff)
	}
	if without, err := Read(ReadOptions{}, files...); err != nil || without.Agents != nil || without.Requests[0].Agent != 0 {
		t.Errorf("%+v, %v", without, err)
	}
	merged := lines(Merge(&Trace{Name: "made", Requests: []Request{{}}, Sources: []Source{{}}}, with, with))
	if diff := cmp.Diff([]string{`curl/8 "y"`, `curl/8 "y"`, `curl/8 \"x\"`, `curl/8 \"x\"`}, merged[9:]); diff != "" {
		t.Errorf("merged: %s", diff)
	}
}

// A time of day is of the only day of a log, and no answer where there are more.
func TestOneDay(t *testing.T) {
	line := func(day, hour int) string {
		return fmt.Sprintf("192.0.2.%d - - [%d/Mar/2021:%02d:30:00 +0000] \"GET / HTTP/1.1\" 200 5\n", hour, day, hour)
	}
	one := logFile(t, "a.log", line(15, 9)+line(15, 12)+line(15, 13)+line(15, 18))
	f := func(from, to time.Duration, start string, sources ...string) {
		t.Helper()
		tr, err := Read(ReadOptions{OneDay: true, FoldFrom: from, FoldTo: to}, one)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range tr.Requests {
			got = append(got, tr.Sources[tr.Requests[i].Source].Name)
		}
		if diff := cmp.Diff(sources, got); diff != "" || tr.Start.Format(time.RFC3339) != start || tr.Skipped[SkippedRange] != 4-len(sources) {
			t.Errorf("from %v to %v: %s, start %v, skipped %v", from, to, diff, tr.Start, tr.Skipped)
		}
	}
	f(12*time.Hour, 13*time.Hour, "2021-03-15T12:00:00Z", "192.0.2.12")
	f(12*time.Hour, 0, "2021-03-15T12:00:00Z", "192.0.2.12", "192.0.2.13", "192.0.2.18")
	f(0, 12*time.Hour, "2021-03-15T09:30:00Z", "192.0.2.9")
	for text, want := range map[string]string{
		line(15, 9) + line(16, 9): "give a date",
		line(15, 9):               "no request in the chosen time",
	} {
		if _, err := Read(ReadOptions{OneDay: true, FoldFrom: 12 * time.Hour}, logFile(t, "b.log", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := Read(ReadOptions{OneDay: true, FoldFrom: time.Hour}, logFile(t, "c.jsonl", `{"t":1.5,"source":"a"}`+"\n")); err == nil || !strings.Contains(err.Error(), "since its start") {
		t.Errorf("%v", err)
	}
}
