package changes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Record is a change as it is kept where edges of several PoPs find it: with what orders it among
// all others.
type Record struct {
	Version uint64    // the higher stands,
	Edge    uint64    // and of one version the one of the higher edge
	At      time.Time // it was said
	Until   time.Time // it must be kept, because older ones could come back; zero: for ever
	Text    string    // as Change.Text has it
}

// record is the JSON of a Record. Changes travel unchanged, also those of edges of a later version.
type record struct {
	Version uint64          `json:"version"`
	Edge    string          `json:"edge_id"` // 16 hexadecimal digits
	At      time.Time       `json:"at"`
	Until   time.Time       `json:"until,omitzero"`
	Change  json.RawMessage `json:"change"`
}

// past is the JSON of the past of a rule, the newest first.
type past struct {
	Changes []record `json:"changes"`
}

// maxVersion keeps room for later versions: one more than the highest is always possible.
const maxVersion = 1 << 62

// EncodeRecords returns the past of a rule as it is kept.
func EncodeRecords(list []Record) []byte {
	p := past{Changes: []record{}}
	for _, r := range list {
		text := json.RawMessage(r.Text)
		if !json.Valid(text) { // then no edge understands it
			text, _ = json.Marshal(r.Text)
		}
		p.Changes = append(p.Changes, record{r.Version, fmt.Sprintf("%016x", r.Edge), r.At.UTC(),
			r.Until, text})
	}
	b, _ := json.Marshal(p) // it always can be
	return b
}

// DecodeRecords reads what EncodeRecords wrote: all, or nothing and an error. Whether this edge
// understands what was said is for Read to say.
func DecodeRecords(text []byte) ([]Record, error) {
	var p past
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("changes: not the past of a rule: %w", err)
	}
	if d.More() {
		return nil, errors.New("changes: not the past of a rule: there is more behind it")
	}
	if len(p.Changes) == 0 {
		return nil, errors.New(`changes: not the past of a rule: no "changes"`)
	}
	list := make([]Record, 0, len(p.Changes))
	for i, c := range p.Changes {
		edge, err := strconv.ParseUint(c.Edge, 16, 64)
		if err != nil || c.Version == 0 || c.Version > maxVersion || c.At.IsZero() ||
			len(c.Change) == 0 {
			return nil,
				fmt.Errorf("changes: not the past of a rule: change %d has no version, edge_id, time or change that is possible", i)
		}
		var said bytes.Buffer
		if err := json.Compact(&said, c.Change); err != nil {
			return nil, fmt.Errorf("changes: not the past of a rule: change %d: %w", i, err)
		}
		list = append(list, Record{c.Version, edge, c.At, c.Until, said.String()})
	}
	return list, nil
}
