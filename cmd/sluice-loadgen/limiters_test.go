//go:build system

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/loadgen/report"
)

// Each limiter is the real program: it gets the whole trace, refuses, and is measured and named with its version. What goes wrong if the trace went
// to one instance alone: nginx lets pass no more than twice the limit in a window. If it were judged by what each counts alone: nobody is wrong.
func TestLabOfLimiters(t *testing.T) {
	t.Parallel()
	dir := labtest.PlainTrials(t)
	file := filepath.Join(t.TempDir(), "report.json")
	p := labtest.Start(t, dir, "sluice-loadgen", "--limiter", "sluice,sluice-throttle,nginx,haproxy,envoy-ratelimit", "--ratelimit", labtest.RateLimit(t), "--memcached", "1",
		"--workload", "constant", "--duration", "2s", "--limit", "20", "--window", "1s", "--mitigation-timeout", "1s", "--json", file, "--html", file+".html")
	if err := sound(p.Wait()); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	for _, want := range []string{"limiter  ", "let pass over", "no client errors", "nginx 1.", "haproxy 2.", "envoyproxy/ratelimit v1.", "memcached 1.", "limit_req rate=20r/s", "is blocked for 1s", "is throttled"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, p.Out)
		}
	}
	b, err := os.ReadFile(file)
	must(t, err)
	var r report.Report
	must(t, json.Unmarshal(b, &r))
	if len(r.Rivals) != 5 {
		t.Fatalf("%d limiters, want 5", len(r.Rivals))
	}
	for _, v := range r.Rivals {
		f := v.Figures
		if f.Requests != 2400 || f.Failed > 0 || f.Admitted == 0 || f.Refused < f.Requests/2 || !(v.CPU > 0) || v.Errors > 0 {
			t.Errorf("%s: of %d requests %d admitted, %d refused, %d without a verdict; %v s of processor time each", v.Limiter, f.Requests, f.Admitted, f.Refused, f.Failed, v.CPU)
		}
		if n := f.TimeToBlockExact.FirstEdge.N; n == 0 {
			t.Errorf("%s: no time to block", v.Limiter)
		}
		if v.Limiter == "nginx" && f.WorstWindow <= 40 {
			t.Errorf("three nginx that know nothing of each other let at most %d requests pass in a window", f.WorstWindow)
		}
	}
	page, err := os.ReadFile(file + ".html")
	must(t, err)
	if !strings.Contains(string(page), "envoy-ratelimit") {
		t.Errorf("the page does not name all")
	}
}
