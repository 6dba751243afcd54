package tryout

const (
	// Answers is how many a source must have had, before it was refused, to look honest, and
	// honestShare which share of them well.
	Answers     = 3
	honestShare = 0.9
)

// Honest reports whether a source looks honest that got so many answers of the origin before it was
// refused, so many of them with 2xx or 3xx. That is all that is known: a scraper that gets what it
// asks for looks honest as well.
func Honest(answers, well uint64) bool {
	return answers >= Answers && float64(well) >= honestShare*float64(answers)
}

// IsWell reports whether an answer is a good one to a source that may be honest.
func IsWell(status int) bool { return status >= 200 && status < 400 }
