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
	"sluice/edge/limiter"
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
	return edge.Module{Name: "maintenance", Collect: g.collect, Routes: routes,
		Commands: []operator.Command{command()},
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			return edge.Points{Gates: []edge.Gate{{Phase: edge.Maintenance,
				Answer: func(x *edge.Exchange) bool { return g.answer(x, s.Limiter) }}}}, nil
		}}
}

// A gate is the module's state.
type gate struct {
	latest  atomic.Pointer[maintenance] // that a request met
	refused atomic.Uint64
}

func (g *gate) collect(to metric.Sink) {
	to.Count(g.refused.Load(), rules.RequestsMetric, rules.RequestsHelp, "rule", "", "verdict",
		"maintenance")
}

// mostAway is the longest that Retry-After says during maintenance: it may be over sooner than was
// thought.
const mostAway = 10 * time.Minute

// A maintenance is an operator's order as requests meet it.
type maintenance struct {
	of     *mitigation.Bit
	spared *bart.Lite
	text   string // in JSON, without its quotes
}

// answer answers the request if the PoP is in maintenance, and its client is not spared. While it
// is not, that costs one load.
func (g *gate) answer(x *edge.Exchange, l *limiter.Limiter) bool {
	bit := l.Blocks.Maintained(x.Now())
	if bit == nil {
		return false
	}
	m := g.latest.Load()
	if m == nil || m.of != bit {
		m = newMaintenance(bit)
		g.latest.Store(m)
	}
	if address.IsIn(m.spared, x.Client()) {
		return false
	}
	g.refused.Add(1)
	x.Verdict("maintenance")
	wait := limitfields.Seconds(min(bit.End.Sub(x.Now()), mostAway))
	no := message.Refuse(http.StatusServiceUnavailable, "maintenance", m.text)
	x.Respond(no.With("Retry-After", strconv.FormatInt(wait, 10)))
	return true
}

func newMaintenance(bit *mitigation.Bit) *maintenance {
	said := control.ReadMaintenance(bit)
	text := said.Message
	if text == "" {
		text = "This site is closed for maintenance. Try again later."
	}
	quoted, _ := json.Marshal(text)
	return &maintenance{of: bit, spared: address.NewPrefixes(said.Allow),
		text: string(quoted[1 : len(quoted)-1])}
}
