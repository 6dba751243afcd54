package changes

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/config"
	"sluice/edge/rules"
)

const file = `rules:
- {name: login, match: {path: /login, methods: [POST]}, limit: 5, mitigation_timeout: 10m}
- {name: all, limit: 100}
`

// A desk is an edge: what its file says, and what was said of it, as lists hold it.
type desk struct {
	t       *testing.T
	file    []rules.Config
	said    []Change // the newest first
	version uint64
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t: t, file: c.Rules}
}

func (d *desk) overlay() *Overlay {
	list := slices.Clone(d.said)
	slices.SortStableFunc(list, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return Lay(&config.Config{Rules: d.file}, File, list, PoP)
}

// edit does what an operator asks for, as cmd does it: over the text in which a change travels.
func (d *desk) edit(e Edit) error {
	d.t.Helper()
	c, needed, err := d.overlay().Change(e)
	if err == nil && needed {
		d.version++
		d.said = append([]Change{Read(c.Name, d.version, 1, time.Unix(int64(d.version), 0), c.Text())}, d.said...)
	}
	return err
}

func (d *desk) rule(name string) string {
	r := d.overlay().Rule(name)
	if r == nil {
		return ""
	}
	return config.RuleJSON(*r)
}

// A change of a newer edge, of which this one understands an older only, is not undone by who changes something else here.
func TestEditUnderWhatIsNotUnderstood(t *testing.T) {
	d := newDesk(t)
	if err := d.edit(Edit{Name: "login", Action: Patch, Body: []byte(`{"limit":7}`)}); err != nil {
		t.Fatal(err)
	}
	d.version++
	d.said = append([]Change{Read("login", d.version, 1, time.Unix(9, 0), `{"does":"set","rule":{"name":"login","limit":8,"colour":"red"}}`)}, d.said...)
	for _, e := range []Edit{{Action: Patch, Body: []byte(`{"limit":9}`)}, {Action: Put, Body: []byte(`{"limit":9,"match":{"path":"/login","methods":["POST"]},"mitigation_timeout":"10m"}`)}} {
		e.Name = "login"
		if err := d.edit(e); !errors.Is(err, ErrDrops) || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "colour") {
			t.Errorf("%s: %v", e.Body, err)
		}
		e.Action, e.Replace = Put, true
		if _, needed, err := d.overlay().Change(e); err != nil || !needed {
			t.Errorf("replaced: %v, %v", needed, err)
		}
	}
	if err := d.edit(Edit{Name: "all", Action: Patch, Body: []byte(`{"limit":9}`)}); err != nil {
		t.Errorf("another rule: %v", err)
	}
	if err := d.edit(Edit{Name: "login", Action: Rollback, To: 1}); err != nil {
		t.Errorf("back: %v", err)
	}
	d = newDesk(t)
	d.said = []Change{Read("login", 1, 1, time.Unix(9, 0), `{"does":"unknown"}`)}
	if _, needed, err := d.overlay().Change(Edit{Name: "login", Action: Rollback}); err != nil || !needed {
		t.Errorf("back to the file, where it is not understood: %v, %v", needed, err)
	}
}

// What a version before said of a field that is gone is left out; all else that it said holds.
func TestFieldThatIsGone(t *testing.T) {
	d := newDesk(t)
	d.said = []Change{
		Read("login", 2, 1, time.Unix(9, 0), `{"does":"set","sets":["/candidate/limit"],"seen":["1-0000000000000001"],"rule":{"name":"login","limit":8,"candidate":{"limit":4}}}`),
		Read("login", 1, 1, time.Unix(8, 0), `{"does":"set","sets":["/limit"],"rule":{"name":"login","limit":8}}`),
	}
	o := d.overlay()
	if got, in := d.rule("login"), o.InForce("login"); got != `{"limit":8,"name":"login"}` || in.Version != 2 || len(o.Refused) > 0 {
		t.Errorf("%s, version %d, refused %v", got, in.Version, o.Refused)
	}
	if err := d.edit(Edit{Name: "login", Action: Patch, Body: []byte(`{"limit":9}`)}); err != nil || d.rule("login") != `{"limit":9,"name":"login"}` {
		t.Errorf("%v: %s", err, d.rule("login"))
	}
}

