//go:build system

package main

import (
	"strings"
	"syscall"
	"testing"

	"sluice/edge/modules/tracing/collectortest"
)

// An edge replaced by a new process (SIGUSR2) loses no span, and the new one goes on with them. So does the last one at its end.
func TestTracesSurviveUpgrades(t *testing.T) {
	t.Parallel()
	c := collectortest.Start(t)
	l := startLineage(t, origin(t), nil, "--config", write(t, "tracing: {endpoint: \""+c.URL+"\", sample: 1}"))
	asked := 0
	for range 3 {
		for range 5 {
			if status := l.get(); status != 200 {
				t.Errorf("%d", status)
			}
			asked++
		}
		if len(l.pids()) < 3 {
			l.replace()
		}
	}
	l.signal(syscall.SIGTERM)
	l.until("stopped", func() bool { return strings.Count(l.text(), "msg=stopped") == 3 })
	requests, attempts := c.Spans()
	if len(requests) != asked || len(attempts) != asked {
		t.Errorf("%d requests and %d attempts were traced, of %d", len(requests), len(attempts), asked)
	}
	if at := c.Resource(); at["service.name"] != "sluice" || at["service.instance.id"] == "" || at["service.version"] == "" {
		t.Errorf("%v", at)
	}
}
