package try

import (
	"testing"
	"time"
)

// An edge that started while a rule was tried is named; one that the try took a moment to reach is not.
func TestLate(t *testing.T) {
	began := time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)
	try := shown{Began: began}
	for edge, after := range map[string]time.Duration{"first": -time.Second, "reached": 2 * time.Second, "restarted": time.Minute} {
		try.take(edge, &Part{Since: began.Add(after)})
	}
	if len(try.Late) != 1 || try.Late[0] != (lateEdge{"restarted", began.Add(time.Minute)}) {
		t.Errorf("%+v", try.Late)
	}
}
