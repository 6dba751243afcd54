package trace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPeaks(t *testing.T) {
	trace := &Trace{Sources: make([]Source, 2)}
	for _, at := range []time.Duration{0, 1, 2, 10, 11, 12, 13, 30} {
		trace.Requests = append(trace.Requests, Request{At: at, Source: 0})
	}
	trace.Requests = append(trace.Requests, Request{At: 31, Source: 1})
	if diff := cmp.Diff([]uint32{4, 1}, trace.Peaks(3)); diff != "" {
		t.Errorf("within 3 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{3, 1}, trace.Peaks(2)); diff != "" {
		t.Errorf("within 2 (-want +got):\n%s", diff)
	}
}
