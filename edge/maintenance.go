package edge

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gaissmai/bart"

	"sluice/edge/address"
	"sluice/edge/control"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// mostAway is the longest that Retry-After says during maintenance: it may be over sooner than was
// thought.
const mostAway = 10 * time.Minute

// A maintenance is an operator's order as requests meet it.
type maintenance struct {
	of     *mitigation.Bit
	spared *bart.Lite
	text   string // in JSON, without its quotes
}

// maintained answers the request if the PoP is in maintenance, and its client is not spared. While
// it is not, that costs one load.
func (x *exchange) maintained() bool {
	bit := x.server.limiter.Bits.Maintained(x.now)
	if bit == nil {
		return false
	}
	m := x.server.maintenance.Load()
	if m == nil || m.of != bit {
		m = newMaintenance(bit)
		x.server.maintenance.Store(m)
	}
	if address.IsIn(m.spared, x.client) {
		return false
	}
	x.server.stats.maintained.Add(1)
	x.closed = true
	wait := rules.Seconds(min(bit.End.Sub(x.now), mostAway))
	no := message.Refuse(http.StatusServiceUnavailable, "maintenance", m.text)
	x.respond(no.With("Retry-After", strconv.FormatInt(wait, 10)))
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
