package upstream

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/upstream/h2origin"
)

func groupOf(balance Balance, most int64, names ...string) *Group {
	g := &Group{balance: balance, Most: most}
	for _, name := range names {
		g.Servers = append(g.Servers, NewOrigin(&url.URL{Scheme: "http", Host: name}))
	}
	return g
}

// Which server each of ten requests goes to, none of them ending, as failures come and time passes.
func TestPick(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	source := func(i int) counter.Source {
		return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32, 64)
	}
	picks := func(g *Group, now time.Time, n int) string {
		out := ""
		for i := range n {
			if o := g.Pick(source(i), now, nil); o != nil {
				out += o.Host
			} else {
				out += "-"
			}
		}
		return out
	}
	fail := func(o *Origin, n int) {
		for range n {
			o.Failing(start)
		}
	}

	g := groupOf(RoundRobin, 0, "a", "b", "c")
	fail(g.Servers[0], ejectAfter-1)
	if got := picks(g, start, 6); got != "bcabca" {
		t.Errorf("two failures: %s", got)
	}
	fail(g.Servers[0], 1)
	if got := picks(g, start, 4); strings.Contains(got, "a") {
		t.Errorf("three failures: %s", got)
	}
	if got := picks(g, start.Add(ejectTime), 3); strings.Count(got, "a") != 1 {
		t.Errorf("after its time: %s", got)
	}
	fail(g.Servers[0], 1)
	if got := picks(g, start, 4); strings.Contains(got, "a") {
		t.Errorf("failed again: %s", got)
	}
	g.Servers[0].Succeeded()
	if got := picks(g, start, 3); strings.Count(got, "a") != 1 {
		t.Errorf("back: %s", got)
	}
	for _, o := range g.Servers {
		o.Down.Store(true)
	}
	if got := picks(g, start, 6); len(strings.Trim(got, "-")) != 6 {
		t.Errorf("all down: %s", got)
	}

	g = groupOf(RoundRobin, 0, "a")
	fail(g.Servers[0], 10)
	if got := picks(g, start, 2); got != "aa" {
		t.Errorf("an only server: %s", got)
	}

	g = groupOf(LeastConnections, 2, "a", "b")
	g.Servers[0].Active.Store(1)
	if got := picks(g, start, 5); strings.Count(got, "a") != 1 || strings.Count(got, "b") != 2 || !strings.HasSuffix(got, "--") || got[0] != 'b' {
		t.Errorf("with room for two each: %s", got)
	}

	g = groupOf(BySource, 0, "a", "b", "c")
	first := picks(g, start, 200)
	if again := picks(g, start, 200); again != first {
		t.Error("a source did not stay")
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := strings.Count(first, name); n < 40 {
			t.Errorf("%s has %d of 200 sources", name, n)
		}
	}
	g.Servers[1].Down.Store(true)
	for i, name := range picks(g, start, 200) {
		if was := first[i]; was != 'b' && byte(name) != was || name == 'b' {
			t.Fatalf("source %d moved from %c to %c", i, was, name)
		}
	}
}

// How many requests one of two sources may have under way, and that the other has places then.
func TestShareOfSlots(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	a, b := counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64), counter.SourceOf(netip.MustParseAddr("192.0.2.2"), 32, 64)
	for _, test := range []struct {
		servers, down int
		most, share   int64
		want          int
	}{
		{1, 0, 1, 0, 1},
		{1, 0, 2, 0, 1},
		{1, 0, 5, 0, 2},
		{1, 1, 10, 0, 5}, // an only server is never out
		{3, 0, 10, 0, 15},
		{3, 1, 10, 0, 10},
		{3, 3, 10, 0, 15},
		{3, 0, 10, 4, 4},
		{3, 2, 10, 30, 30},
		{2, 0, 0, 7, 7},
	} {
		g := groupOf(RoundRobin, test.most, "a", "b", "c")
		g.Servers, g.Share, g.SourceSlots = g.Servers[:test.servers], test.share, &SourceSlots{BySource: make(map[counter.Source]int64)}
		for _, o := range g.Servers[:test.down] {
			o.Down.Store(true)
		}
		got := 0
		for g.Enter(a, now) {
			got++
		}
		if got != test.want || !g.Enter(b, now) {
			t.Errorf("%+v: %d", test, got)
		}
		g.SourceSlots.Leave(b)
		if g.SourceSlots.Leave(a); !g.Enter(a, now) || g.Enter(a, now) {
			t.Errorf("%+v: one left, and not one came", test)
		}
		for range got {
			g.SourceSlots.Leave(a)
		}
		if len(g.SourceSlots.BySource) != 0 {
			t.Errorf("%+v: %v are still there", test, g.SourceSlots.BySource)
		}
	}
}

// However many servers there are, the one with room is found.
func TestPickAmongMany(t *testing.T) {
	names := make([]string, 130)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	g := groupOf(RoundRobin, 1, names...)
	for _, o := range g.Servers[:129] {
		o.Active.Store(1)
	}
	if o := g.Pick(counter.Source{}, time.Unix(1_000_000, 0), nil); o != g.Servers[129] {
		t.Errorf("%v was picked", o)
	}
}

// A bound on the heads of answers is in force for both protocols, and the largest where groups share a server.
func TestAnswerHeadBound(t *testing.T) {
	for _, server := range []string{"h2c://a:1", "http://a:1"} {
		u, err := ParseOrigin(server)
		if err != nil {
			t.Fatal(err)
		}
		var all *Origins
		for _, c := range []struct {
			bounds []int
			want   int
		}{{[]int{0}, MaxHead}, {[]int{64 << 10}, 64 << 10}, {[]int{4 << 10, 8 << 10, 4 << 10}, 8 << 10}, {[]int{0}, MaxHead}} {
			var groups []Config
			for i, bound := range c.bounds {
				groups = append(groups, Config{Hosts: []string{fmt.Sprint("h", i)}, Servers: []*url.URL{u}, AnswerHead: bound})
			}
			if all, err = New(groups, all, nil); err != nil {
				t.Fatal(err)
			}
			o := all.All[0]
			was := o.readers.Load()
			if all, err = New(groups, all, nil); err != nil || o.readers.Load() != was {
				t.Errorf("%s, %v: the same again is a change (%v)", server, c.bounds, err)
			}
			if got := o.readers.Load().size; got != c.want || o.h2 != nil && o.h2.MaxHead.Load() != int64(c.want) {
				t.Errorf("%s, %v: %d, want %d", server, c.bounds, got, c.want)
			}
		}
		all.All[0].Retire()
	}
}

// What a request may hold before its server is known is what it holds at the most demanding one.
func TestAheadIsOfTheMostDemandingServer(t *testing.T) {
	var all *Origins
	for _, c := range []struct {
		servers []string
		want    int
	}{{[]string{"http://a:1"}, 0}, {[]string{"http://a:1", "h2c://b:1"}, h2origin.Ahead}, {[]string{"http://a:1"}, 0}} {
		var groups []Config
		for i, server := range c.servers {
			u, err := ParseOrigin(server)
			if err != nil {
				t.Fatal(err)
			}
			groups = append(groups, Config{Hosts: []string{fmt.Sprint("h", i)}, Servers: []*url.URL{u}})
		}
		var err error
		if all, err = New(groups, all, nil); err != nil || all.Ahead != c.want {
			t.Errorf("%v: %d, want %d (%v)", c.servers, all.Ahead, c.want, err)
		}
	}
}
