package records

import "unsafe"

// prefetch has the processor fetch the lines of a tag and of a record without waiting for them. Go
// has no way to write that, and a plain read would have to end before the shard's lock is taken. In
// turn with decisions of counter's without it, those took 2 % more with 10,000 sources, which the
// processor's caches hold, 3 % less with 100,000 and 7 to 11 % less with a million; under three
// rules 14 to 20 % less, because their waits overlap. Alone: go test -run '^$' -bench Prefetch
// ./counter/internal/records On other processors it was not measured, and is left out.
//
//go:noescape
func prefetch(tags, record unsafe.Pointer)
