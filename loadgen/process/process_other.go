//go:build !linux

package process

import "syscall"

// Attributes makes a Process lead its own group.
func Attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// CanBeNobody reports whether this process may start others as nobody.
func CanBeNobody() bool { return false }
