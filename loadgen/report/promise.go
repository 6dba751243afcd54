package report

import "fmt"

// Promise is a figure that was held against what the documents promise of it.
type Promise struct {
	Name   string  `json:"name"`
	Says   string  `json:"says"`
	Page   string  `json:"page"` // of docs/design, which has the measurements
	Found  float64 `json:"found"`
	Most   float64 `json:"most"`
	Of     string  `json:"of"` // which runs
	Broken bool    `json:"broken"`
}

// String says what was promised, and by how much that is broken.
func (p Promise) String() string {
	if p.Most == 0 {
		return fmt.Sprintf("%s: %.4g, promised are none: %s (%s; %s)", p.Name, p.Found, p.Says,
			p.Of, p.Page)
	}
	return fmt.Sprintf("%s: %.4g, %.3g times the %.4g promised: %s (%s; %s)", p.Name, p.Found,
		p.Found/p.Most, p.Most, p.Says, p.Of, p.Page)
}
