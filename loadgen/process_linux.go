package loadgen

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes makes a process lead its own group, and die when the lab does. One that is to be nobody is so from its start: a
// process that changes its user itself forgets that it is to die with its parent (prctl(2), PR_SET_PDEATHSIG).
func attributes(nobody bool) *syscall.SysProcAttr {
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
