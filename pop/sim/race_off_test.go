//go:build !race

package sim

// raceEnabled says that the race detector is built in: histories in virtual time, where one goroutine does everything, are then fewer.
const raceEnabled = false
