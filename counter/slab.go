package counter

import "unsafe"

// A slab keeps values in small blocks, which stay where they are when more are needed, so that it takes hardly more memory than is used. Values
// that were given back are the next to be taken.
type slab[T any] struct {
	blocks []*[slabBlock]T
	n      int      // how many there are
	free   []uint16 // of these, those that were given back
}

const slabBlock = 8 // blocks of this size have few bytes to spare in the allocator's classes

func (sl *slab[T]) at(i int) *T { return &sl.blocks[i/slabBlock][i%slabBlock] }

// add makes a value.
func (sl *slab[T]) add() (i int) {
	if sl.n%slabBlock == 0 {
		sl.blocks = append(sl.blocks, new([slabBlock]T))
	}
	sl.n++
	return sl.n - 1
}

// take gives out a value that is as it was given back, or else zero. Its index is never 0.
func (sl *slab[T]) take() uint16 {
	if last := len(sl.free) - 1; last >= 0 {
		i := sl.free[last]
		sl.free = sl.free[:last]
		return i
	}
	if sl.n == 0 {
		sl.add()
	}
	return uint16(sl.add())
}

func (sl *slab[T]) give(i uint16) { sl.free = append(sl.free, i) }

// inUse is how many have been taken and not given back.
func (sl *slab[T]) inUse() int { return max(sl.n-1, 0) - len(sl.free) }

func (sl *slab[T]) bytes() int {
	return len(sl.blocks)*int(unsafe.Sizeof([slabBlock]T{})) + 8*cap(sl.blocks) + 2*cap(sl.free)
}
