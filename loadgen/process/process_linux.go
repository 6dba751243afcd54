package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"unsafe"
)

// Attributes makes a process lead its own group, and die when the lab does. One that is to be nobody is so from its start: a
// process that changes its user itself forgets that it is to die with its parent (prctl(2), PR_SET_PDEATHSIG).
func Attributes(nobody bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if nobody && os.Geteuid() == 0 {
		id := uint64(65534)
		if u, err := user.Lookup("nobody"); err == nil {
			if n, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
				id = n
			}
		}
		a.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
	}
	return a
}

// LimitDescriptors says how many files a running process may open (prlimit(2)). What it has open stays so.
func LimitDescriptors(pid, n int) error {
	limit := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	var old syscall.Rlimit
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, 0, uintptr(unsafe.Pointer(&old)), 0, 0); errno != 0 {
		return fmt.Errorf("loadgen: limit of descriptors of process %d: %w", pid, errno)
	}
	limit.Max = old.Max // a lower one could not be raised again
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("loadgen: limit process %d to %d descriptors: %w", pid, n, errno)
	}
	return nil
}

// OpenDescriptors is how many files a process has open.
func OpenDescriptors(pid int) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("loadgen: descriptors of process %d: %w", pid, err)
	}
	return len(list), nil
}
