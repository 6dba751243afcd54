package rules_test

import (
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// Clients are told in which unit a limit is, and of which partition what is left is, unless that is
// a secret or nothing that they can know.
func TestUnitAndPartition(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	long := "/" + strings.Repeat("a", 200)
	for rule, want := range map[string][3]string{
		"cost: {bytes: 1}":                  {`"r";q=10;qu="content-bytes";w=3600`, `"r";r=7;t=3600`, "7"},
		"cost: {bytes: 2}":                  {`"r";q=20;qu="content-bytes";w=3600`, `"r";r=16;t=3600`, "8"},
		"cost: 3":                           {`"r";q=10;w=3600`, `"r";r=7;t=3600`, "7"},
		"key: path":                         {`"r";q=10;w=3600`, `"r";r=9;t=3600;pk=:L2EvYg==:`, "9"},
		"key: [host, source, \"path:1\"]":   {`"r";q=10;w=3600`, `"r";r=9;t=3600;pk=:aC5leGFtcGxlIC9h:`, "9"},
		"key: global":                       {`"r";q=10;w=3600`, `"r";r=9;t=3600`, "9"},
		"key: [path, \"header:X-Api-Key\"]": {`"r";q=10;w=3600`, `"r";r=9;t=3600`, "9"},
		"key: path, match: {path: \"~^/a+$\"}, cost: 2": {`"r";q=10;w=3600`, `"r";r=8;t=3600`, "8"},
	} {
		e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 10, window: 1h, mitigation_timeout: 0, "+rule+"}]\n")
		path := "/a/b"
		if strings.Contains(rule, "match") {
			path = long
		}
		resp, _ := e.Talk().Say("POST " + path + " HTTP/1.1\r\nHost: h.example\r\nX-Api-Key: secret\r\nContent-Length: 3\r\n\r\nabc")
		got := [3]string{resp.Header.Get("RateLimit-Policy"), resp.Header.Get("RateLimit"), resp.Header.Get("X-RateLimit-Remaining")}
		if got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
