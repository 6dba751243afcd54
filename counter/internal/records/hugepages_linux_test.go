package records

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestHugePagesAreAskedFor: the system has noted it of a table's memory, if it knows of such pages; a table too small for one is left
// alone.
func TestHugePagesAreAskedFor(t *testing.T) {
	New(1, 1, 4)
	table := New(8, 20_000, 4)
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("this system has no huge pages:", err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	middle, within := uintptr(unsafe.Pointer(&table.words[len(table.words)/2])), false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from <= middle && middle < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && within {
			if !strings.Contains(flags+" ", " hg ") {
				t.Errorf("the table's memory has the flags%s", strings.TrimSuffix(flags, "\n"))
			}
			return
		}
	}
	t.Error("the table's memory is not in /proc/self/smaps")
}
