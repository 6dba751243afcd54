//go:build !(linux && amd64)

package process

import (
	"errors"
	"time"
)

// StepClock is possible on Linux on amd64 only.
func (p *Process) StepClock(time.Duration) error {
	return errors.New("loadgen: step the clock of a process: this works on Linux on amd64 only")
}
