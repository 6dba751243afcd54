//go:build !linux

package process

import (
	"errors"
	"time"
)

var errLinuxOnly = errors.New("loadgen: measuring the cost of processes works on Linux only")

func CPUTime(int) (time.Duration, error) { return 0, errLinuxOnly }
func OwnCPU() time.Duration              { return 0 }
func Memory(int) int64                   { return 0 }
func Pin(int) error                      { return errLinuxOnly }
