//go:build !linux

package loadgen

import (
	"errors"
	"time"
)

var errLinuxOnly = errors.New("loadgen: measuring the cost of processes works on Linux only")

func cpuTime(int) (time.Duration, error) { return 0, errLinuxOnly }
func ownCPU() time.Duration              { return 0 }
func memoryOf(int) int64                 { return 0 }
func pin(int) error                      { return errLinuxOnly }
