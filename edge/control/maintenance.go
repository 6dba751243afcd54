package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/counter"
	"sluice/edge/events"
	"sluice/mitigation"
)

// Maintenance is the name under which operators have all edges of the PoP answer 503. It is an
// order like a block, about one source that is nobody's, so of two that are given at once the same
// one stands everywhere, and an edge that was away takes it with the others. Its reason says whom
// it spares, and what clients are told.
const Maintenance = "+maintenance"

var maintenanceKey = mitigation.Key{Rule: mitigation.Maintenance,
	Source: counter.SourceOfDigest([16]byte{})}

// maxReason is how many bytes a reason travels with.
const maxReason = 256

// A MaintenanceStatus is whether maintenance is on, and how.
type MaintenanceStatus struct {
	On      bool           `json:"on"`
	Since   time.Time      `json:"since,omitzero"`
	Until   time.Time      `json:"until,omitzero"` // it ends by itself
	Allow   []netip.Prefix `json:"allow"`          // who is served all the same
	Message string         `json:"message,omitempty"`
	By      string         `json:"by,omitempty"` // as the operator calls himself
	// The address that he came from, or the edge that he spoke to
	From string `json:"from,omitempty"`
	// Of one that was just said: false if it was so before
	Changed bool `json:"changed"`
	// Of one that was just said: what it takes the place of
	Warning string `json:"warning,omitempty"`
	// Of one that was just said: where it is in force
	Edges *Spread `json:"edges,omitempty"`
}

// Open reports whether no end was given: then it ends after the longest time that an order can
// have, which edges keep to a second.
func (m *MaintenanceStatus) Open() bool {
	return m.Until.Sub(m.Since) > mitigation.MaxBlock-time.Minute
}

// ReadMaintenance is what a bit under mitigation.Maintenance says.
func ReadMaintenance(bit *mitigation.Bit) MaintenanceStatus {
	m := MaintenanceStatus{On: true, Since: bit.Start, Until: bit.End, Allow: []netip.Prefix{}}
	list, message, _ := strings.Cut(bit.Reason, " ")
	for text := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			m.Allow = append(m.Allow, p)
		}
	}
	m.Message = message
	return m
}

// MaintenanceNow is how maintenance is on this edge.
func (c *Admin) MaintenanceNow(now time.Time) MaintenanceStatus {
	if bit := c.with.Limiter.Blocks.Maintained(now); bit != nil {
		m := ReadMaintenance(bit)
		m.By, m.From = c.whoMaintains(&m)
		return m
	}
	return MaintenanceStatus{Allow: []netip.Prefix{}}
}

// whoMaintains is who has turned it on, as long as events know: the order itself does not tell.
func (c *Admin) whoMaintains(m *MaintenanceStatus) (by, from string) {
	for _, e := range c.with.Events.Since(0) {
		if e.Kind == events.Operator && e.Source == "" && e.Rule == "" && e.New != "" &&
			e.Until.Sub(m.Until).Abs() < time.Second {
			return e.Who, e.From
		}
	}
	return "", ""
}

// Maintain turns maintenance on, on every edge of the PoP, in place of one that is on. d is 0 if no
// end is given.
func (c *Admin) Maintain(d time.Duration, allow []string, text string, by Operator,
	now time.Time) (MaintenanceStatus, error) {
	if d == 0 {
		d = mitigation.MaxBlock
	}
	var list []string
	for _, one := range allow {
		src, err := counter.ParseSource(one)
		p, is := src.Prefix()
		if err != nil || !is {
			return MaintenanceStatus{},
				fmt.Errorf("edge: allow: %q is no prefix: want an address, or CIDR such as 10.0.0.0/8", one)
		}
		if err := checkWidth(p); err != nil {
			return MaintenanceStatus{}, err
		}
		if s := p.String(); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) ||
		strings.TrimSpace(text) != text {
		return MaintenanceStatus{},
			fmt.Errorf("edge: message: want one line of text, without spaces around it")
	}
	reason := strings.Join(list, ",")
	if text != "" {
		reason += " " + text
	}
	if len(reason) > maxReason {
		return MaintenanceStatus{},
			fmt.Errorf("edge: allow and message have %d bytes together: want at most %d: shorten the message, or write wider prefixes", len(reason), maxReason)
	}
	before := c.MaintenanceNow(now)
	put, err := c.put(Maintenance, maintenanceKey, d, reason, by, now)
	if err != nil {
		return MaintenanceStatus{}, err
	}
	m := c.MaintenanceNow(time.Now()) // another may have been ordered in the same moment
	var warnings []string
	if m.Changed, m.Edges = true, put.Edges; before.On {
		warnings = append(warnings, "it was on already, since "+before.Since.UTC().
			Format(time.RFC3339)+": this takes its place")
	}
	if c.with.PoP.Order == nil {
		warnings = append(warnings, "this edge counts alone: it forgets that when it restarts")
	}
	m.Warning = strings.Join(warnings, "; ")
	return m, nil
}

// EndMaintenance turns it off.
func (c *Admin) EndMaintenance(by Operator, now time.Time) (MaintenanceStatus, error) {
	l, err := c.lift(Maintenance, maintenanceKey, nil, by, now, false)
	if err != nil {
		return MaintenanceStatus{}, err
	}
	m := c.MaintenanceNow(time.Now())
	m.Changed, m.Edges = l.Lifted, l.Edges
	return m, nil
}
