package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/tier"
	"sluice/counter"
	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/events"
	"sluice/mitigation"
	"sluice/pop/operatorlog"
)

// What another edge has said while an operator's change was on its way into the list comes into force together with it. Its event tells his
// change alone, and the other's tells the other's.
func TestEventIsOfOneChange(t *testing.T) {
	c, err := config.Parse("f", []byte("origins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 5}]"))
	must(t, err)
	server, err := edge.New(edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(64, nil), Events: events.New(10, nil)})
	must(t, err)
	var list operatorlog.List
	version := uint64(1)
	r := &reloader{flags: &flags{}, server: server, log: slog.New(slog.DiscardHandler), name: "here", base: c, store: &tier.RuleStore{
		Origin: changes.PoP,
		List:   func() ([]operatorlog.Entry, uint64, <-chan struct{}) { return list.Changes(), version, nil },
		Add: func(w operatorlog.Order, _ uint64, now time.Time) (operatorlog.Mark, error) {
			_, err := list.Add(operatorlog.Order{Rule: "r", Kind: operatorlog.Change, Start: now, Text: `{"does":"set","rule":{"name":"r","limit":5,"window":"2m"},"sets":["/window"],"edge":"there","who":"ada"}`}, 2, 0, now)
			must(t, err)
			version += 2
			return list.Add(w, 1, 0, now)
		},
		InForce: func(uint64, []operatorlog.Mark) {},
		Await:   func(made func() tier.Made) tier.Progress { made(); return tier.Progress{} },
	}}
	must(t, r.catchUp())
	_, err = r.edit(changes.Edit{Action: changes.Patch, Name: "r", Body: []byte(`{"limit":6}`), Who: "bob"})
	must(t, err)
	reported := map[string]string{}
	for _, e := range server.Events().Since(0) {
		for _, f := range e.Changed {
			reported[e.Who] += f.Field + " "
		}
	}
	if want := map[string]string{"ada": "window ", "bob": "limit "}; !maps.Equal(reported, want) {
		t.Errorf("told %q, want %q", reported, want)
	}
}

// Of two edges that change a rule at once, by one ETag perhaps, one stands: who said the other is told so.
func TestRuleChangedElsewhereMeanwhile(t *testing.T) {
	c, err := config.Parse("f", []byte("origins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 5}]"))
	must(t, err)
	server, err := edge.New(edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(64, nil)})
	must(t, err)
	var list operatorlog.List
	version, elsewhere := uint64(1), ""
	add := func(edge uint64, w operatorlog.Order) operatorlog.Mark {
		mark, err := list.Add(w, edge, 0, time.Now())
		must(t, err)
		version++
		return mark
	}
	r := &reloader{flags: &flags{}, server: server, log: slog.New(slog.DiscardHandler), events: events.New(10, nil), name: "here", base: c, store: &tier.RuleStore{
		Origin:  changes.PoP,
		List:    func() ([]operatorlog.Entry, uint64, <-chan struct{}) { return list.Changes(), version, nil },
		Add:     func(w operatorlog.Order, _ uint64, _ time.Time) (operatorlog.Mark, error) { return add(1, w), nil },
		InForce: func(uint64, []operatorlog.Mark) {},
		Await: func(made func() tier.Made) tier.Progress {
			if elsewhere != "" {
				add(2, operatorlog.Order{Rule: "r", Kind: operatorlog.Change, Start: time.Now(), Text: elsewhere})
			}
			if m := made(); m.Overtaken != (elsewhere != "") || m.Overtaken && len(m.Marks) != 2 {
				t.Errorf("%+v", m)
			}
			return tier.Progress{Spread: &control.Spread{Spread: mitigation.Spread{Known: 2, Have: 2}}}
		},
	}}
	must(t, r.catchUp())
	for _, test := range []struct {
		elsewhere string
		edit      changes.Edit
		warned    bool
	}{
		{"", changes.Edit{Action: changes.Patch, Body: []byte(`{"limit":6}`)}, false},
		{`{"does":"set","rule":{"name":"r","limit":9},"edge":"there"}`, changes.Edit{Action: changes.Patch, Body: []byte(`{"limit":7}`)}, true},
		{`{"does":"removed","edge":"there"}`, changes.Edit{Action: changes.Rollback}, true},
		{"", changes.Edit{Action: changes.Rollback}, false},
	} {
		must(t, r.catchUp())
		elsewhere, test.edit.Name, test.edit.IfMatch = test.elsewhere, "r", r.overlay.Load().ETag("r")
		done, err := r.edit(test.edit)
		if err != nil || done.Edges.Have != 2 || (len(done.Warnings) > 0) != test.warned || (len(done.Overtaken) > 0) != test.warned {
			t.Errorf("%s: %+v, %v", test.elsewhere, done, err)
		}
	}
}

