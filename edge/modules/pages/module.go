package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sluice/edge"
	"sluice/edge/config"
)

// maxPages bounds how many there are: Accept is read once for each of a status.
const maxPages = 64

// Settings are the pages of a configuration.
type Settings []Page

// A Page is one of them. Its size is bounded, because connections that are refused at once each hold
// one.
type Page struct {
	Status []int          `json:"status" want:"400 to 599" each:"once"`
	Type   MediaType      `json:"type"`
	File   config.Content `json:"file" want:"65536"`
}

// A MediaType is one with its parameters.
type MediaType string

func (m *MediaType) UnmarshalText(text []byte) error {
	if *m = MediaType(text); kindOf(string(text)) == "" {
		return fmt.Errorf("%q is not a media type: want one such as text/html or application/json",
			text)
	}
	return nil
}

// Check reports what a page lacks.
func (p *Page) Check() error {
	if len(p.Status) == 0 || p.Type == "" || p.File.File == "" {
		return errors.New("want a status, a type and a file in each of them, such as {status: [429], type: text/html, file: pages/429.html}")
	}
	return nil
}

// MarshalJSON shows of what the file says a digest alone, by which a change is seen.
func (p Page) MarshalJSON() ([]byte, error) {
	sum := sha256.Sum256(p.File.Text)
	return json.Marshal(map[string]any{"status": p.Status, "type": p.Type, "file": p.File.File,
		"digest": hex.EncodeToString(sum[:6])})
}

// CheckLast reports whether the last page is one too many.
func (s *Settings) CheckLast() error {
	before, last := (*s)[:len(*s)-1], (*s)[len(*s)-1]
	if len(before) == maxPages {
		return fmt.Errorf("more than %d: leave out some", maxPages)
	}
	for _, other := range before {
		for _, status := range last.Status {
			if kindOf(string(other.Type)) == kindOf(string(last.Type)) &&
				slices.Contains(other.Status, status) {
				return fmt.Errorf("there are two of %s for %d: remove one", last.Type, status)
			}
		}
	}
	return nil
}

const name = "pages"

// Module answers with the pages of a configuration.
func Module() edge.Module {
	return edge.Module{Name: name,
		Config: config.Module{Settings: func() any { return new(Settings) }},
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			said := config.SettingsOf[Settings](s.Config, name)
			if said == nil || len(*said) == 0 {
				return edge.Points{}, nil
			}
			return edge.Points{
				Bodies: []func(*edge.Exchange, []byte) bool{newSet(*said).replace}}, nil
		}}
}

var accept = []byte("Accept")

// replace replaces the body of an answer by the page that the client would rather have.
func (s *set) replace(x *edge.Exchange, retry []byte) bool {
	status := x.Status()
	if !s.has(status) {
		return false
	}
	x.Add("Vary", accept)
	p := s.choose(status, &x.Head)
	if p == nil {
		return false
	}
	if text := p.fixed(); text != nil {
		x.Replace(p.contentType, text, true)
		return true
	}
	room := x.Room()
	*room = p.append(*room, status, x.ID(), retry)
	x.Replace(p.contentType, *room, false)
	return true
}
