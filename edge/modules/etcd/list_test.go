//go:build system

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice/edge/changes"
	"sluice/edge/changes/etcd"
	"sluice/edge/changes/etcd/etcdtest"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

var start = time.Now()

func word(rule string, n int) operatorlog.Order {
	return operatorlog.Order{Rule: rule, Kind: operatorlog.Change, Start: start, Text: fmt.Sprintf(`{"does":"set","rule":{"limit":%d},"after":0}`, n)}
}

// An edge keeps a list in etcd, once it follows.
func newEdge(t *testing.T, n *etcdtest.Node, id uint64) *shared {
	t.Helper()
	e, err := open(secret.Of([]byte("k")), id, etcd.Config{Endpoints: []string{n.Endpoint}, Prefix: "/s/"}, func(bool, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	e.Describe(control.EdgeStatus{Name: fmt.Sprint("edge", id), PoP: "fra"})
	return e
}

func follow(t *testing.T, edges ...*shared) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, e := range edges {
		all.Go(func() { e.Follow(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	for _, e := range edges {
		until(t, "following", e.up)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never %s", what)
		}
	}
}

// knowsOf is what an edge knows of a rule, while it goes on hearing.
func (e *shared) knowsOf(rule string) []operatorlog.Entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ofRule(rule)
}

// has is what an edge has, as text: by rule, the newest first.
func (e *shared) has() string {
	list, _, _ := e.Changes()
	var all []string
	for i := range list {
		all = append(all, fmt.Sprint(list[i].Rule, " ", markText(list[i].Mark()), " ", list[i].Text))
	}
	return strings.Join(all, "\n")
}

// Edges that come with different pasts, of which etcd has yet another, end with one: the newest of all, by version and then by edge; etcd has it as
// well, and nobody goes on writing.
func TestPastsComeTogether(t *testing.T) {
	n := etcdtest.Start(t)
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Endpoint}, Logger: zap.NewNop(), DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var edges []*shared
	for id := range uint64(3) {
		e := newEdge(t, n, id+1)
		for i := range 8 { // of the same versions: the clock stands
			if _, err := e.List.Add(word("both", int(id)*100+i), start); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.List.Add(word(fmt.Sprint("own", id), 1), start); err != nil {
			t.Fatal(err)
		}
		edges = append(edges, e)
	}
	// One of etcd's own lasts longer than any may, as somebody with a wrong clock has said: each edge bounds that otherwise.
	future := start.AddDate(10, 0, 0)
	text := changes.EncodeRecords([]changes.Record{{Version: uint64(start.UnixMilli()) + 100, Edge: 9, At: start, Until: future, Text: `{"does":"file","after":1}`}})
	if _, err := other.Put(t.Context(), "/s/rules/both", string(text)); err != nil {
		t.Fatal(err)
	}
	follow(t, edges...)
	until(t, "the same", func() bool {
		a := edges[0].has()
		return strings.Contains(a, "own0") && strings.Contains(a, "own1") && strings.Contains(a, "own2") && edges[1].has() == a && edges[2].has() == a
	})
	list, _, _ := edges[0].Changes()
	both := edges[0].knowsOf("both")
	if len(list) != operatorlog.MaxVersions+3 || len(both) != operatorlog.MaxVersions || both[0].Mark().Edge != 9 {
		t.Errorf("%s", edges[0].has())
	}
	for i, want := range []uint64{3, 2, 1, 3, 2, 1, 3, 2, 1} { // of one version the higher edge stands
		if got := both[i+1].Mark(); got.Edge != want || i%3 > 0 && got.Generation != both[i].Mark().Generation {
			t.Errorf("change %d is %v", i+1, got)
		}
	}

	// What is said now is newer than all, at whichever edge.
	for i := range 12 {
		e := edges[i%3]
		until(t, "changed", func() bool { // others may still be bringing what they had
			_, version, _ := e.Changes()
			_, err := e.Add(word("both", 1000+i), version, start)
			if err != nil && !errors.Is(err, changes.ErrMoved) {
				t.Fatal(err)
			}
			return err == nil
		})
		if list := e.knowsOf("both"); !strings.Contains(list[0].Text, fmt.Sprint(1000+i)) {
			t.Fatalf("%s", e.has())
		}
	}
	until(t, "the same", func() bool { return edges[1].has() == edges[2].has() && edges[0].has() == edges[2].has() })
	answer, err := other.Get(t.Context(), "/s/rules/both")
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatal(answer, err)
	}
	entries, err := decode("both", answer.Kvs[0].Value)
	if mine := edges[0].knowsOf("both"); err != nil || !slices.EqualFunc(mine, entries, func(a, b operatorlog.Entry) bool { return a.Mark() == b.Mark() && a.Text == b.Text }) {
		t.Errorf("etcd has %s (%v), the edges %s", answer.Kvs[0].Value, err, edges[0].has())
	}
	// One put by hand, at most one of each edge to bring its own, and the twelve.
	if times := answer.Kvs[0].Version; times > 1+3+12 {
		t.Errorf("the rule was written %d times", times)
	}
}

// A change is made of what its editor has seen, or not at all.
func TestAddOverAnother(t *testing.T) {
	n := etcdtest.Start(t)
	a, b := newEdge(t, n, 1), newEdge(t, n, 2)
	if _, err := a.Add(word("r", 1), 0, start); !errors.Is(err, changes.ErrAway) {
		t.Errorf("before anybody has asked etcd: %v", err)
	}
	follow(t, a, b)
	_, version, _ := a.Changes()
	mark, err := a.Add(word("r", 1), version, start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Add(word("r", 2), version, start); !errors.Is(err, changes.ErrMoved) {
		t.Errorf("over a version that has passed: %v", err)
	}
	until(t, "at the other", func() bool { return b.has() == a.has() })
	// Of etcd b has seen no more than this, whatever a says meanwhile: then etcd refuses.
	b.mu.Lock()
	revision := b.revisions["r"]
	b.mu.Unlock()
	_, now, _ := a.Changes()
	if _, err := a.Add(word("r", 3), now, start); err != nil {
		t.Fatal(err)
	}
	until(t, "at the other", func() bool { return b.has() == a.has() })
	b.mu.Lock()
	b.revisions["r"] = revision // it has not heard yet
	b.mu.Unlock()
	_, version, _ = b.Changes()
	if _, err := b.Add(word("r", 4), version, start); !errors.Is(err, changes.ErrMoved) {
		t.Errorf("over what etcd has not any more: %v", err)
	}
	if puts, _ := b.counted(); puts != (putCounts{conflict: 1}) {
		t.Errorf("%+v", puts)
	}
	if !strings.Contains(b.has(), `"limit":3}`) || strings.Contains(b.has(), `"limit":4}`) {
		t.Errorf("%s", b.has())
	}

	// Who has it is told by those who have, and that it is refused.
	list, version, _ := a.Changes()
	a.InForce(version, nil)
	_, bVersion, _ := b.Changes()
	b.InForce(bVersion, []operatorlog.Mark{list[0].Mark()})
	until(t, "refused by one", func() bool {
		s, err := a.Spread("r", []operatorlog.Mark{list[0].Mark()})
		return err == nil && s.Known == 2 && s.Have == 1 && len(s.Missing) == 1
	})
	until(t, "everywhere", func() bool {
		s, err := a.Spread("r", []operatorlog.Mark{mark})
		return err == nil && s.Have == 2
	})
	if _, wrong := b.counted(); wrong != 1 {
		t.Errorf("%d wrong", wrong)
	}
}
