package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/edge/accesslog"
)

// files keeps what was written to every file that was opened.
type files struct {
	mu   sync.Mutex
	text []*bytes.Buffer
}

type file struct {
	all *files
	buf *bytes.Buffer
}

func (f *files) open() (io.WriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := new(bytes.Buffer)
	f.text = append(f.text, b)
	return file{f, b}, nil
}

func (f file) Write(p []byte) (int, error) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	return f.buf.Write(p)
}

func (f file) Close() error { return nil }

func startLogged(t *testing.T, c accesslog.Config, yaml string) (*edgeUnderTest, *files, func()) {
	config := parse(t, yaml)
	config.Origins = withoutRules(t, startRecorder(t, hello).url()).Origins
	f := &files{}
	l, err := accesslog.Open(c, f.open)
	must(t, err)
	e := serveTest(t, newServer(t, config, func(o *Options) { o.Access = l }))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { l.Run(ctx, func(err error) { t.Error(err) }) })
	return e, f, func() { e.rest(); cancel(); wait.Wait() }
}

func TestAccessLog(t *testing.T) {
	const rules = "source: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h}]"
	requests := func(e *edgeUnderTest) {
		e.get("/a?b=\"\\\x80", "X-Forwarded-For: 192.0.2.1", "User-Agent: x\"y", "Referer: http://a/")
		e.get("/b", "X-Forwarded-For: 192.0.2.1")
		e.raw("GET / oops\r\nHost: a\r\n\r\n")
	}
	e, f, stop := startLogged(t, accesslog.Config{Format: "combined"}, rules)
	requests(e)
	stop()
	got := regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(f.text[0].String(), "[T]")
	want := `192.0.2.1 - - [T] "GET /a?b=\x22\x5c\x80 HTTP/1.1" 200 5 "http://a/" "x\x22y"
192.0.2.1 - - [T] "GET /b HTTP/1.1" 429 N "-" "-"
127.0.0.1 - - [T] "- - -" 400 N "-" "-"
`
	if got = regexp.MustCompile(`(4..) \d+`).ReplaceAllString(got, "$1 N"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	e, f, stop = startLogged(t, accesslog.Config{Format: "json"}, rules)
	requests(e)
	stop()
	var lines []map[string]any
	for line := range strings.Lines(f.text[0].String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, v)
	}
	if len(lines) != 3 || lines[0]["source"] != "192.0.2.1" || lines[0]["path"] != "/a?b=\"\\\ufffd" || lines[0]["status"] != 200.0 || lines[0]["protocol"] != "HTTP/1.1" ||
		lines[0]["verdict"] != "pass" || lines[1]["rule"] != "r" || lines[1]["from"] != "limit" || lines[1]["verdict"] != "limited" || lines[2]["status"] != 400.0 {
		t.Errorf("%v", lines)
	}
	for _, line := range lines {
		if at, err := time.Parse(time.RFC3339, line["time"].(string)); err != nil || len(line["time"].(string)) != len("2006-01-02T15:04:05.000Z") ||
			math.Abs(float64(at.UnixMilli())/1e3-line["t"].(float64)) > 0.001 {
			t.Errorf("time %v, t %v: %v", line["time"], line["t"], err)
		}
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(line["id"].(string)) {
			t.Errorf("%v", line)
		}
	}
}

// A refused request's line says why: rule, verdict, estimate, limit, window and the end of the block; one under a block as well, and one that a
// list refuses, or that nobody judged.
func TestAccessLogSaysWhy(t *testing.T) {
	e, f, stop := startLogged(t, accesslog.Config{Format: "json"}, "source: {trust: [127.0.0.0/8]}\ndeny: [192.0.2.9]\nallow: [192.0.2.8]\n"+
		"rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h}, {name: s, limit: 1, window: 1h, mode: shadow}]")
	until := time.Now().Add(time.Hour)
	for _, who := range []string{"1", "1", "1", "1", "9", "8"} {
		e.get("/", "X-Forwarded-For: 192.0.2."+who, "X-Request-ID: name")
	}
	stop()
	var got []string
	for line := range strings.Lines(f.text[0].String()) {
		var v struct {
			ID, Rule, Verdict string
			Estimate, Window  float64
			Limit             int
			Until             time.Time
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if d := v.Until.Sub(until); !v.Until.IsZero() && (d < -10*time.Second || d > time.Minute) { // when it would be admitted again is known to a bin of the histogram
			t.Errorf("%s", line)
		}
		got = append(got, fmt.Sprintf("%s %s %s %v/%d in %v %v", v.ID, v.Rule, v.Verdict, v.Estimate, v.Limit, v.Window, !v.Until.IsZero()))
	}
	want := []string{"name r pass 1/2 in 3600 false", "name s shadow 2/1 in 3600 true", "name r limited 3/2 in 3600 true", "name r mitigated 2/2 in 3600 true",
		"name  denied 0/0 in 0 false", "name   0/0 in 0 false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A rule that fails open has not let a request pass: it has said nothing. Its verdict is open, in the log and in the metrics, and a request
// that a list refuses is denied.
func TestOpenAndDenied(t *testing.T) {
	c := parse(t, "deny: [127.0.0.9]\nsource: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h, on_store_failure: open}]")
	c.Origins = withoutRules(t, startRecorder(t, hello).url()).Origins
	f := &files{}
	l, err := accesslog.Open(accesslog.Config{Format: "json"}, f.open)
	must(t, err)
	e := serveTest(t, newServer(t, c, func(o *Options) { o.Access, o.Tier.Up = l, func(counter.Source) bool { return false } }))
	for range 3 {
		e.get("/", "X-Forwarded-For: 192.0.2.1")
	}
	e.get("/", "X-Forwarded-For: 127.0.0.9")
	m := e.rest()
	if m["sluice_requests_total{rule=r,verdict=open}"] != 3 || m["sluice_requests_total{rule=r,verdict=pass}"] != 0 || m["sluice_requests_total{rule=,verdict=denied}"] != 1 ||
		m["sluice_store_failure_total{posture=open,rule=r}"] != 3 {
		t.Errorf("%v", m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.Run(ctx, nil)
	if text := f.text[0].String(); strings.Count(text, `"rule":"r","verdict":"open"`) != 3 || strings.Count(text, `"verdict":"denied"`) != 1 {
		t.Errorf("%s", text)
	}
}
