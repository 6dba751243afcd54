//go:build !system

package memcached_test

import "testing"

// programs are the servers that the conformance script runs on beside the in-memory node: none without the tag "system".
var programs map[string]func(t *testing.T) (address string)
