package report

import (
	"fmt"
	"strings"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/page"
)

// Disturb sets Run.Disturbed: whether requests were sent so late that the run says more of the
// machine than of the limiter, one in a hundred by more than a fiftieth of the window. When a
// request is due decides which window it is in.
func (r *Report) Disturb() {
	late := r.Figures.SendError
	r.Run.Disturbed = late != nil && late.P99 > r.tooLate()
}

// OnceLate reports whether a request was sent so late, be it one.
func (r *Report) OnceLate() bool {
	late := r.Figures.SendError
	return late != nil && late.Max > r.tooLate()
}

// tooLate is a fiftieth of the window, in seconds.
func (r *Report) tooLate() float64 { return time.Duration(r.Run.Window).Seconds() / 50 }

// answer is what a reader wants to know first: how wrong the limiter was, by what that is judged,
// who was harmed. A disturbed run has no such answer, and says what to do.
func (r *Report) answer() string {
	f := &r.Figures
	if r.Run.Disturbed {
		return fmt.Sprintf("Disturbed: the machine was too busy. One request in a hundred was sent more than %s late; a run counts up to %s, a fiftieth of the window. "+
			"These figures measure the machine: run it again with nothing beside it, with fewer requests a second (--rate or --speed), or with a longer --window.",
			page.Duration(f.SendError.P99), page.Duration(r.tooLate()))
	}
	if f.Requests == 0 {
		return ""
	}
	estimator := r.Run.Mode == judge.Estimator.String()
	of := plural(f.Requests, "request")
	s := fmt.Sprintf("Sluice decided %s of %s wrongly, by an exact log of what it admitted",
		share(f), of)
	if estimator {
		s = fmt.Sprintf("Sluice's estimate was on the wrong side of the limit for %s of %s, by an exact log of them all", share(f), of)
	}
	if b := r.Baseline; b != nil {
		s += ", where two plain counters on one edge were wrong about " + share(b)
	}
	switch {
	case f.Wrong == 0:
	case estimator:
		s += fmt.Sprintf(": it did not see that %s were over, and took %s for over that were not",
			page.Thousands(f.WronglyAllowed), page.Thousands(f.WronglyLimited))
	default:
		s += fmt.Sprintf(": it let %s pass above the limit, and refused %s at or under it",
			page.Thousands(f.WronglyAllowed), page.Thousands(f.WronglyLimited))
	}
	if f.WronglyMitigated > 0 {
		s += ", which led to " + plural(f.WronglyMitigated, "more refusal")
	}
	return s + "; " + harm(f, estimator) + lengths(f.Ends) + "."
}

// lengths is how many blocks ended when they should not have.
func lengths(e *judge.Ends) (s string) {
	if e == nil {
		return ""
	}
	if e.Early > 0 {
		s += fmt.Sprintf("; %s ended early, by up to %s", plural(e.Early, "block"),
			page.Duration(e.EarlyBy.Max))
	}
	if e.Late > 0 {
		s += fmt.Sprintf("; %s ended late, by up to %s", plural(e.Late, "block"),
			page.Duration(e.LateBy.Max))
	}
	return s
}

// harm is who was refused, or went without an answer, and had not earned it; and who was spared.
func harm(f *judge.Figures, estimator bool) string {
	refused, blocked := "refused that never %s over the limit", "blocked"
	if estimator {
		refused, blocked = "found over the limit that never %s", "found"
	}
	var out []string
	switch n := f.FalsePositiveSources; n {
	case 0:
		out = append(out, "no source was "+fmt.Sprintf(refused, "was"))
	case 1:
		out = append(out, fmt.Sprintf("1 source was "+refused+" (%s)", "was",
			plural(f.RefusedOfInnocent, "request")))
	default:
		out = append(out, fmt.Sprintf("%s were "+refused+" (%s)", page.Plural(n, "source"), "were",
			plural(f.RefusedOfInnocent, "request")))
	}
	if n := f.FalseNegativeSources; n > 0 {
		out = append(out, page.Plural(n, "source")+" over it never came to be "+blocked)
	}
	if n := f.RefusedGood; n > 0 {
		line := plural(n, "request") + " of good clients met a refusal"
		switch f.Collateral {
		case 0:
		case n:
			line += ", all from a source that an abuser shares"
		default:
			line += fmt.Sprintf(", %s from a source that an abuser shares",
				page.Thousands(f.Collateral))
		}
		out = append(out, line)
	}
	if f.Failed > 0 {
		out = append(out, plural(f.Failed, "request")+" had no verdict")
	}
	return strings.Join(out, "; ")
}

// share is how many decisions were wrong, and what part of all.
func share(f *judge.Figures) string {
	if f.Wrong == 0 {
		return "none"
	}
	return fmt.Sprintf("%s (%s)", page.Thousands(f.Wrong), page.Percent(f.WrongRatio))
}

func plural(n uint64, what string) string { return page.Plural(int(n), what) }
