package edge_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/mitigation"
)

// A wallWorld is an edge with random rules, lists and blocks about a few addresses.
type wallWorld struct {
	*edge.Server
	yaml string
	said []string
}

// wallAddresses are those that can be drawn: neighbours in prefixes of both families.
func wallAddresses() (list []netip.Addr) {
	for _, text := range []string{"198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.0.9", "2001:db8:1::", "2001:db8:1::1", "2001:db8:1:1::", "::ffff:198.18.0.2", "64:ff9b::c612:1", "64:ff9b:0:1::1"} {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func drawPrefix(t *rapid.T, name string) netip.Prefix {
	addr := counter.Plain(rapid.SampledFrom(wallAddresses()).Draw(t, name))
	widths := []int{32, 32, 30, 28}
	if addr.Is6() {
		widths = []int{128, 128, 64, 40}
	}
	p, _ := addr.Prefix(rapid.SampledFrom(widths).Draw(t, name+" bits"))
	return p
}

func drawPrefixes(t *rapid.T, name string) string {
	var list []string
	for range rapid.IntRange(0, 2).Draw(t, name) {
		list = append(list, `"`+drawPrefix(t, name).String()+`"`)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// drawWallYAML is a configuration whose rules are of all kinds that differ in whether a connection may be shed by them.
func drawWallYAML(t *rapid.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "origins: [{servers: [\"http://127.0.0.1:1\"]}]\nshed: %s\nallow: %s\ndeny: %s\n",
		rapid.SampledFrom([]string{"kernel", "kernel", "kernel", "connection"}).Draw(t, "shed"), drawPrefixes(t, "allow"), drawPrefixes(t, "deny"))
	fmt.Fprintf(&b, "source: {ipv4_prefix: %d, ipv6_prefix: %d, trust: %s}\n", rapid.SampledFrom([]int{32, 30}).Draw(t, "v4"),
		rapid.SampledFrom([]int{64, 128, 40}).Draw(t, "v6"), drawPrefixes(t, "trust"))
	b.WriteString("rules:\n")
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		fmt.Fprintf(&b, "- {name: r%d, window: 1h, mitigation_timeout: 1h, %s}\n", i, rapid.SampledFrom([]string{
			"limit: 500", "limit: 500", "limit: 500, prefixes: [32, {prefix: 30, limit: 900}]", "limit: 500, prefixes: [128, {prefix: 40, limit: 900}]",
			"limit: 500, mode: shadow", "limit: 500, share: 50", "limit: 500, match: {path: /login}", "limit: 500, match: {methods: [POST]}",
			`limit: 500, key: ["header:X-Key"]`, "limit: 500, match: {not: {path: /a}}", "limit: 500, mode: off",
			`limit: 500, action: tag, tag: {header: X-Over, value: "yes"}`,
		}).Draw(t, fmt.Sprint("rule ", i)))
	}
	return b.String()
}

// say does something that changes who is blocked, for longer than the test takes on a busy machine.
func (w *wallWorld) say(t *rapid.T, now time.Time) {
	limits := w.RuleSet().EachLimit()
	var keys []uint32
	for _, l := range limits {
		keys = append(keys, l.Counter.ID)
	}
	rule := mitigation.AllRules
	if len(keys) > 0 && rapid.IntRange(0, 3).Draw(t, "all rules") > 0 {
		rule = rapid.SampledFrom(keys).Draw(t, "of")
	}
	p := drawPrefix(t, "about")
	source := counter.SourceOf(p.Addr(), min(p.Bits(), 32), p.Bits())
	terms := mitigation.RuleVersion{}
	for _, l := range limits {
		if l.Counter.ID == rule {
			terms = l.Version()
		}
	}
	bit := mitigation.Bit{Start: now, End: now.Add(time.Duration(rapid.IntRange(600, 3600).Draw(t, "seconds")) * time.Second), By: mitigation.ByPoP, Version: terms}
	what := rapid.SampledFrom([]string{"verdict", "verdict", "verdict", "operator", "operator", "allow", "lift"}).Draw(t, "what")
	switch what {
	case "operator":
		bit.By = mitigation.ByAdmin
	case "allow":
		rule, bit.By = mitigation.Allowed, mitigation.ByAdmin
	}
	key := mitigation.Key{Rule: rule, Source: source}
	if what == "lift" {
		w.Limiter().Blocks.Lift(key, now)
	} else {
		w.Limiter().Blocks.Start(key, bit, now)
	}
	w.said = append(w.said, fmt.Sprintf("%s %d %v", what, rule, source))
}

// TestNeverInTheSet: whatever the rules, the lists and what is said, each address of a prefix that the kernel may refuse would be refused whatever it
// asks for, by the way that requests take. In the same way connections are closed, one by one, that the kernel does not know of.
func TestNeverInTheSet(t *testing.T) {
	walled := 0
	for range 10 { // with other draws each time
		rapid.Check(t, func(t *rapid.T) { tryWall(t, &walled) })
	}
	if walled < 200 {
		t.Errorf("only %d prefixes were in the set", walled)
	}
}

func tryWall(t *rapid.T, walled *int) {
	w := &wallWorld{yaml: drawWallYAML(t)}
	c := parseWall(t, w.yaml)
	server, err := edge.New(c)
	if err != nil {
		t.Fatal(err, w.yaml)
	}
	w.Server = server
	now := time.Now()
	for range rapid.IntRange(1, 8).Draw(t, "said") {
		w.say(t, now)
	}
	if rapid.Bool().Draw(t, "other rules") {
		other := parseWall(t, drawWallYAML(t))
		if w.Apply(other.Config) == nil {
			w.said = append(w.said, "then other rules")
		}
	}
	in := w.Config()
	trusts := func(p netip.Prefix) bool { return slices.ContainsFunc(in.Source.Trust, p.Overlaps) }
	for _, peer := range wallAddresses() {
		plain := counter.Plain(peer)
		widths := []int{32, 30, 28}
		if plain.Is6() {
			widths = []int{128, 64, 40}
		}
		prefixes := []netip.Prefix{}
		for _, n := range widths { // entries are asked for again, also when their peer is closed no more
			p, _ := plain.Prefix(n)
			prefixes = append(prefixes, p)
		}
		if p, ok := w.Shed(peer).Prefix(); ok {
			if !w.refused(plain, "/") || trusts(netip.PrefixFrom(plain, plain.BitLen())) {
				t.Fatalf("%v is closed at accept, and %s would be admitted, or clients that it names\n%s\n%q", peer, "/", w.yaml, w.said)
			}
			prefixes = append(prefixes, p)
		}
		for _, p := range prefixes {
			w.tryPrefix(t, p, in.Shed == config.Kernel && !trusts(p) && !p.Overlaps(netip.MustParsePrefix("64:ff9b::/96")), now, walled)
		}
	}
}

// tryPrefix fails if a prefix may be refused by the kernel, and is not eligible for that, or has an address of which something would be admitted.
func (w *wallWorld) tryPrefix(t *rapid.T, p netip.Prefix, eligible bool, now time.Time, walled *int) {
	until := w.BlockedPrefix(p, now)
	if until.IsZero() {
		return
	}
	if !eligible {
		t.Fatalf("%v is in the set\n%s\n%q", p, w.yaml, w.said)
	}
	*walled++
	for _, other := range wallAddresses() {
		if is := other.Unmap(); !p.Contains(is) {
			continue
		}
		for _, path := range []string{"/", "/login", "/a"} {
			if !w.refused(other, path) || until.Sub(now) > time.Hour {
				t.Fatalf("%v is in the set for %v and %v would be admitted to %s\n%s\n%q", p, until.Sub(now), other, path, w.yaml, w.said)
			}
		}
	}
}

func parseWall(t *rapid.T, yaml string) edge.Options {
	walls := config.Module{Name: "walls", InKernel: func(*config.Config) bool { return true }}
	c, err := config.Parser{Modules: []config.Module{walls}}.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err, yaml)
	}
	return edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 1 << 12}), Blocks: mitigation.New(1<<12, nil)}
}

// refused reports whether a request is, of whoever connects himself.
func (w *wallWorld) refused(peer netip.Addr, path string) bool {
	e := edgetest.NewExchange("GET", path)
	e.From = peer
	w.Handle(e)
	return e.Status == 429 || e.Status == 403
}
