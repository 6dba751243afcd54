package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Attributes makes a process lead its own group, and die when the lab does. One that is to be
// nobody is so from its start: a process that changes its user itself forgets that it is to die
// with its parent (prctl(2), PR_SET_PDEATHSIG).
func Attributes(nobody bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if nobody && CanBeNobody() {
		id := nobodyID()
		a.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	return a
}

func nobodyID() uint32 {
	if u, err := user.Lookup("nobody"); err == nil {
		if n, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			return uint32(n)
		}
	}
	return 65534
}

// CanBeNobody reports whether this process may start others as nobody: root may, unless his user
// namespace has no such user.
func CanBeNobody() bool {
	if os.Geteuid() != 0 {
		return false
	}
	// Lines of: first number here, first number outside, how many
	table, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(table)) {
		var here, outside, n uint32
		if _, err := fmt.Sscan(line, &here, &outside, &n); err == nil && nobodyID()-here < n {
			return true
		}
	}
	return false
}
