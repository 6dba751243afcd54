package edge

import (
	"testing"
	"time"
)

// The refusal that starts a mitigation closes its connection; after it the source gets no answer until it is lifted.
func TestShedConnections(t *testing.T) {
	o := startRecorder(t, hello)
	for yaml, closes := range map[string]bool{
		"shed: connection\nrules: [{name: r, limit: 1, window: 1h}]":                                 true,
		"rules: [{name: r, limit: 1, window: 1h}]":                                                   false,
		"shed: connection\nrules: [{name: r, match: {methods: [GET]}, limit: 1, window: 1h}]":        false,
		"shed: connection\nsource: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h}]": false,
		"shed: connection\nrules: [{name: r, limit: 1, window: 1h, mitigation_timeout: 0s}]":         false,
	} {
		e := startEdge(t, o.url(), yaml)
		c := e.talk()
		c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, _ := c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp.StatusCode != 429 || resp.Close != closes {
			t.Errorf("%s: %d, close %t", yaml, resp.StatusCode, resp.Close)
		}
		if got := e.raw(plainGet); (got == "") != closes {
			t.Errorf("%s: a new connection got %q", yaml, got)
		}
		if closes {
			now := e.Mitigations(time.Now())
			if len(now) != 1 || e.metrics()["sluice_connections_refused_total{cap=mitigated}"] == 0 {
				t.Errorf("%v %v", now, e.metrics())
			}
		}
	}
}
