package changes

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is kept comes back as it was, also what only another version understands; and what was put there by hand, in any layout.
func TestRecords(t *testing.T) {
	at := time.Date(2026, 5, 4, 14, 0, 0, 123, time.UTC)
	list := []Record{
		{Version: 7, Edge: 0xabc, At: at, Text: `{"does":"set","rule":{"limit":5,"response":{"body":"<a> & \"b\""}},"after":6,"who":"ada"}`},
		{Version: 6, Edge: 1, At: at, Until: at.Add(time.Hour), Text: `{"does":"turn","to":[1,2],"after":0}`},
	}
	first := Change{Name: "a", Does: Set, Rule: []byte(`{"limit":5,"response":{"body":"<a>"}}`), After: 3, Who: "<ada>"}
	list = append(list, Record{Version: 5, Edge: 2, At: at, Text: first.Text()})
	text := EncodeRecords(list)
	got, err := DecodeRecords(text)
	list[0].Text = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(list[0].Text) // as Text writes it
	if diff := cmp.Diff(list, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	if again := EncodeRecords(got); string(again) != string(text) {
		t.Errorf("written again it is\n%s, was\n%s", again, text)
	}
	got, err = DecodeRecords([]byte(strings.NewReplacer("{", "{\n ", ",", " ,\n").Replace(string(text))))
	if diff := cmp.Diff(list[1:], got[1:]); err != nil || diff != "" {
		t.Errorf("by hand: %v: %s", err, diff)
	}
	if c := Read("a", got[2].Version, 1, got[2].At, got[2].Text); c.Who != "<ada>" || c.wrong != nil {
		t.Errorf("%+v", c)
	}
	if got, err := DecodeRecords(EncodeRecords([]Record{{Version: 1, Edge: 1, At: at, Text: "{"}})); err != nil || Read("a", 1, 1, at, got[0].Text).wrong == nil {
		t.Errorf("%v %v: what nobody understands is to stay so", got, err)
	}

	const one = `{"version":1,"edge_id":"1","at":"2026-05-04T14:00:00Z","change":{}}`
	for _, wrong := range []string{``, `{`, `[]`, `{}`, `null`, `{"changes":[]}`, `{"changes":[` + one + `]}{}`, `{"changes":[null]}`,
		`{"changes":[` + strings.Replace(one, `:1,`, `:0,`, 1) + `]}`, `{"changes":[` + strings.Replace(one, `:1,`, `:9223372036854775808,`, 1) + `]}`,
		`{"changes":[` + strings.Replace(one, `:1,`, `:-1,`, 1) + `]}`, `{"changes":[` + strings.Replace(one, `"1"`, `"x"`, 1) + `]}`,
		`{"changes":[` + strings.Replace(one, `2026-`, ``, 1) + `]}`, `{"changes":[` + strings.Replace(one, `,"change":{}`, ``, 1) + `]}`} {
		if got, err := DecodeRecords([]byte(wrong)); err == nil {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
	if _, err := DecodeRecords([]byte(`{"changes":[` + one + `]}`)); err != nil {
		t.Error(err)
	}
}
