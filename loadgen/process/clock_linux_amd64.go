package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A program asks for the time in the vDSO, code that the kernel maps into each process. StepClock
// changes that code in one process, as a debugger sets a breakpoint: the kernel gives the process a
// copy of the page. So the program itself needs no switch for it, which would be there in
// production as well, and no clock but its own is changed.

// fakeClock is clock_gettime(2) for the end of the vDSO, where its pages are empty. It asks the
// kernel, and adds to the wall clock what the last 16 bytes say: whole seconds and the nanoseconds
// above them.
var fakeClock = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
	0x75, 0x30, // jne done
	0x85, 0xc0, // test eax, eax
	0x75, 0x2c, // jne done
	0x48, 0x8b, 0x0d, 0x2a, 0, 0, 0, // mov rcx, seconds
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0x48, 0x8b, 0x0d, 0x28, 0, 0, 0, // mov rcx, nanoseconds
	0x48, 0x03, 0x4e, 0x08, // add rcx, [rsi+8]
	0x48, 0x81, 0xf9, 0x00, 0xca, 0x9a, 0x3b, // cmp rcx, 1000000000
	0x7c, 0x0a, // jl store
	0x48, 0x81, 0xe9, 0x00, 0xca, 0x9a, 0x3b, // sub rcx, 1000000000
	0x48, 0xff, 0x06, // inc qword [rsi]
	0x48, 0x89, 0x4e, 0x08, // store: mov [rsi+8], rcx
	0xc3, // done: ret
}

const (
	fakeClockBytes = 80 // with its two numbers
	jumpBytes      = 5  // of the jump to it
)

// StepClock steps the wall clock that a running process sees, as it reads it by clock_gettime(2),
// which programs in Go do. Steps add up; a process that is started anew has the system's clock.
func (p *Process) StepClock(by time.Duration) error {
	p.mu.Lock()
	running := p.command != nil
	pid := 0
	if running {
		pid = p.command.Process.Pid
	}
	p.mu.Unlock()
	if _, runs := p.Running(); !running || !runs {
		return fmt.Errorf("loadgen: step the clock of %s: it does not run", p.Name)
	}
	if err := stepClock(pid, by); err != nil {
		return fmt.Errorf("loadgen: step the clock of %s: %w", p.Name, err)
	}
	return nil
}

func stepClock(pid int, by time.Duration) error {
	from, to, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	code := make([]byte, to-from)
	if _, err := mem.ReadAt(code, int64(from)); err != nil {
		return err
	}
	entry, err := clockEntry(code)
	if err != nil {
		return err
	}
	at := len(code) - fakeClockBytes
	fake := code[at:]
	there := bytes.HasPrefix(fake, fakeClock)
	if !there && len(bytes.Trim(fake, "\x00")) > 0 {
		return errors.New("there is no room at the end of its vDSO")
	}
	numbers := fake[fakeClockBytes-16:]
	was := time.Duration(binary.LittleEndian.Uint64(numbers))*time.Second +
		time.Duration(binary.LittleEndian.Uint64(numbers[8:]))
	seconds := int64(math.Floor((was + by).Seconds()))
	copy(fake, fakeClock)
	binary.LittleEndian.PutUint64(numbers, uint64(seconds))
	binary.LittleEndian.PutUint64(numbers[8:], uint64(was+by-time.Duration(seconds)*time.Second))
	jump := append([]byte{0xe9}, binary.LittleEndian.AppendUint32(nil,
		uint32(int32(at-entry-jumpBytes)))...)

	stopped, err := isStopped(pid)
	if err != nil {
		return err
	}
	if !stopped {
		defer syscall.Kill(pid, syscall.SIGCONT)
	}
	busy := func(pc uint64) bool { // what is changed must not be under way
		return pc > from+uint64(entry) && pc < from+uint64(entry+jumpBytes) ||
			pc >= from+uint64(at) && pc < to
	}
	for range 100 {
		if !stopped {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return err
			}
		}
		free, err := allOutside(pid, busy)
		if err != nil {
			return err
		}
		if free {
			if _, err := mem.WriteAt(fake, int64(from)+int64(at)); err != nil || there {
				return err
			}
			_, err := mem.WriteAt(jump, int64(from)+int64(entry))
			return err
		}
		if stopped {
			return errors.New("it is stopped while it reads the clock: let it go on first")
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("it never stops outside its clock")
}

// vdso is where a process has its vDSO.
func vdso(pid int) (from, to uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, errors.New("it has no vDSO")
}

// clockEntry is where a vDSO has clock_gettime.
func clockEntry(code []byte) (int, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return 0, fmt.Errorf("its vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("its vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" &&
			s.Value < uint64(len(code)-fakeClockBytes-jumpBytes) {
			return int(s.Value), nil
		}
	}
	return 0, errors.New("its vDSO has no clock_gettime")
}

// isStopped reports whether a process was stopped by a signal.
func isStopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "T"), nil
}

// allOutside reports whether all threads of a process have stopped at instructions that are not
// busy.
func allOutside(pid int, busy func(pc uint64) bool) (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		text := []byte("running")
		for tries := 0; strings.HasPrefix(string(text), "running"); tries++ {
			if tries == 1000 {
				return false, errors.New("it does not stop")
			}
			if text, err = os.ReadFile(task); errors.Is(err, os.ErrNotExist) ||
				errors.Is(err, io.EOF) || errors.Is(err, syscall.ESRCH) {
				text = nil // the thread has ended
			} else if err != nil {
				return false, err
			}
			if strings.HasPrefix(string(text), "running") {
				time.Sleep(100 * time.Microsecond)
			}
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 {
			continue
		}
		pc, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil {
			return false, fmt.Errorf("%s: %w", task, err)
		}
		if busy(pc) {
			return false, nil
		}
	}
	return true, nil
}
