package control

import (
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// Where the kernel refuses a source, operators are told with the mitigation, by every way that shows one: but not with one that refuses nobody, nor
// with the block of a wider prefix, of which the kernel refuses those that knock.
func TestKernelIsTold(t *testing.T) {
	c := newPlane(t, "rules: [{name: all, limit: 5}, {name: try, limit: 5, mode: shadow}, {name: mark, limit: 5, action: tag}]")
	now := time.Now()
	kernel := &Kernel{Since: now, Attempts: 12}
	c.with.Kernel = func(p netip.Prefix) *Kernel {
		if p == netip.MustParsePrefix("192.0.2.7/32") {
			return kernel
		}
		return nil
	}
	for _, name := range []string{"all", "try", "mark"} {
		for _, source := range []string{"192.0.2.7", "192.0.2.8"} {
			src, _ := counter.ParseSource(source)
			r := c.with.View().Rules.ByName(name)
			c.with.Limiter.Blocks.Start(mitigation.Key{Rule: r.Counter.ID, Source: src}, mitigation.Bit{Start: now, End: now.Add(time.Minute), By: mitigation.ByPoP, Shadow: r.Shadow, Version: r.Version()}, now)
		}
	}
	o := c.Overview(9, nil, now)
	for what, list := range map[string][]Mitigation{"listed": c.Mitigations(now), "overview": append(o.Blocked.List, o.Shadow.List...)} {
		if len(list) != 6 {
			t.Fatalf("%s: %+v", what, list)
		}
		for _, m := range list {
			if want := m.Rule == "all" && m.Source == "192.0.2.7"; (m.Kernel == kernel) != want || !want && m.Kernel != nil {
				t.Errorf("%s: %s %s: %+v", what, m.Rule, m.Source, m.Kernel)
			}
		}
	}
	look := func(source string) *Kernel {
		l := c.Look(t.Context(), netip.MustParseAddr(source))
		for _, s := range l.Rules {
			if s.Block != nil && s.Block.Mode != rules.Enforce && s.Block.Kernel != nil {
				t.Errorf("%s: %+v", source, s.Block)
			}
		}
		return l.Rules[0].Block.Kernel
	}
	if look("192.0.2.7") != kernel || look("192.0.2.8") != nil {
		t.Error("a look at a source tells otherwise than the list")
	}
	// Of two blocks a look tells that which ends last.
	if _, err := c.Block(AllRules, "192.0.2.0/24", time.Hour, "", Operator{}, now); err != nil {
		t.Fatal(err)
	}
	if look("192.0.2.7") != kernel || look("192.0.2.8") != nil {
		t.Error("under a wider block a look does not tell of the source")
	}
	for _, m := range c.Mitigations(now) {
		if m.Rule == AllRules && m.Kernel != nil {
			t.Errorf("%+v", m)
		}
	}
}
