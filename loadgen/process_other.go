//go:build !linux

package loadgen

import "syscall"

// attributes makes a process lead its own group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
