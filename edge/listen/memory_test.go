package listen

import (
	"strings"
	"testing"
	"time"
)

func TestMemoryCap(t *testing.T) {
	start := time.Unix(1000, 0)
	used := uint64(0)
	m := &MemoryCap{Most: 100, Used: func() uint64 { return used }}
	for i, step := range []struct {
		after time.Duration
		used  uint64
		want  bool
	}{
		{0, 100, false},
		{MemoryEvery - 1, 101, false}, // it is not looked up yet
		{MemoryEvery, 101, true},
		{2*MemoryEvery - 1, 1, true},
		{2 * MemoryEvery, 1, false},
	} {
		used = step.used
		if got := m.Exceeded(start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	if none, err := NewMemoryCap(0); none != nil || err != nil || none.Exceeded(start) {
		t.Errorf("without a limit: %v, %v", none, err)
	}
	if _, err := NewMemoryCap(4096); err == nil || !strings.Contains(err.Error(), "limits.memory: three quarters of 4096 bytes are less than") {
		t.Errorf("too little: %v", err)
	}
}