func TestEdits(t *testing.T) {
	const login = `{"limit":5,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login"}`
	f := func(e Edit, want string, failed error, says ...string) {
		t.Helper()
		if e.Name == "" {
			e.Name = "login"
		}
		d := newDesk(t)
		if d.rule("login") != login {
			t.Fatalf("the file says %s", d.rule("login"))
		}
		err := d.edit(e)
		if (err != nil) != (failed != nil || want == "wrong") || failed != nil && !errors.Is(err, failed) {
			t.Errorf("%s: %v, want %v", e.Body, err, failed)
		}
		for _, text := range says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v does not name %s", e.Body, err, text)
			}
		}
		if err != nil {
			want = login
		}
		if got := d.rule(e.Name); err == nil && got != want || d.rule("login") != login && err != nil {
			t.Errorf("%s:\n got %s\nwant %s", e.Body, got, want)
		}
	}
	put := func(body string) Edit { return Edit{Action: Put, Body: []byte(body)} }
	patch := func(body string) Edit { return Edit{Action: Patch, Body: []byte(body)} }

	// A PUT is the whole rule: it says what it drops.
	f(put(`{"name":"login","limit":300}`), "", ErrDrops, "match.methods, match.path, mitigation_timeout")
	f(put(`{"limit":300,"match":{"path":"/in"},"mitigation_timeout":"1m"}`), "", ErrDrops, "match.methods:")
	f(put(`{"limit":300,"match":{"path":"/in","methods":[]},"mitigation_timeout":"1m"}`), `{"limit":300,"match":{"path":"/in"},"name":"login"}`, nil)
	f(Edit{Action: Put, Replace: true, Body: []byte(`{"limit":300}`)}, `{"limit":300,"name":"login"}`, nil)
	f(Edit{Action: Put, Name: "api", Body: []byte(`{"limit":300}`)}, `{"limit":300,"name":"api"}`, nil)
	f(put(`{"limit":0}`), "wrong", nil)
	f(put(login+`{}`), "wrong", nil)

	// A PATCH merges; null is the default.
	f(patch(`{"limit":300}`), strings.Replace(login, ":5", ":300", 1), nil)
	f(patch(`{"match":{"methods":null}}`), strings.Replace(login, `"methods":["POST"],`, "", 1), nil)
	f(patch(`{"match":null,"mitigation_timeout":null,"window":"2m"}`), `{"limit":5,"name":"login","window":"2m"}`, nil)
	f(patch(`{"response":{"status":503}}`), strings.Replace(login, `}`, `}`, 1)[:len(login)-1]+`,"response":{"status":503}}`, nil)
	f(patch(`{"count":{"refused":true}}`), `{"count":{"refused":true},`+login[1:], nil)
	f(patch(`{"estimate":"lower"}`), `{"estimate":"lower",`+login[1:], nil)
	f(patch(`{"limit":null}`), "wrong", nil)
	f(patch(`{"limit":-1}`), "wrong", nil)
	f(patch(`{"colour":"red"}`), "wrong", nil)
	f(patch(`{"name":"other"}`), "wrong", nil)
	f(patch(`[1]`), "wrong", nil)
	f(patch(`{"limit":7}{"limit":8}`), "wrong", nil)
	f(Edit{Action: Patch, Name: "none", Body: []byte(`{"limit":3}`)}, "", config.ErrNoRule)

	f(Edit{Action: Delete}, "", nil)
	f(Edit{Action: Delete, Name: "none"}, "", config.ErrNoRule)
	f(Edit{Action: Rollback, To: 9}, "", config.ErrNoRule)

	// If-Match: the rule must be as it was.
	tag := newDesk(t).overlay().ETag("login")
	for _, match := range []string{tag, "*", `"x", ` + tag} {
		e := patch(`{"limit":300}`)
		e.IfMatch = match
		f(e, strings.Replace(login, ":5", ":300", 1), nil)
	}
	for _, match := range []string{`"x"`, "W/" + tag, "0"} {
		e := patch(`{"limit":300}`)
		e.IfMatch = match
		f(e, "", ErrMatch, tag)
	}
	f(Edit{Action: Put, Name: "api", Body: []byte(`{"limit":300}`), IfMatch: "*"}, "", ErrMatch)
}

