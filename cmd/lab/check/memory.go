package check

import (
	"context"
	"time"

	"sluice/loadgen/process"
)

// PeakMemory watches how much memory a process has until ctx ends.
func PeakMemory(ctx context.Context, pid int) int64 {
	most := process.Memory(pid)
	for process.Pause(ctx, 20*time.Millisecond) == nil {
		most = max(most, process.Memory(pid))
	}
	return most
}
