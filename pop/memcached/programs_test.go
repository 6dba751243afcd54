//go:build system

package memcached_test

import "testing"

// programs are the servers that the conformance script runs on beside the in-memory node.
var programs = map[string]func(t *testing.T) (address string){
	"memcached": func(t *testing.T) string { return startMemcached(t) },
	"through nutcracker": func(t *testing.T) string {
		return startNutcracker(t, startMemcached(t), startMemcached(t))
	},
}