// A change that cannot be in force with the rest of this edge's configuration, although the rule by itself
// can, is not made, and one that another edge has made is refused. Neither keeps what comes later from
// being in force, nor a file from being read again, nor an edge from starting.
func TestChangesThatCannotBe(t *testing.T) {
	wrong := map[uint32]bool{13: true, 14: true, 15: true}
	no := errors.New("other: no rule may have that limit")
	other := edge.Module{Name: "other", Prepare: func(s *edge.Setup) (edge.Points, error) {
		for i, rule := range s.Config.Rules {
			if wrong[rule.Limit] || rule.Limit == 17 && s.Config.Rules[1-i].Limit == 16 {
				return edge.Points{}, fmt.Errorf("%w: %d", no, rule.Limit)
			}
		}
		return edge.Points{}, nil
	}}
	parse := func(more string) *config.Config {
		c, err := config.Parse("f", []byte("origins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 5}, {name: s, limit: 5}"+more+"]"))
		must(t, err)
		return c
	}
	var list operatorlog.List
	var version uint64
	var refused []operatorlog.Mark
	add := func(w operatorlog.Order, edge uint64) (operatorlog.Mark, error) {
		version++
		return list.Add(w, edge, 0, time.Now())
	}
	elsewhere := func(rule string, limit int) {
		_, err := add(operatorlog.Order{Rule: rule, Kind: operatorlog.Change, Start: time.Now(),
			Text: fmt.Sprintf(`{"does":"set","rule":{"name":%q,"limit":%d},"edge":"there"}`, rule, limit)}, 2)
		must(t, err)
	}
	start := func() *reloader {
		c := parse("")
		server, err := edge.New(edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(64, nil), Use: edge.Modules{other}})
		must(t, err)
		return &reloader{flags: &flags{}, server: server, log: slog.New(slog.DiscardHandler), events: events.New(10, nil), name: "here", base: c, store: &tier.RuleStore{
			Origin:  changes.PoP,
			List:    func() ([]operatorlog.Entry, uint64, <-chan struct{}) { return list.Changes(), version, nil },
			Add:     func(w operatorlog.Order, _ uint64, _ time.Time) (operatorlog.Mark, error) { return add(w, 1) },
			InForce: func(_ uint64, marks []operatorlog.Mark) { refused = marks },
		}}
	}
	r := start()
	must(t, r.catchUp())
	edit := func(rule string, limit int, want error) {
		t.Helper()
		if _, err := r.edit(changes.Edit{Action: changes.Patch, Name: rule, Body: fmt.Appendf(nil, `{"limit":%d}`, limit)}); !errors.Is(err, want) {
			t.Errorf("%s to %d: %v, want %v", rule, limit, err, want)
		}
	}
	want := func(refuses int, limits ...uint32) {
		t.Helper()
		var got []uint32
		for _, rule := range r.server.Config().Rules {
			got = append(got, rule.Limit)
		}
		if !slices.Equal(got, limits) || len(refused) != refuses {
			t.Errorf("limits %v, and %d refused; want %v, %d", got, len(refused), limits, refuses)
		}
	}
	edit("r", 13, no)
	if len(list.Changes()) != 0 {
		t.Errorf("it is told to others: %v", list.Changes())
	}
	edit("r", 6, nil)
	want(0, 6, 5)
	elsewhere("r", 13)
	elsewhere("s", 7)
	must(t, r.catchUp())
	want(1, 6, 7)
	edit("s", 8, nil)
	elsewhere("s", 14)
	must(t, r.catchUp())
	want(2, 6, 8)
	must(t, r.lay(parse(", {name: t, limit: 9}")))
	want(2, 6, 8, 9)
	if n := edgetest.Metrics(t, r.server)["sluice_reloads_total{result=failed}"]; n != 0 {
		t.Errorf("%g reloads failed while changes of another edge wait", n)
	}
	if err := r.lay(parse(", {name: t, limit: 15}")); !errors.Is(err, no) || !strings.Contains(err.Error(), "15") {
		t.Errorf("a wrong file: %v", err)
	}
	want(2, 6, 8, 9)
	r = start()
	must(t, r.catchUp())
	want(2, 6, 8)
	wrong[14] = false // its file is there again, say
	must(t, r.lay(parse("")))
	want(1, 6, 14)
	wrong[14] = true // a file that is read again does not go before what is in force
	if err := r.lay(parse("")); !errors.Is(err, no) {
		t.Errorf("a file beside a change: %v", err)
	}
	want(1, 6, 14)
	wrong[14] = false
	elsewhere("s", 15) // it was never in force here, so a file that is read again does not wait for it
	must(t, r.lay(parse(", {name: t, limit: 9}")))
	want(2, 6, 14, 9)
	// Nor does what could not be go before what is in force since, although it is older
	wrong[15], wrong[16] = false, true
	elsewhere("r", 16)
	must(t, r.catchUp())
	must(t, r.lay(parse("")))
	edit("s", 17, nil)
	wrong[16] = false
	elsewhere("t", 13)
	must(t, r.catchUp())
	want(3, 6, 17)
}
