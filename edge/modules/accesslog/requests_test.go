package accesslog_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/modules/accesslog/accesslogtest"
)

func TestAccessLog(t *testing.T) {
	const rules = "source: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h}]"
	requests := func(e *edgetest.Edge) {
		e.Get("/a?b=\"\\\x80", "X-Forwarded-For: 192.0.2.1", "User-Agent: x\"y", "Referer: http://a/")
		e.Get("/b", "X-Forwarded-For: 192.0.2.1")
		e.Raw("GET / oops\r\nHost: a\r\n\r\n")
	}
	e, f, stop := accesslogtest.Start(t, "combined", rules)
	requests(e)
	stop()
	got := regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(f.Text[0].String(), "[T]")
	want := `192.0.2.1 - - [T] "GET /a?b=\x22\x5c\x80 HTTP/1.1" 200 5 "http://a/" "x\x22y"
192.0.2.1 - - [T] "GET /b HTTP/1.1" 429 N "-" "-"
127.0.0.1 - - [T] "- - -" 400 N "-" "-"
`
	if got = regexp.MustCompile(`(4..) \d+`).ReplaceAllString(got, "$1 N"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	e, f, stop = accesslogtest.Start(t, "json", rules)
	requests(e)
	stop()
	var lines []map[string]any
	for line := range strings.Lines(f.Text[0].String()) {
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

// No password is in the log that a refused request has before a host.
func TestAccessLogWithoutPasswords(t *testing.T) {
	for _, format := range []string{"combined", "json"} {
		e, f, stop := accesslogtest.Start(t, format, "")
		for _, head := range []string{"GET http://u:PASSWORD@h/x HTTP/1.1\r\nHost: h", "GET /x HTTP/1.1\r\nHost: u:PASSWORD@h", "CONNECT u:PASSWORD@h:443 HTTP/1.1\r\nHost: h",
			"GET u:PASSWORD@h HTTP/1.1\r\nHost: h", "GET /x HTTP/1.1\r\nHost: h\r\nReferer: http://u:PASSWORD@h/"} {
			e.Raw(head + "\r\nConnection: close\r\n\r\n")
		}
		stop()
		if text := f.Text[0].String(); strings.Contains(text, "PASSWORD") || strings.Count(text, "\n") != 5 {
			t.Errorf("%s:\n%s", format, text)
		}
	}
}

// A request that a rule sends elsewhere is told from one that it refuses.
func TestAccessLogHasAction(t *testing.T) {
	e, f, stop := accesslogtest.Start(t, "json", "rules:\n  - {name: away, match: {path: /a}, limit: 1, action: redirect, response: {location: 'https://a.example/'}}\n"+
		"  - {name: no, match: {path: /b}, limit: 1}")
	for _, path := range []string{"/a", "/a", "/a", "/b", "/b"} {
		e.Get(path)
	}
	stop()
	var got []string
	for line := range strings.Lines(f.Text[0].String()) {
		var v struct{ Verdict, Action string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, v.Verdict+" "+v.Action)
	}
	if d := cmp.Diff([]string{"pass ", "limited redirect", "mitigated redirect", "pass ", "limited "}, got); d != "" {
		t.Error(d)
	}
}

// A refused request's line says why: rule, verdict, estimate, limit, window and the end of the block; one under a block as well, and one that a
// list refuses, or that nobody judged.
func TestAccessLogSaysWhy(t *testing.T) {
	e, f, stop := accesslogtest.Start(t, "json", "source: {trust: [127.0.0.0/8]}\ndeny: [192.0.2.9]\nallow: [192.0.2.8]\n"+
		"rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h}, {name: s, limit: 1, window: 1h, mode: shadow}]")
	until := time.Now().Add(time.Hour)
	for _, who := range []string{"1", "1", "1", "1", "9", "8"} {
		e.Get("/", "X-Forwarded-For: 192.0.2."+who, "X-Request-ID: name")
	}
	stop()
	var got []string
	for line := range strings.Lines(f.Text[0].String()) {
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
	e, f, stop := accesslogtest.Start(t, "json", "deny: [127.0.0.9]\nsource: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h, on_store_failure: open}]",
		func(o *edge.Options) { o.Tier.Up = func(counter.Source) bool { return false } })
	for range 3 {
		e.Get("/", "X-Forwarded-For: 192.0.2.1")
	}
	e.Get("/", "X-Forwarded-For: 127.0.0.9")
	m := e.Rest()
	if m["sluice_requests_total{rule=r,verdict=open}"] != 3 || m["sluice_requests_total{rule=r,verdict=pass}"] != 0 || m["sluice_requests_total{rule=,verdict=denied}"] != 1 ||
		m["sluice_store_failure_total{posture=open,rule=r}"] != 3 {
		t.Errorf("%v", m)
	}
	stop()
	if text := f.Text[0].String(); strings.Count(text, `"rule":"r","verdict":"open"`) != 3 || strings.Count(text, `"verdict":"denied"`) != 1 {
		t.Errorf("%s", text)
	}
}
