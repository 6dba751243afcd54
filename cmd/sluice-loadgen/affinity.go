package main

import (
	"hash/fnv"
	"net/netip"
)

// affinity stands in for anycast: it gives each routed prefix (/24, /48) to one of the PoPs, the same in every run.
func affinity(pops int) func(netip.Addr) int {
	return func(a netip.Addr) int {
		a = a.Unmap()
		bits := 48
		if a.Is4() {
			bits = 24
		}
		p, err := a.Prefix(bits)
		if err != nil || pops < 2 {
			return 0
		}
		h := fnv.New64a()
		h.Write(p.Addr().AsSlice())
		x := h.Sum64()
		return int((x ^ x>>32) % uint64(pops)) // the low bits of FNV alone are weak
	}
}
