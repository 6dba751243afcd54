//go:build !race

package pop_test

// raceEnabled says that the race detector is built in. Properties in virtual time, where one goroutine does everything, are then held
// against fewer histories.
const raceEnabled = false
