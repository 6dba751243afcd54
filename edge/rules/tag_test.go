package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/rules"
)

// What is over the limit of a rule that tags goes on with a header, and so does all of a mitigated source; the client's own word never does.
func TestTag(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
rules:
- {name: soft, limit: 1, window: 1h, action: tag, tag: {header: X-Over, value: soft}}
- {name: softer, limit: 2, window: 1h, action: tag, tag: {header: X-Over, value: softer}}
- {name: other, limit: 1, window: 1h, action: tag}
- {name: hard, limit: 3, window: 1h}
`)
	for n, want := range []struct {
		status int
		tags   string
		left   string // of hard
	}{{200, "", "2"}, {200, "X-Over: soft, X-Sluice-Verdict: over", "1"}, {200, "X-Over: soft, X-Sluice-Verdict: over", "0"}, {429, "", "0"}} {
		resp, _ := e.Get("/", "x_over: a", "X-Over: b", "X-Sluice-Verdict: c")
		if resp.StatusCode != want.status || resp.Header.Get("X-RateLimit-Remaining") != want.left || !strings.HasPrefix(resp.Header.Get("RateLimit-Policy"), `"hard"`) {
			t.Errorf("request %d: %d %v, want %d with %s left", n, resp.StatusCode, resp.Header, want.status, want.left)
		}
		var tags []string
		if got := o.Requests(); want.status == 200 {
			if len(got) != n+1 {
				t.Fatalf("the origin got %d requests", len(got))
			}
			for line := range strings.Lines(got[n]) {
				if lower := strings.ToLower(line); strings.HasPrefix(lower, "x-over") || strings.HasPrefix(lower, "x_over") || strings.HasPrefix(lower, "x-sluice") {
					tags = append(tags, strings.TrimSpace(line))
				}
			}
		}
		if got := strings.Join(tags, ", "); got != want.tags {
			t.Errorf("request %d: the origin was told %q, want %q", n, got, want.tags)
		}
		for name := range resp.Header {
			if name == "X-Over" || name == "X-Sluice-Verdict" {
				t.Errorf("request %d: the client is told %s", n, name)
			}
		}
	}
	m := e.Rest()
	// The fourth was refused: what tags says nothing against it but that its source is mitigated.
	if m["sluice_requests_total{rule=soft,verdict=tagged}"] != 2+1 || m["sluice_requests_total{rule=soft,verdict=pass}"] != 1 ||
		m["sluice_requests_total{rule=soft,verdict=mitigated}"]+m["sluice_requests_total{rule=soft,verdict=limited}"] != 0 ||
		m["sluice_mitigations_started_total{rule=soft,by=edge,mode=enforce}"]+m["sluice_mitigations_started_total{by=edge,mode=enforce,rule=soft}"] != 1 {
		t.Errorf("%v", m)
	}
}

// Who is blocked by a rule that tags is refused nothing, and operators are told so.
func TestTagIsToldOfBlocks(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules:
- {name: soft, limit: 1, window: 1h, action: tag}
- {name: slow, limit: 9, window: 1s, algorithm: token_bucket, action: delay}
`)
	e.Get("/")
	e.Get("/")
	for _, rule := range []string{"soft", "slow", control.AllRules} {
		m, err := e.Block(rule, "192.0.2.7", time.Hour, "", control.Operator{}, time.Now())
		if want := map[string]rules.Action{"soft": rules.Tag}[rule]; err != nil || m.Action != cmp.Or(want, rules.Refuse) || (m.Warning != "") != (want == rules.Tag) {
			t.Errorf("a block under %s: %v, %+v", rule, err, m)
		}
	}
	var got []string
	for _, m := range e.Mitigations(time.Now()) {
		got = append(got, fmt.Sprint(m.Rule, " ", m.Source, " ", m.Mode, " ", m.Action))
	}
	slices.Sort(got)
	if want := "[* 192.0.2.7 enforce refuse slow 192.0.2.7 enforce refuse soft 127.0.0.1 enforce tag soft 192.0.2.7 enforce tag]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Nor does a trailer of that name reach the origin.
func TestTagTrailer(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 9, action: tag}]\n")
	c := e.Talk()
	c.Say("POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sluice-Verdict, X-Mine\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sluice-Verdict: none\r\nX-Mine: b\r\n\r\n")
	if got := strings.Join(o.Requests(), ""); strings.Contains(got, "X-Sluice-Verdict") || !strings.Contains(got, "X-Mine: b") {
		t.Errorf("the origin got %q", got)
	}
}

// A proxy that asks is told in the answer.
func TestTagChecked(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "check_path: /check\nrules: [{name: r, limit: 1, window: 1h, action: tag}]\n")
	for n, want := range []string{"", "over", "over"} {
		if resp, _ := e.Get("/check"); resp.StatusCode != 200 || resp.Header.Get("X-Sluice-Verdict") != want {
			t.Errorf("check %d: %d %q, want 200 %q", n, resp.StatusCode, resp.Header.Get("X-Sluice-Verdict"), want)
		}
	}
}
