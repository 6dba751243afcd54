//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sluice/edge/control"
)

// Whatever the algorithm, an edge refuses by what another has admitted: both count in one node of memcached.
func TestAlgorithmsOverEdges(t *testing.T) {
	site := origin(t)
	for _, x := range []struct {
		algorithm string
		fields    string
		admits    int
	}{
		{"sliding", "limit: 4, window: 1h", 4},
		{"fixed", "limit: 4, window: " + windowUnderWay(time.Now()).String(), 4},
		{"token_bucket", "limit: 4, window: 1h", 4},
		{"token_bucket", "limit: 10, window: 1h, burst: 4", 4},
		{"leaky_bucket", "limit: 2, window: 1h", 1},
		{"exact", "limit: 4, window: 1h", 4},
	} {
		t.Run(x.algorithm+", "+x.fields, func(t *testing.T) {
			t.Parallel()
			file := write(t, "rules: [{name: r, algorithm: "+x.algorithm+", "+x.fields+", mitigation_timeout: 0}]")
			node := startMemcached(t)
			a, b := start(t, site, "--config", file, "--memcached", node), start(t, site, "--config", file, "--memcached", node)
			a.serves(x.admits)
			if got := a.get(); got != 429 {
				t.Errorf("one more is answered %d", got)
			}
			used := func(p *process) (estimate float64) {
				_, body := p.admin("GET", "/v1/sources/127.0.0.1")
				var looked control.Looked
				if json.Unmarshal([]byte(body), &looked) == nil && len(looked.Rules) == 1 {
					estimate = looked.Rules[0].Estimate
				}
				return estimate
			}
			b.get() // it has not seen the source, and asks
			b.until("told of what the first one has counted", func() bool { return used(b) > float64(x.admits)-0.5 })
			if got := b.get(); got != 429 {
				t.Errorf("on another edge %d, after %v", got, used(b))
			}
			status, body := b.admin("GET", "/v1/rules/r")
			var rule struct{ Algorithm string }
			if err := json.Unmarshal([]byte(body), &rule); err != nil || status != 200 || rule.Algorithm != x.algorithm {
				t.Errorf("%d %s", status, body)
			}
			if got := fmt.Sprint(a.get()); got != "429" {
				t.Errorf("and on the first again %s", got)
			}
		})
	}
}

// windowUnderWay is a window of the clock that does not end soon.
func windowUnderWay(now time.Time) time.Duration {
	window := 24 * time.Hour
	for time.Duration(now.UnixNano())%window > window-time.Hour {
		window -= 91 * time.Minute
	}
	return window
}