// A rule goes through changes, and back; its past says what was and who did it.
func TestHistory(t *testing.T) {
	d := newDesk(t)
	first, was := d.overlay().ETag("login"), d.rule("login")
	for _, e := range []Edit{
		{Action: Patch, Body: []byte(`{"limit":6}`), Who: "ada", From: "192.0.2.1:5"},
		{Action: Delete},
		{Action: Put, Body: []byte(`{"limit":8}`)},
		{Action: Rollback, To: 1},
	} {
		e.Name = "login"
		if err := d.edit(e); err != nil {
			t.Fatal(err)
		}
	}
	list, err := d.overlay().History("login")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(list)
	six := strings.Replace(was, ":5", ":6", 1)
	want := `[{"version":4,"at":"T4","does":"set","old":{"limit":8,"name":"login"},"new":` + six + `,"after":3,"to":1,"in_force":true},` +
		`{"version":3,"at":"T3","does":"set","old":null,"new":{"limit":8,"name":"login"},"after":2,"in_force":false},` +
		`{"version":2,"at":"T2","does":"removed","old":` + six + `,"new":null,"after":1,"in_force":false},` +
		`{"version":1,"at":"T1","does":"set","who":"ada","from":"192.0.2.1:5","old":` + was + `,"new":` + six + `,"in_force":false},` +
		`{"version":0,"does":"file","old":null,"new":` + was + `,"in_force":false}]`
	for n, version := range []string{"T1", "T2", "T3", "T4"} {
		at, _ := json.Marshal(time.Unix(int64(n+1), 0))
		want = strings.Replace(want, `"`+version+`"`, string(at), 1)
	}
	if string(text) != want {
		t.Errorf(" got %s\nwant %s", text, want)
	}
	if s := d.overlay().InForce("login"); s != (InForce{PoP, 4}) {
		t.Errorf("%+v", s)
	}
	// To what the file says, whatever that is by then.
	if err := d.edit(Edit{Name: "login", Action: Rollback, To: 0}); err != nil || d.rule("login") != was || d.overlay().ETag("login") != first {
		t.Errorf("%v, %s, %s", err, d.rule("login"), d.overlay().ETag("login"))
	}
	d.file[0].Limit = 77
	if s := d.overlay().InForce("login"); s != (InForce{File, 0}) || !strings.Contains(d.rule("login"), "77") || d.overlay().ETag("login") == first {
		t.Errorf("%+v %s", s, d.rule("login"))
	}
	// What is so already needs no word.
	before := d.version
	for _, body := range []string{`{"limit":9}`, `{"limit":9}`} {
		if err := d.edit(Edit{Name: "login", Action: Patch, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if d.version != before+1 {
		t.Errorf("%d changes of two that say the same", d.version-before)
	}
	if _, err := d.overlay().History("none"); !errors.Is(err, config.ErrNoRule) {
		t.Error(err)
	}
}

// What this edge does not understand leaves in force what it understood last.
func TestChangesOfAnotherVersion(t *testing.T) {
	for _, text := range []string{`{"does":"set","rule":{"name":"login","limit":5,"quota":1}}`, `{"does":"turn"}`, `{"does":"set"}`, "\x01", `{"does":"set","rule":{"name":"other","limit":5}}`} {
		d := newDesk(t)
		was := d.rule("login")
		newer := Read("login", 9, 1, time.Unix(9, 0), text)
		d.said = []Change{newer}
		if o := d.overlay(); d.rule("login") != was || len(o.Refused) != 1 || o.Refused[0].Change.Version != 9 || o.InForce("login").Origin != File {
			t.Errorf("%q over the file: %s, %+v", text, d.rule("login"), o.Refused)
		}
		d.said = nil
		if err := d.edit(Edit{Name: "login", Action: Patch, Body: []byte(`{"limit":6}`)}); err != nil {
			t.Fatal(err)
		}
		good := d.rule("login")
		d.said = append([]Change{newer}, d.said...)
		o := d.overlay()
		if d.rule("login") != good || len(o.Refused) != 1 || o.InForce("login").Version != 1 {
			t.Errorf("%q over a change: %s, %+v", text, d.rule("login"), o.Refused)
		}
		if list, _ := o.History("login"); len(list) != 3 || list[0].Refused == "" || list[0].InForce || !list[1].InForce {
			t.Errorf("%q: %+v", text, list)
		}
		if err := d.edit(Edit{Name: "login", Action: Rollback, To: 9}); err == nil {
			t.Errorf("%q: rolled back to what nobody here understands", text)
		}
	}
}

// The order of the rules is that of the file, with what was added behind by name, in whatever order it was said.
func TestOrder(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"z", "login", "a"} {
		if err := d.edit(Edit{Name: name, Action: Put, Replace: true, Body: []byte(`{"limit":3}`)}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, r := range d.overlay().Rules {
		names = append(names, r.Name)
	}
	if strings.Join(names, " ") != "login all a z" {
		t.Error(names)
	}
	// The same rules, whatever they come from, have one hash.
	whole := &desk{t: t, file: d.overlay().Rules}
	slices.Reverse(whole.file)
	if config.Hash(whole.overlay().Rules) != config.Hash(d.overlay().Rules) || config.Hash(d.file) == config.Hash(d.overlay().Rules) {
		t.Error("the hash is not that of the rules")
	}
}
