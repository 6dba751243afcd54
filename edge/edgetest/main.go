package edgetest

import (
	"flag"
	"testing"
)

// Main is a TestMain for tests that wait for timeouts of an edge most of the time: more of them run
// at once than there are processors.
func Main(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	m.Run()
}
