package view

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/top"
)

const (
	// MaxSize is how long a part may be as it travels, and maxOpen how long when it is unpacked.
	MaxSize = 64 << 10
	maxOpen = 2 << 20
	// maxListed is how long a list in a part may be that somebody else has made: many times what an
	// edge of this version puts there.
	maxListed = 4096
	// TopListed, KeysListed, BlocksListed and EventsListed are how much of each list a part has at
	// most. One that is too long all the same has half of it, and so on.
	TopListed    = 200
	KeysListed   = 100
	BlocksListed = 100
	EventsListed = 100
)

// Part is what one edge shows of itself.
type Part struct {
	Edge uint64    `json:"edge"`
	Name string    `json:"name"`
	At   time.Time `json:"at"` // by its clock
	// So long after At the next one is to be expected
	Next    time.Duration              `json:"next"`
	Unready string                     `json:"unready,omitempty"`
	Load    Load                       `json:"load"`
	Tops    map[string]top.List        `json:"tops"` // by what they are heavy in
	Keys    map[string]control.KeyList `json:"keys,omitempty"`
	Blocked control.Extract            `json:"blocked"`
	Shadow  control.Extract            `json:"shadow"`
	Events  []events.Event             `json:"events"` // the newest first
	// Answers are to what was asked of each edge, by the question.
	Answers map[string]json.RawMessage `json:"answers,omitempty"`

	// The same answers with less detail, each shorter than the one before
	shorter map[string][]func() json.RawMessage
}

// Answer adds what the edge says to a question; nil: it does not understand it. Where that is too
// long to travel, the first of the shorter answers that is not takes its place.
func (p *Part) Answer(question string, said json.RawMessage, shorter ...func() json.RawMessage) {
	if p.Answers == nil {
		p.Answers, p.shorter = make(map[string]json.RawMessage),
			make(map[string][]func() json.RawMessage)
	}
	p.Answers[question], p.shorter[question] = said, shorter
}

// ErrLong says that a part cannot be made short enough.
var ErrLong = errors.New("view: what this edge has to show is too long")

// Pack is the part as it travels: at most MaxSize, so perhaps with shorter lists. It cuts those of
// p.
func (p *Part) Pack() ([]byte, error) {
	for range 8 {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("view: %w", err)
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // which is a level
		_, _ = z.Write(text)                                 // a buffer takes everything
		_ = z.Close()
		if packed.Len() <= MaxSize && len(text) <= maxOpen {
			return packed.Bytes(), nil
		}
		if !p.shorten() {
			p.halve()
		}
	}
	return nil, ErrLong
}

// shorten takes shorter answers, if there are any.
func (p *Part) shorten() (did bool) {
	for q, a := range p.Answers {
		if others := p.shorter[q]; len(a) > MaxSize/4 && len(others) > 0 {
			p.Answers[q], p.shorter[q], did = others[0](), others[1:], true
		}
	}
	return did
}

// halve makes the lists shorter. What is left out of the heaviest, others have to know of.
func (p *Part) halve() {
	for by, l := range p.Tops {
		if n := len(l.Heavy) / 2; n < len(l.Heavy) {
			l.Rest = max(l.Rest, l.Heavy[n].Count)
			l.Heavy = l.Heavy[:n]
			p.Tops[by] = l
		}
	}
	for by, l := range p.Keys {
		if n := len(l.Heavy) / 2; n < len(l.Heavy) {
			l.Rest = max(l.Rest, l.Heavy[n].Count)
			l.Heavy = l.Heavy[:n]
			p.Keys[by] = l
		}
	}
	p.Blocked.List = p.Blocked.List[:len(p.Blocked.List)/2]
	p.Shadow.List = p.Shadow.List[:len(p.Shadow.List)/2]
	p.Events = p.Events[:len(p.Events)/2]
	for q, a := range p.Answers {
		if len(a) > MaxSize/4 {
			p.Answers[q] = nil
		}
	}
}

// shortLists has the lists of a part whose elements take much more memory than text: {} is an
// event. It is read before the part is.
type shortLists struct {
	Blocked, Shadow struct{ List short }
	Events          short
	Load            struct{ Origins short }
	Tops            map[string]struct{ Heavy short }
	Keys            map[string]struct{ Heavy short }
	Answers         map[string]struct{ Rules, Sample, Heavy short }
}

// short is a list of at most maxListed elements, each of which takes no room. Each of several lists
// under one name is looked at.
type short struct{}

func (*short) UnmarshalJSON(text []byte) error {
	var list []struct{}
	_ = json.Unmarshal(text, &list) // only the length matters here
	if len(list) > maxListed {
		return ErrLong
	}
	return nil
}

// Unpack reads what Pack made. Anybody who can write into the tier may have made it.
func Unpack(b []byte) (*Part, error) {
	if len(b) > MaxSize {
		return nil, ErrLong
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxOpen+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("view: %w", err)
	case len(text) > maxOpen:
		return nil, ErrLong
	}
	// Of what else is wrong the next one tells
	if err := json.Unmarshal(text, new(shortLists)); errors.Is(err, ErrLong) {
		return nil, ErrLong
	}
	p := new(Part)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	return p, nil
}
