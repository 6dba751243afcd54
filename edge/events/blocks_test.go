package events_test

import (
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/events"
	"sluice/mitigation"
)

// A block is recorded once, with the estimate that started it, and so are one that was learned and one that ends with
// its rule.
func TestBlocksAreEvents(t *testing.T) {
	const rules = "rules: [{name: r, limit: 2, window: 1h}, {name: s, limit: 1, window: 1h, mode: shadow}, {name: throttle, limit: 100, mitigation_timeout: 0}]"
	var bits *mitigation.Table
	e := edgetest.StartWithEvents(t, rules, func(o *edge.Options) { bits = o.Blocks })
	k := e.Talk()
	for range 6 {
		k.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	list := e.Events().Since(0)
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	if b := list[0]; b.Kind != events.Block || b.Rule != "r" || b.Source != "127.0.0.1" || b.Estimate != 3 || b.Limit != 2 || b.Until.Sub(b.Time) < time.Minute ||
		b.Text != "blocked by this edge: 3 requests in 1h, 2 are allowed" || b.Protocol != "HTTP/1.1" {
		t.Errorf("%+v", b)
	}
	if b := list[1]; b.Rule != "s" || b.Estimate != 2 || !strings.HasSuffix(b.Text, "(shadow: nobody is refused)") {
		t.Errorf("%+v", b)
	}
	now := time.Now()
	source, _ := counter.ParseSource("192.0.2.1")
	mine, _ := counter.ParseSource("127.0.0.1")
	r := e.Counted()[0]
	block, _ := bits.Get(mitigation.Key{Rule: r.ID, Source: mine}, now)
	block.Start, block.End, block.By = now, now.Add(time.Hour), mitigation.ByPoP
	bits.Start(mitigation.Key{Rule: r.ID, Source: source}, block, now)
	if b := e.Events().Since(2); len(b) != 1 || b[0].Text != "blocked by the PoP" || b[0].Source != "192.0.2.1" || b[0].Rule != "r" {
		t.Errorf("%+v", b)
	}
	looser := edgetest.Parse(t, strings.Replace(rules, "limit: 2", "limit: 20", 1))
	looser.Origins = e.Config().Origins
	edgetest.Must(t, e.Apply(looser))
	if n := e.Events().Count(events.Lift); n != 2 {
		t.Errorf("%d lifts: %+v", n, e.Events().Since(0))
	}
}
