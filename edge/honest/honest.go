// Package honest says of a source whether it looks honest, by how the origin answered it before it
// was refused. That is all that is known: a scraper that gets what it asks for looks honest as well.
package honest

const (
	// Answers is how many a source must have had, before it was refused, to look honest, and share
	// which share of them well.
	Answers = 3
	share   = 0.9
)

// Looks reports whether a source looks honest that got so many answers of the origin before it was
// refused, so many of them well.
func Looks(answers, well uint64) bool {
	return answers >= Answers && float64(well) >= share*float64(answers)
}

// IsWell reports whether an answer is a good one to a source that may be honest: 2xx or 3xx.
func IsWell(status int) bool { return status >= 200 && status < 400 }
