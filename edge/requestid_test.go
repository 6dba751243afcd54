package edge_test

import (
	"regexp"
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/edgetest"
)

// Answer and origin have the same name for a request. A trusted peer's is kept; others' end at the edge, and so does an origin's.
func TestRequestID(t *testing.T) {
	names := regexp.MustCompile(`(?m)^X-Request-ID: (.*)\r$`)
	origin := edgetest.StartRecorder(t, func(int, string) string {
		return "HTTP/1.1 200 OK\r\nX-Request-Id: origin\r\nContent-Length: 2\r\n\r\nok"
	})
	own := regexp.MustCompile(`^[0-9a-f]{32}$`)
	long := strings.Repeat("x", edge.MaxRequestID)
	seen := make(map[string]bool)
	for _, test := range []struct {
		yaml, header string
		want         string // "": a name of the edge's own
	}{
		{"", "A: b", ""},
		{"", "X-Request-ID: client", ""},
		{"source: {trust: [127.0.0.0/8]}", "A: b", ""},
		{"source: {trust: [127.0.0.0/8]}", "x-request-id: req-1/a=b", "req-1/a=b"},
		{"source: {trust: [127.0.0.0/8]}", "X-Request-ID: two words", ""},
		{"source: {trust: [127.0.0.0/8]}", "X-Request-ID: \xff", ""},
		{"source: {trust: [127.0.0.0/8]}", "X-Request-ID: " + long, long},
		{"source: {trust: [127.0.0.0/8]}", "X-Request-ID: x" + long, ""},
		{"source: {trust: [127.0.0.0/8]}", "X_Request_ID: a", ""},
		{"source: {trust: [127.0.0.0/8]}", "X-Request-ID: kept\r\nConnection: x-request-id", "kept"},
		{"deny: [127.0.0.0/8]", "A: b", ""},
		{"rules: [{name: r, limit: 1, window: 1h}]", "A: b", ""},
	} {
		e := edgetest.Start(t, origin.URL(), test.yaml)
		before := len(origin.Got)
		for range 2 {
			resp, _ := e.Get("/", test.header)
			got := resp.Header["X-Request-Id"]
			if len(got) != 1 || test.want != "" && got[0] != test.want || test.want == "" && !own.MatchString(got[0]) {
				t.Errorf("%s, %q: answer %q", test.yaml, test.header, got)
				continue
			}
			if seen[got[0]] && test.want == "" {
				t.Errorf("%s, %q: %s twice", test.yaml, test.header, got[0])
			}
			seen[got[0]] = true
			if all := origin.Got; resp.StatusCode == 200 {
				sent := names.FindAllStringSubmatch(all[len(all)-1], -1)
				if len(sent) != 1 || sent[0][1] != got[0] || strings.Contains(strings.ToLower(all[len(all)-1]), "x_request_id") {
					t.Errorf("%s, %q: the origin got\n%s", test.yaml, test.header, all[len(all)-1])
				}
			} else if len(all) > before+1 {
				t.Errorf("%s: %d", test.yaml, resp.StatusCode)
			}
		}
	}
	e := edgetest.Start(t, origin.URL(), "")
	if resp, _ := e.Talk().Say("GET / oops\r\nHost: a\r\n\r\n"); !own.MatchString(resp.Header.Get("X-Request-ID")) {
		t.Errorf("a malformed request is answered %v", resp.Header)
	}
}

// Naming a request allocates nothing.
func TestRequestNamesAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 32)
	if allocs := testing.AllocsPerRun(100, func() { buf = edge.AppendRequestName(buf[:0]) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
	if len(buf) != 32 {
		t.Errorf("%s", buf)
	}
}
