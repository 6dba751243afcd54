package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/edge/top"
)

var began = time.Date(2026, 5, 4, 14, 58, 0, 0, time.UTC)

// newKeeper is one that looks at what now says.
func newKeeper(t *testing.T, dir string, now *Snapshot) (*Keeper, *bytes.Buffer) {
	said := new(bytes.Buffer)
	k := &Keeper{Dir: dir, Look: func() Snapshot { return *now }, Log: slog.New(slog.NewTextHandler(said, nil))}
	k.Open(began)
	k.begin(began)
	return k, said
}

func describe(h History) string {
	var list []string
	for _, h := range h.Hours {
		text := fmt.Sprintf("%s %.0fs: %d of %d refused", h.Start.Format("15:04"), h.Seconds, h.Refused, h.Received)
		if r := h.Rules["login"]; r != nil {
			text += fmt.Sprintf(", login %+v", *r)
		}
		list = append(list, text+fmt.Sprint(" ", h.Top["requests"]))
	}
	return strings.Join(list, "\n")
}

// What came in a minute belongs to the hour in which it began; an hour goes on after a restart, and a week later it is forgotten, on the disk as well.
func TestHours(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	now := &Snapshot{Received: 1000, Rules: map[string]Counts{"login": {Passed: 900, Refused: 100}}, Tops: map[string]top.List{"requests": {Heavy: []top.Heavy{{Source: "a", Count: 50, Error: 10}}}}}
	k, _ := newKeeper(t, dir, now)
	now.Received, now.Refused, now.Rules = 1100, 10, map[string]Counts{"login": {Passed: 990, Refused: 110, Blocks: 1}}
	now.Tops = map[string]top.List{"requests": {Heavy: []top.Heavy{{Source: "a", Count: 90, Error: 10}, {Source: "b", Count: 30, Error: 25}}}}
	k.step(began.Add(time.Minute))
	now.Received, now.Rules = 1150, map[string]Counts{"login": {Passed: 5}} // removed, and there again
	now.Tops = map[string]top.List{"requests": {Fades: 1, Heavy: []top.Heavy{{Source: "a", Count: 46, Error: 5}, {Source: "b", Count: 20, Error: 12}}}}
	k.step(began.Add(2 * time.Minute))
	now.Received = 1160
	k.step(began.Add(3 * time.Minute))
	want := "15:00 60s: 0 of 10 refused, login {Passed:0 Refused:0 Shadow:0 Blocks:0} []\n" +
		"14:00 120s: 10 of 150 refused, login {Passed:95 Refused:10 Shadow:0 Blocks:1} [{a 41} {b 11}]"
	if got := describe(k.Last(24, 5, began.Add(3*time.Minute))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "2026-05-04T13.json"), []byte(`{"received":7,"rules":{"x":null}`), 0o600)) // half
	must(os.WriteFile(filepath.Join(dir, "2026-04-27T14.json"), []byte(`{"received":7}`), 0o600))                   // a week old
	must(os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	again, said := newKeeper(t, dir, now)
	now.Received = 1200
	again.step(began.Add(time.Minute))
	if got := describe(again.Last(24, 5, began.Add(time.Minute))); !strings.HasSuffix(got, "14:00 180s: 10 of 190 refused, login {Passed:95 Refused:10 Shadow:0 Blocks:1} [{a 41} {b 11}]") {
		t.Errorf("after a restart:\n%s", got)
	}
	if n := strings.Count(said.String(), "\n"); n != 1 || !strings.Contains(said.String(), "2026-05-04T13.json") {
		t.Errorf("it said %s", said)
	}
	if _, err := os.Stat(filepath.Join(dir, "2026-04-27T14.json")); !os.IsNotExist(err) {
		t.Error("the file of a week ago is still there")
	}
	later := began.Add(Kept*time.Hour + 3*time.Minute)
	again.at = later
	again.step(later.Add(time.Minute))
	if got := again.Last(Kept, 5, later.Add(time.Minute)); len(got.Hours) != 1 {
		t.Errorf("a week later: %s", describe(got))
	}
}

