// Package maintenance answers 503 to all but some clients, while an operator says so.
package maintenance

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"sluice/edge"
	"sluice/edge/address"
	"sluice/edge/control"
	"sluice/edge/limitfields"
	"sluice/edge/message"
	"sluice/edge/metric"
	"sluice/edge/operator"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// Module answers while the PoP is in maintenance.
func Module() edge.Module {
	g := new(gate)
	return edge.Module{Name: "maintenance", Collect: g.collect, State: g.state, Routes: routes,
		Commands: []operator.Command{command()},
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			if g.blocks == nil { // they stay the same, and requests read them
				g.admin, g.blocks = s.Edge.Admin, s.Limiter.Blocks
			}
			return edge.Points{Gates: []edge.Gate{{Phase: edge.Maintenance,
				Answer: g.answer}}}, nil
		}}
}

// A gate is the module's state.
type gate struct {
	admin   *control.Admin
	blocks  *mitigation.Table
	latest  atomic.Pointer[look] // that a request made
	refused atomic.Uint64
}

func (g *gate) collect(to metric.Sink) {
	to.Count(g.refused.Load(), rules.RequestsMetric, rules.RequestsHelp, "rule", "", "verdict",
		"maintenance")
}

func (g *gate) state(s *control.State) {
	if m := Now(g.admin, time.Now()); m.On {
		s.Maintenance = &m
	}
}

// mostAway is the longest that Retry-After says during maintenance: it may be over sooner than was
// thought.
const mostAway = 10 * time.Minute

// A look is what operators said of the site at a request.
type look struct {
	loosened uint64 // Table.Loosened before it was looked at
	order    *order // nil: they said nothing
}

// An order is maintenance as requests meet it.
type order struct {
	of     mitigation.Bit
	spared *bart.Lite
	text   string // in JSON, without its quotes
}

// answer answers the request if the PoP is in maintenance, and its client is not spared. While it
// is not, and operators say nothing new, that costs two loads.
func (g *gate) answer(x *edge.Exchange) bool {
	m := g.order(x.Now())
	if m == nil || !x.Now().Before(m.of.End) || address.IsIn(m.spared, x.Client()) {
		return false
	}
	g.refused.Add(1)
	x.Verdict("maintenance")
	wait := limitfields.Seconds(min(m.of.End.Sub(x.Now()), mostAway))
	no := message.Refuse(http.StatusServiceUnavailable, "maintenance", m.text)
	x.Respond(no.With("Retry-After", strconv.FormatInt(wait, 10)))
	return true
}

// order returns what operators say of the site; nil: nothing. Whatever they say or lift makes
// Loosened another number, which is read first: so the next request looks again if they say
// something just now.
func (g *gate) order(now time.Time) *order {
	last, loosened := g.latest.Load(), g.blocks.Loosened()
	if last != nil && last.loosened == loosened {
		return last.order
	}
	next := &look{loosened: loosened}
	if bit, said := g.admin.Site(now); said {
		if last != nil && last.order != nil && last.order.of == bit {
			next.order = last.order
		} else {
			next.order = newOrder(bit)
		}
	}
	g.latest.Store(next)
	return next.order
}

func newOrder(bit mitigation.Bit) *order {
	said := read(&bit)
	text := said.Message
	if text == "" {
		text = "This site is closed for maintenance. Try again later."
	}
	quoted, _ := json.Marshal(text)
	return &order{of: bit, spared: address.NewPrefixes(said.Allow),
		text: string(quoted[1 : len(quoted)-1])}
}
