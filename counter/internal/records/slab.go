package records

import "unsafe"

// Slab keeps values of one kind, each under an index: what belongs to some records only. Its blocks
// are small and stay where they are when more are needed, so that it takes hardly more memory than
// is used. Values that were given back are the next to be taken.
type Slab[T any] struct {
	blocks []*[Block]T
	n      int      // how many there are
	free   []uint16 // of these, those that were given back
}

// Block is how many values are allocated together.
const Block = 8 // blocks of this size have few bytes to spare in the allocator's classes

// At is the value under an index.
func (sl *Slab[T]) At(i int) *T { return &sl.blocks[i/Block][i%Block] }

// Add makes a value.
func (sl *Slab[T]) Add() (i int) {
	if sl.n%Block == 0 {
		sl.blocks = append(sl.blocks, new([Block]T))
	}
	sl.n++
	return sl.n - 1
}

// Take gives out a value that is as it was given back, or else zero. Its index is never 0.
func (sl *Slab[T]) Take() uint16 {
	if last := len(sl.free) - 1; last >= 0 {
		i := sl.free[last]
		sl.free = sl.free[:last]
		return i
	}
	if sl.n == 0 {
		sl.Add()
	}
	return uint16(sl.Add())
}

// Give takes a value back.
func (sl *Slab[T]) Give(i uint16) { sl.free = append(sl.free, i) }

// InUse is how many have been taken and not given back.
func (sl *Slab[T]) InUse() int { return max(sl.n-1, 0) - len(sl.free) }

// Len is how many there are, those that were given back included.
func (sl *Slab[T]) Len() int { return sl.n }

// Free is how many were given back.
func (sl *Slab[T]) Free() int { return len(sl.free) }

// Bytes is what they take.
func (sl *Slab[T]) Bytes() int {
	return len(sl.blocks)*int(unsafe.Sizeof([Block]T{})) + 8*cap(sl.blocks) + 2*cap(sl.free)
}
