package loadgen

import "syscall"

// attributes makes a process lead its own group, and die when the lab does.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
