// Package view is the PoP as any of its edges shows it: each shows a bounded part of what it knows,
// and the one that is asked adds the parts of all.
//
//	every edge   Part.Pack -----------+   (cmd/sluice/internal/viewer carries them, while somebody looks)
//	the asked    Unpack <-------------+
//	             Top, Blocked, Events, Sum <--- PoP, with the age of each part and who is missing
//
// Nothing decides by any of it. A part of another edge is what somebody has written into the tier:
// its texts are shown as texts, its size is bounded, and where the PoP's secret can be guessed, it
// can be forged; then it misleads who looks, and nothing else.
//
// Merged counts have an error, which is shown. Each edge's list of heavy sources is bounded, so of
// a source that it does not list it says only that it had at most Rest there. A merged count is the
// most that it can be, the sum of its counts and, where it is not listed, of the Rests; its error
// is how much of that is not sure (Agarwal et al., "Mergeable summaries", 2012). Edges halve their
// counts each ten minutes, each at its own time.
package view

import (
	"encoding/json"
	"strings"
)

// Seen is a part as the asked edge has it, or an edge that shows none.
type Seen struct {
	Edge
	Part *Part `json:"-"` // nil: it is missing
}

// Edge says of an edge of the PoP how old its part is, or why it is missing.
type Edge struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Of the part that is shown, or, of an edge that is missing, of the last one; 0: there was none
	Age     float64 `json:"age_seconds"`
	Missing string  `json:"missing,omitempty"` // "": it is shown
}

// PoP is all parts, this edge's first.
type PoP struct {
	Parts []Seen
}

// Edges says of each edge how old its part is.
func (p *PoP) Edges() []Edge {
	list := make([]Edge, len(p.Parts))
	for i, s := range p.Parts {
		list[i] = s.Edge
	}
	return list
}

// shown calls f with each part that there is.
func (p *PoP) shown(f func(*Part)) {
	for _, s := range p.Parts {
		if s.Part != nil {
			f(s.Part)
		}
	}
}

// Load is what all edges do together.
func (p *PoP) Load() Load {
	var loads []Load
	p.shown(func(part *Part) { loads = append(loads, part.Load) })
	return Sum(loads...)
}

// aboutSource begins a question about a source.
const aboutSource = "source "

// AskSource is the question what an edge knows of an address, or of who has a digest.
func AskSource(source string) string { return aboutSource + source }

// AboutSource is the source that a question is about, if it is such a question.
func AboutSource(question string) (source string, is bool) {
	return strings.CutPrefix(question, aboutSource)
}

// Answered is what an edge has said to a question.
type Answered[T any] struct {
	Edge   string `json:"edge"`
	Answer T      `json:"said"`
}

// EdgesTo is Edges for the answers to a question: an edge that has not given one is missing.
func (p *PoP) EdgesTo(question string) []Edge {
	list := p.Edges()
	for i, s := range p.Parts {
		if s.Part == nil {
			continue
		}
		switch said, there := s.Part.Answers[question]; {
		case !there:
			list[i].Missing = "it has not answered in time: ask again"
		case said == nil || string(said) == "null":
			list[i].Missing = "its answer is too long to travel, or it is of another version: ask for less, or ask that edge"
		}
	}
	return list
}

// Answers are what all edges say to a question.
func Answers[T any](p *PoP, question string) []Answered[T] {
	list := []Answered[T]{}
	p.shown(func(part *Part) {
		a := Answered[T]{Edge: part.Name}
		if text := part.Answers[question]; text != nil && string(text) != "null" &&
			json.Unmarshal(text, &a.Answer) == nil {
			list = append(list, a)
		}
	})
	return list
}
