package changes

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// A lister is a desk that keeps what was said as an edge does, in a list of words.
type lister struct {
	*desk
	list operatorlog.List
	id   uint64
}

func newLister(t *testing.T, id uint64) *lister { return &lister{desk: newDesk(t), id: id} }

func (e *lister) take() {
	e.said = nil
	for _, c := range e.list.Changes() {
		e.said = append(e.said, Read(c.Rule, c.Mark().Generation, c.Mark().Edge, c.Start, c.Text))
	}
}

// say reports whether there was anything to change.
func (e *lister) say(ed Edit, now time.Time) bool {
	e.t.Helper()
	ed.Name = "login"
	c, needed, err := e.overlay().Change(ed)
	if err != nil || !needed {
		return false
	}
	w := operatorlog.Order{Rule: c.Name, Kind: operatorlog.Change, Start: now, Text: c.Text()}
	if c.Does == Restore {
		w.End = now.Add(operatorlog.LongestAway)
	}
	if _, err := e.list.Add(w, e.id, time.Hour, now); err != nil {
		e.t.Fatal(err)
	}
	e.take()
	return true
}

var popSecret = secret.Of([]byte("pop"))

func (e *lister) receives(o *lister, now time.Time) {
	e.t.Helper()
	list, _, err := operatorlog.Decode(popSecret, o.list.Encode(popSecret, now))
	if err != nil {
		e.t.Fatal(err)
	}
	e.list.Merge(list, now)
	e.take()
}

