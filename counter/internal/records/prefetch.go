//go:build amd64 || arm64

package records

import "unsafe"

// prefetch has the processor fetch what will be read soon, without waiting for it.
//
//go:noescape
func prefetch(tags, record unsafe.Pointer)
