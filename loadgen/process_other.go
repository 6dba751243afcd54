//go:build !linux

package loadgen

import "syscall"

// attributes makes a process lead its own group.
func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func limitDescriptors(int, int) error  { return errLinuxOnly }
func openDescriptors(int) (int, error) { return 0, errLinuxOnly }
