package records

import "unsafe"

// prefetch has the processor fetch the lines of a tag and of a record without waiting for them. Go has no words for that, and a read in
// its place would have to end before the shard's lock is taken. Measured alone, paired in one run, it takes from a decision of
// counter's nothing where the table is in the processor's caches (10,000 sources), 3 % with 100,000 sources, 7 to 11 % with a million,
// and with three rules 14 to 20 %, because their waits overlap (go test -run '^$' -bench Prefetch ./counter/internal/records).
// On other processors nobody has measured it, and there it is left out.
//
//go:noescape
func prefetch(tags, record unsafe.Pointer)
