package marks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/pop/secret"
)

var (
	key1, key2 = secret.Of([]byte("the secret of this PoP")), secret.Of([]byte("another secret, of a stranger"))
	began      = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

// world is a node, and edges that read and write its marks in turn.
type world struct {
	node   map[string][]byte
	boards []*Detector
	now    time.Time
}

func newWorld(pop string, keys ...secret.Secret) *world {
	w := &world{node: make(map[string][]byte), now: began}
	for i, k := range keys {
		w.boards = append(w.boards, New(pop, k, uint64(64*i+7), began)) // all begin at one slot
	}
	return w
}

func (w *world) values(b *Detector) (list [][]byte) {
	for key := range strings.FieldsSeq(b.Keys) {
		list = append(list, w.node[key])
	}
	return list
}

// turn is an edge's: it reads, and writes if it is alive.
func (w *world) turn(i int) {
	b := w.boards[i]
	w.node[b.Read(w.values(b), w.now, w.now)] = b.Own(w.now, fmt.Sprint("edge", i), "192.0.2.1:80")
}

func (w *world) run(rounds int, alive ...int) {
	for range rounds {
		for _, i := range alive {
			w.turn(i)
		}
		w.now = w.now.Add(Every)
	}
}

// apart is how an edge sees the others.
func (w *world) apart(i int) string {
	var list []string
	for _, e := range w.boards[i].Apart(w.now) {
		how := "stranger"
		if e.Rotating {
			how = "rotating"
		}
		list = append(list, e.Name+" "+how)
	}
	return strings.Join(list, ", ")
}

func TestWhoCountsApart(t *testing.T) {
	both, none := key2.After(key1), secret.Of([]byte("fra1"))
	for _, test := range []struct {
		what string
		keys []secret.Secret
		want []string
	}{
		{"all the same", []secret.Secret{key1, key1, key1}, []string{"", "", ""}},
		{"one another", []secret.Secret{key1, key1, key2}, []string{"edge2 stranger", "edge2 stranger", "edge0 stranger, edge1 stranger"}},
		{"one without a file", []secret.Secret{key1, none, key1}, []string{"edge1 stranger", "edge0 stranger, edge2 stranger", "edge1 stranger"}},
		{"the first of a change", []secret.Secret{key1, key1, both}, []string{"edge2 rotating", "edge2 rotating", "edge0 rotating, edge1 rotating"}},
		{"the middle of a change", []secret.Secret{both, both, both}, []string{"", "", ""}},
		{"the last of a change", []secret.Secret{both, key2, key2}, []string{"", "", ""}},
		{"two steps at once", []secret.Secret{key1, both, key2}, []string{"edge2 stranger, edge1 rotating", "edge0 rotating", "edge0 stranger"}},
	} {
		w := newWorld("fra1", test.keys...)
		w.run(3, 0, 1, 2)
		for i, want := range test.want {
			if got := w.apart(i); got != want {
				t.Errorf("%s: edge%d sees %q, want %q", test.what, i, got, want)
			}
		}
	}
}

// Sixty-four edges that all begin at one slot find one each, and keep it.
func TestSlots(t *testing.T) {
	w := newWorld("fra1", slices.Repeat([]secret.Secret{key1}, slots-1)...)
	w.boards = append(w.boards, New("fra1", key2, 1<<40, began))
	all := make([]int, slots)
	for i := range all {
		all[i] = i
	}
	w.run(3, all...)
	if got := w.apart(0); len(w.node) != slots || got != "edge63 stranger" {
		t.Errorf("%d slots are filled; edge0 sees %q", len(w.node), got)
	}
	if n := len(w.boards[slots-1].Apart(w.now)); n != slots-1 {
		t.Errorf("the stranger sees %d edges", n)
	}
}

// PoPs of other names may share nodes.
func TestOtherPoPs(t *testing.T) {
	w := newWorld("fra1", key1, key1)
	w.boards[1] = New("ams1", key2, 2, began)
	w.run(3, 0, 1)
	if got := w.apart(0) + w.apart(1); got != "" || len(w.node) != 2 {
		t.Errorf("%q, %d marks", got, len(w.node))
	}
}

// Who has gone is forgotten, whether memcached forgets the mark or somebody keeps it.
func TestWhoHasGone(t *testing.T) {
	w := newWorld("fra1", key1, key2)
	w.run(2, 0, 1)
	w.run(int(Kept/Every)-1, 0)
	if got := w.apart(0); got != "edge1 stranger" {
		t.Errorf("a moment ago: %q", got)
	}
	w.run(2, 0)
	if got := w.apart(0); got != "" {
		t.Errorf("after that: %q", got)
	}
	late := New("fra1", key1, 9, began)
	late.Read(w.values(late), w.now, w.now)
	if list := late.Apart(w.now); len(list) != 0 {
		t.Errorf("an edge that starts later sees %v", list)
	}
	w.run(1, 1, 0) // whose clock is the same, and who is back
	if got := w.apart(0); got != "edge1 stranger" {
		t.Errorf("back: %q", got)
	}
}

// An edge whose process is replaced is one edge, as the new one says.
func TestReplaced(t *testing.T) {
	w := newWorld("fra1", key1, key2, key2)
	w.run(1, 0, 1)
	after := w.boards[2].Own(w.now, "edge1", "192.0.2.1:80")
	w.node[w.boards[2].Read(w.values(w.boards[2]), w.now, w.now)] = after
	w.run(1, 1, 0)
	if list := w.boards[0].Apart(w.now); len(list) != 1 || list[0].Name != "edge1" {
		t.Errorf("%+v", list)
	}
	// Its secret is put right: what it said under the wrong one, which is still on the node, is not told any more.
	right := New("fra1", key1, 300, began)
	w.now = w.now.Add(time.Second)
	w.node[right.Read(w.values(right), w.now, w.now)] = right.Own(w.now, "edge1", "192.0.2.1:80")
	w.turn(0)
	if list := w.boards[0].Apart(w.now); len(list) != 0 {
		t.Errorf("put right: %+v", list)
	}
	if list := right.Apart(w.now); len(list) != 0 {
		t.Errorf("put right, as it sees itself: %+v", list)
	}
	// Machines that all say they are edge1 hide no secret from each other.
	twins := newWorld("fra1", key1, key2, key2)
	for range 4 {
		for i, b := range twins.boards {
			twins.node[b.Read(twins.values(b), twins.now, twins.now)] = b.Own(twins.now.Add(time.Duration(i)*time.Millisecond), "edge1", "192.0.2.1:80")
		}
		twins.now = twins.now.Add(Every)
	}
	if list := twins.boards[0].Apart(twins.now); len(list) != 1 {
		t.Errorf("two of one name, which is this edge's as well: %+v", list)
	}
}

// An edge whose clock is far behind is seen as soon as it has written twice.
func TestClocksApart(t *testing.T) {
	b, other := New("fra1", key1, 1, began), New("fra1", key2, 2, began)
	for i, want := range []int{0, 1, 1} {
		values := make([][]byte, slots)
		values[5] = other.Own(began.Add(time.Duration(i)*Every-time.Hour), "behind", "")
		now := began.Add(time.Duration(i) * Every)
		b.Read(values, now, now)
		if n := len(b.Apart(now)); n != want {
			t.Errorf("after mark %d: %d strangers, want %d", i+1, n, want)
		}
	}
}

// What anybody wrote is shown, if at all, without what a terminal would obey, and costs no more than its slot.
func TestHostileMarks(t *testing.T) {
	b := New("fra1", key1, 1, began)
	values := make([][]byte, slots)
	for i, text := range []string{"", "x", "{}", `{"id":3,"secrets":[]}`, `{"id":3,"secrets":["a","b","c"]}`, `{"id":-1,"secrets":["a"]}`, `{"id":3,"secrets":["a"],"name":"` + strings.Repeat("x", 2*maxSize) + `"}`} {
		values[i] = []byte(text)
	}
	b.Read(values, began, began)
	if list := b.Apart(began); len(list) != 0 {
		t.Errorf("%v", list)
	}
	values[20] = fmt.Appendf(nil, `{"id":3,"written":%d,"secrets":["\u001b[2J"],"name":"a\nb\u001b[31m%s","address":"\u0085"}`, began.UnixMilli(), strings.Repeat("y", 200))
	b.Read(values, began, began)
	list := b.Apart(began)
	if len(list) != 1 || list[0].Name[:8] != "a?b?[31m" || len(list[0].Name) != maxText || list[0].Digests[0] != "?[2J" || strings.Trim(list[0].Address, "?") != "" {
		t.Errorf("%+v", list)
	}
	for n := range 100 { // other edges in each slot, each time
		now := began.Add(time.Duration(n) * Every)
		for i := range values {
			values[i] = fmt.Appendf(nil, `{"id":%d,"written":%d,"secrets":["x"]}`, 1000*n+i+10, now.UnixMilli())
		}
		b.Read(values, now, now)
	}
	if most := slots * int(Kept/Every+1); len(b.edges) > most {
		t.Errorf("%d edges are remembered, at most %d", len(b.edges), most)
	}
}

func TestTrial(t *testing.T) {
	at := func(digest string, rotating bool) Edge { return Edge{Mark{Digests: []string{digest}}, rotating} }
	x, y, kin := at("x", false), at("y", false), at("z", true)
	type step struct {
		after time.Duration
		met   int
		apart []Edge
		held  bool
	}
	for what, steps := range map[string][]step{
		"nobody":                              {{0, 0, nil, false}},
		"one stranger: nobody knows":          {{0, 0, []Edge{x}, false}},
		"each another":                        {{0, 0, []Edge{x, y}, false}},
		"the odd one out":                     {{0, 0, []Edge{x, x}, true}, {time.Hour, 0, []Edge{x, x}, true}},
		"and they go":                         {{0, 0, []Edge{x, x}, true}, {time.Second, 0, []Edge{x}, false}, {2 * time.Second, 0, []Edge{x, x}, true}, {time.Hour, 0, []Edge{x}, false}, {time.Hour, 0, []Edge{x, x}, false}},
		"and it meets one of its own":         {{0, 0, []Edge{x, x}, true}, {time.Second, 1, []Edge{x, x}, false}, {2 * time.Second, 0, []Edge{x, x, x}, false}},
		"they come while it is on trial":      {{0, 0, nil, false}, {trialFor - 1, 0, []Edge{x, x}, true}},
		"they come when it is in service":     {{0, 0, nil, false}, {trialFor, 0, nil, false}, {trialFor, 0, []Edge{x, x, x}, false}},
		"forged, to one that has company":     {{0, 2, nil, false}, {time.Second, 2, []Edge{x, x, x, x, x}, false}, {2 * time.Second, 0, []Edge{x, x, x, x, x}, false}},
		"others are being given the same one": {{0, 0, []Edge{kin, kin, kin}, false}},
	} {
		trial := Trial{Began: began}
		for i, s := range steps {
			if held := trial.Held(s.met, s.apart, began.Add(s.after)); held != s.held {
				t.Errorf("%s: step %d: held %v", what, i+1, held)
			}
		}
	}
}
