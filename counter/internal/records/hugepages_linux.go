package records

import (
	"syscall"
	"unsafe"
)

// hugePages asks for pages of 2 MB for a table's pages. With the usual 4 kB most of a wait for memory is for the processor to
// find out where the page is. Memory still comes only as it is touched, 2 MB at once. Where the system does not do this, nothing
// happens.
func hugePages[P any](pages []P) {
	const huge = 2 << 20
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pages))), len(pages)*int(unsafe.Sizeof(pages[0])))
	if skip := int(-uintptr(unsafe.Pointer(&all[0])) % huge); skip+huge <= len(all) {
		all = all[skip:]
		_ = syscall.Madvise(all[:len(all)/huge*huge], syscall.MADV_HUGEPAGE)
	}
}