// A folder that cannot be written is told of once, and again when it can be; the hours are known all the same. Without a folder that is said.
func TestUnkept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing", "history")
	now := new(Snapshot)
	k, said := newKeeper(t, dir, now)
	for n := range 3 {
		now.Received += 10
		k.step(began.Add(time.Duration(n+1) * time.Minute))
	}
	if h := k.Last(1, 5, began.Add(time.Minute)); h.Unkept == "" || len(h.Hours) == 0 || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("%+v; it said %s", h, said)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k.step(began.Add(4 * time.Minute))
	if h := k.Last(1, 5, began.Add(time.Minute)); h.Unkept != "" || strings.Count(said.String(), "\n") != 2 {
		t.Errorf("%+v; it said %s", h, said)
	}
	none, said := newKeeper(t, "", now)
	none.step(began.Add(time.Minute))
	if h := none.Last(1, 5, began.Add(time.Minute)); h.Unkept != "there is no state_dir" || len(h.Hours) != 1 || said.Len() > 0 {
		t.Errorf("%+v; it said %s", h, said)
	}
}

// An hour has a bounded size, however many rules and sources there are, and several edges' hours are added.
func TestBounds(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "history"), new(Snapshot)
	k, _ := newKeeper(t, dir, now)
	now.Rules, now.Tops = make(map[string]Counts), make(map[string]top.List)
	for n := range 1000 {
		now.Rules[fmt.Sprintf("%064d", n)] = Counts{1 << 40, 1 << 40, 1 << 40, 1 << 40}
	}
	for _, by := range []string{"requests", "refused", "shadow"} {
		var list top.List
		for n := range 200 {
			list.Heavy = append(list.Heavy, top.Heavy{Source: fmt.Sprintf("2001:db8:ffff:%04x::/64", n), Count: 1 << 40})
		}
		now.Tops[by] = list
	}
	k.step(began.Add(time.Minute))
	info, err := os.Stat(filepath.Join(dir, "2026-05-04T14.json"))
	if err != nil || info.Size() > 64<<10 {
		t.Errorf("%v, %v", info, err)
	}
	one := k.Last(1, 5, began.Add(time.Minute))
	if h := one.Hours[0]; len(h.Rules) != AllRules || len(h.Top["refused"]) != 5 || h.Rules[Others].Refused != 745<<40 {
		t.Errorf("%d rules, %d sources, others %+v", len(h.Rules), len(h.Top["refused"]), h.Rules[Others])
	}
	sum := Sum(one, History{Unkept: "edge2: there is no state_dir", Hours: []Hour{{Start: one.Hours[0].Start, Received: 3, Top: map[string][]Heavy{"refused": {{"2001:db8:ffff:0000::/64", 5}}}}, {Start: began.Add(-3 * time.Hour)}}})
	if len(sum.Hours) != 2 || sum.Unkept == "" || sum.Hours[0].Received != 3 || sum.Hours[0].Top["refused"][0].Count != 1<<40+5 {
		t.Errorf("%d hours: %+v", len(sum.Hours), sum.Hours[0].Top["refused"])
	}
}

// With less detail an hour has the rules that refused most, and nothing of what the others did is lost.
func TestLastShort(t *testing.T) {
	k := Keeper{hours: map[time.Time]*Hour{}}
	start := time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)
	k.hours[start] = &Hour{Start: start, Rules: map[string]*Counts{"a": {Passed: 9}, "b": {Refused: 2}, "c": {Refused: 3}, "d": {Blocks: 1, Passed: 4}, Others: {Refused: 5}}}
	for rules, want := range map[int]string{5: "a 9 0 0, b 0 2 0, c 0 3 0, d 4 0 1, (others) 0 5 0", 2: "c 0 3 0, (others) 13 7 1", 0: "(others) 13 10 1"} {
		var got []string
		h := k.LastShort(1, 0, rules, start).Hours[0]
		for _, name := range []string{"a", "b", "c", "d", Others} {
			if r := h.Rules[name]; r != nil {
				got = append(got, fmt.Sprint(name, " ", r.Passed, " ", r.Refused, " ", r.Blocks))
			}
		}
		if strings.Join(got, ", ") != want || len(got) != len(h.Rules) || k.hours[start].Rules["a"].Passed != 9 {
			t.Errorf("%d rules: got %v, want %s", rules, got, want)
		}
	}
}