// What the newest change sets stands, though what it had seen sets an object whole and it is put together with what others set within that.
func TestNewestStandsWithinAnObject(t *testing.T) {
	one, two := newDesk(t), newDesk(t)
	limit := two.say(2, 1000, patch(`{"limit":20}`))
	one.say(1, 1001, patch(`{"match":null}`))
	one.say(1, 1002, patch(`{"match":{"path":"/in"}}`))
	put := two.say(2, 1003, patch(`{"match":{"methods":["PUT"]}}`))
	one.say(1, 1004, patch(`{"match":{"methods":["GET"]}}`))
	one.receive(limit, put)
	if got, want := one.rule("login"), `{"limit":20,"match":{"methods":["GET"],"path":"/in"},"mitigation_timeout":"10m","name":"login"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Blocks that fill the list push out changes that are replaced, and no field that is in force beside the newest change.
func TestFullListTakesNoFieldBack(t *testing.T) {
	for _, test := range []struct {
		what         string
		ours, theirs []string // after both know of limit 9
		want         int      // so many changes are in force
	}{
		{"another field", []string{`{"limit":1}`}, []string{`{"mitigation_timeout":"1h"}`}, 2},
		{"the same, and another", []string{`{"limit":1}`}, []string{`{"limit":2}`, `{"mitigation_timeout":"1h"}`}, 3},
		{"one over the other", []string{`{"limit":1}`, `{"share":50}`}, []string{`{"mitigation_timeout":"1h"}`}, 3},
	} {
		now := time.Unix(1_700_000_000, 0)
		a, b := newLister(t, 1), newLister(t, 2)
		a.say(patch(`{"limit":9}`), now)
		b.receives(a, now)
		for _, body := range test.ours {
			a.say(patch(body), now)
		}
		for i, body := range test.theirs {
			b.say(patch(body), now.Add(time.Duration(i+1)*time.Second))
		}
		a.receives(b, now)
		want, err := a.rule("login"), error(nil)
		for i := uint16(0); err == nil; i++ {
			source := counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32, 64)
			_, err = a.list.Add(operatorlog.Order{Rule: "login", Source: source, Kind: operatorlog.Block, Start: now, End: now.Add(time.Hour)}, 1, time.Hour, now)
		}
		a.take()
		if got := a.rule("login"); !errors.Is(err, operatorlog.ErrFull) || got != want || len(a.said) != test.want {
			t.Errorf("%s: %v: got %s of %d changes, want %s", test.what, err, got, len(a.said), want)
		}
	}
}

// What was rolled back to the file does not come back when nobody need know of that any more.
func TestRolledBackStaysSo(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	e, late := newLister(t, 1), newLister(t, 2)
	e.say(patch(`{"limit":1}`), now)
	e.say(Edit{Action: Rollback}, now.Add(time.Hour))
	e.say(patch(`{"mitigation_timeout":"2m"}`), now.Add(2*time.Hour))
	want := e.rule("login")
	late.receives(e, now.Add(2*time.Hour))
	later := now.Add(operatorlog.LongestAway + 3*time.Hour)
	e.receives(late, later)
	late.receives(e, later)
	if e.rule("login") != want || late.rule("login") != want {
		t.Errorf("it was %s, and is %s and %s", want, e.rule("login"), late.rule("login"))
	}
}

// Operators at three edges change, remove, replace and roll back a rule, at clocks that differ, and edges receive them
// in any order. All end the same, as whoever was the last to set a field has said, and a month later still are so.
func TestAnyHistory(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		edges := []*lister{newLister(t, 10), newLister(t, 11), newLister(t, 12)}
		now := time.Unix(1_700_000_000, 0)
		for range 3 + rng.IntN(12) {
			e, clock := edges[rng.IntN(3)], now.Add(time.Duration(rng.IntN(200)-100)*time.Millisecond)
			e.say(anyEdit(rng, e, seed%3 > 0), clock)
			for range rng.IntN(3) {
				if a, b := edges[rng.IntN(3)], edges[rng.IntN(3)]; a != b {
					a.receives(b, clock)
				}
			}
			now = now.Add(time.Duration(rng.IntN(2)*rng.IntN(3000)) * time.Millisecond)
		}
		for range 2 {
			for i, e := range edges {
				e.receives(edges[(i+1)%3], now)
				e.receives(edges[(i+2)%3], now)
			}
		}
		want := edges[0].rule("login")
		if stands, sure := fold(edges[0].desk); sure && len(edges[0].said) < operatorlog.MaxVersions && stands != want {
			t.Fatalf("seed %d: got %s, want %s of\n%+v", seed, want, stands, edges[0].said)
		}
		for _, e := range edges {
			if got := e.rule("login"); got != want {
				t.Fatalf("seed %d: %s and %s of\n%+v", seed, want, got, e.said)
			}
		}
		for i, e := range edges {
			e.receives(edges[(i+1)%3], now.Add(operatorlog.LongestAway+time.Hour))
			if got := e.rule("login"); got != want {
				t.Fatalf("seed %d: a month later %s, and it was %s, of\n%+v", seed, got, want, e.said)
			}
		}
	}
}

// What does not fit is left out, and what else an operator has set stays, in whatever order it arrives.
func TestWhatDoesNotFitIsLeftOut(t *testing.T) {
	bucket, lower, limit := patch(`{"algorithm":"token_bucket","burst":9}`), patch(`{"estimate":"lower"}`), patch(`{"limit":3}`)
	for _, test := range []struct {
		said []Edit
		want string
	}{
		{[]Edit{bucket, lower, limit}, `{"estimate":"lower","limit":3,`},
		{[]Edit{lower, bucket, limit}, `{"algorithm":"token_bucket","burst":9,"limit":3,`},
		{[]Edit{limit, bucket, lower}, `{"estimate":"lower","limit":3,`},
		{[]Edit{limit, {Action: Put, Replace: true, Body: []byte(`{"limit":7,"algorithm":"token_bucket","burst":9}`)}, lower}, `{"estimate":"lower","limit":5,`},
	} {
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			all, e := newDesk(t), newDesk(t)
			var said []Change
			for i, ed := range test.said {
				said = append(said, newDesk(t).say(uint64(i+1), 1000+uint64(i), ed))
			}
			for _, i := range order {
				e.receive(said[i])
			}
			all.receive(said...)
			if got := e.rule("login"); !strings.HasPrefix(got, test.want) || all.rule("login") != got {
				t.Errorf("%s, %s, %s: got %s, want %s", test.said[0].Body, test.said[1].Body, test.said[2].Body, got, test.want)
			}
		}
	}
}

func anyEdit(rng *rand.Rand, e *lister, whole bool) Edit {
	n := 2 + rng.IntN(90)
	if whole {
		switch r := rng.IntN(12); {
		case r == 0:
			return Edit{Action: Delete}
		case r == 1:
			return Edit{Action: Rollback}
		case r <= 3 && len(e.said) > 0:
			return Edit{Action: Rollback, To: e.said[rng.IntN(len(e.said))].Version}
		case r == 4:
			return Edit{Action: Put, Replace: true, Body: fmt.Appendf(nil, `{"limit":%d}`, n)}
		}
	}
	bodies := []string{`{"limit":%d}`, `{"window":"%ds"}`, `{"mitigation_timeout":"%ds"}`, `{"match":{"path":"/%d"}}`, `{"match":{"methods":["M%d"]}}`,
		`{"share":%d,"window":null}`, `{"limit":%d,"match":{"path":"/in"}}`, `{"match":null}`,
		`{"algorithm":"token_bucket","burst":%d}`, `{"algorithm":null,"burst":null}`, `{"estimate":"lower"}`, `{"estimate":null}`}
	body := bodies[rng.IntN(len(bodies))]
	if strings.Contains(body, "%") {
		body = fmt.Sprintf(body, n)
	}
	return patch(body)
}

// fold is what changes make by the words of docs/operating/rules.md: from the newest that is whole on, each field as the last that set it. It is false
// where they say something else: over a removal or the file's rule, and where fields do not fit together.
func fold(d *desk) (string, bool) {
	said := d.said
	if len(said) == 0 {
		return config.RuleJSON(*byName(d.file, "login")), true
	}
	if said[0].Does == Remove {
		return "", true
	}
	if said[0].Does == Restore {
		return config.RuleJSON(*byName(d.file, "login")), true
	}
	from := slices.IndexFunc(said, func(c Change) bool { return c.whole() })
	var rule map[string]any
	switch {
	case from < 0:
		rule = config.Fields(*byName(d.file, "login"))
		from = len(said)
	case said[from].Does == Set:
		rule, _ = object(said[from].Rule)
	default: // a removal or the file's: the newest stands over it as its operator saw it
		return "", false
	}
	for i := from - 1; i >= 0; i-- {
		its, _ := object(said[i].Rule)
		for _, p := range said[i].Sets {
			v, there := at(its, p)
			if m, is := v.(map[string]any); is {
				v = merge(nil, m)
			}
			put(rule, p, v, there)
		}
	}
	text, _ := json.Marshal(rule)
	parsed, err := config.ParseRule("login", text)
	if err != nil {
		return "", false
	}
	c := Change{Name: "login", Does: Set, Rule: text}
	if _, err := c.read(d.overlay().on); err != nil {
		return "", false
	}
	return config.RuleJSON(parsed), true
}
