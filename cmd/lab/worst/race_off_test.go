//go:build !race

package worst

// raceEnabled says that the race detector is built in: a search in virtual time, where one goroutine does everything, is then shorter.
const raceEnabled = false
