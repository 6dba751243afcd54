package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// CPUTime is the processor time that a process and its children have used so far, in ns resolution
// (/proc/PID/schedstat; stat counts in hundredths of a second). Threads that have ended are not in
// it.
func CPUTime(pid int) (time.Duration, error) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if len(files) == 0 {
		return 0, fmt.Errorf("loadgen: no processor time of process %d", pid)
	}
	var sum time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has just ended
		}
		used, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("loadgen: %s: %w", f, err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// OwnCPU is the processor time that this process has used so far.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Memory is how much of a process is in memory, in bytes.
func Memory(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// Pin keeps all threads of this process, and those that they start, on one processor.
func Pin(processor int) error {
	var mask [16]uint64
	mask[processor/64] = 1 << (processor % 64)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("loadgen: pin: %w", err)
	}
	for _, t := range tasks {
		tid, _ := strconv.Atoi(t.Name())
		_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(tid),
			unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask[0])))
		if errno != 0 && errno != syscall.ESRCH {
			return fmt.Errorf("loadgen: pin to processor %d: %w", processor, errno)
		}
	}
	return nil
}
