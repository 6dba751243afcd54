package across

import (
	"encoding/json"
	"time"

	"sluice/counter"
)

// Count is what a PoP itself has counted of a source that has used two thirds of its limit, or
// more. Another PoP adds it to what it counts of that source. What others had said before is not in
// it, so no hit counts twice, and it takes the place of what the same PoP said of the source
// before.
//
// It is sent when a report brings the source over a step: the first hit of a group of sub-windows
// (four, or two), and each quarter of the limit within one. So what a PoP has counted and not sent
// is at most a quarter of the limit, and what is on its way, once it has sent something. A source
// that keeps to its limit causes no more than one count of each group, four for the limit, and one.
type Count struct {
	Rule   string         `json:"rule"`
	Counts string         `json:"counts"`
	Source counter.Source `json:"-"`
	Window time.Duration  `json:"window"`
	Began  time.Time      `json:"began"` // when the newest sub-window did, on the sender's clock
	Sub    time.Duration  `json:"sub"`   // the length of each
	Hits   []uint32       `json:"hits"`  // in each, the newest first
}

// MarshalJSON writes the source as operators read it.
func (c Count) MarshalJSON() ([]byte, error) {
	type fields Count
	return json.Marshal(struct {
		fields
		Source string `json:"source"`
	}{fields(c), c.Source.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Count) UnmarshalJSON(text []byte) (err error) {
	type fields Count
	in := struct {
		*fields
		Source string `json:"source"`
	}{fields: (*fields)(c)}
	if err = json.Unmarshal(text, &in); err == nil {
		c.Source, err = counter.ParseSource(in.Source)
	}
	return err
}

// maxSubWindows is how many a window touches at most.
const maxSubWindows = 13

func (c *Count) sound() bool {
	return Travels(c.Source) && len(c.Hits) <= maxSubWindows && c.Sub > 0 && c.Sub <= c.Window
}
