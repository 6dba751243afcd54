package listen

import (
	"strings"
	"testing"
	"time"
)

func TestMemoryCap(t *testing.T) {
	start := time.Unix(1000, 0)
	used := uint64(0)
	m := &MemoryCap{most: 100, Used: func() uint64 { return used }}
	for i, step := range []struct {
		after time.Duration
		used  uint64
		want  bool
	}{
		{0, 100, false},
		{memoryEvery - 1, 101, false}, // it is not looked up yet
		{memoryEvery, 101, true},
		{2*memoryEvery - 1, 1, true},
		{2 * memoryEvery, 1, false},
	} {
		used = step.used
		if got := m.exceeded(start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	if none, err := newMemoryCap(0); none != nil || err != nil || none.exceeded(start) {
		t.Errorf("without a limit: %v, %v", none, err)
	}
	if _, err := newMemoryCap(4096); err == nil || !strings.Contains(err.Error(), "limits.memory: three quarters of 4096 bytes are less than") {
		t.Errorf("too little: %v", err)
	}
}
