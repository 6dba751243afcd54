package maintenance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/mitigation"
)

// read is what an order says: its reason has the prefixes that it spares, a space, and what clients
// are told.
func read(bit *mitigation.Bit) control.MaintenanceStatus {
	m := control.MaintenanceStatus{On: true, Since: bit.Start, Until: bit.End,
		Allow: []netip.Prefix{}}
	list, message, _ := strings.Cut(bit.Reason, " ")
	for text := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			m.Allow = append(m.Allow, p)
		}
	}
	m.Message = message
	return m
}

// Now is how maintenance is on this edge.
func Now(a *control.Admin, now time.Time) control.MaintenanceStatus {
	if bit, said := a.Site(now); said {
		m := read(&bit)
		m.By, m.From = who(a, &m)
		return m
	}
	return control.MaintenanceStatus{Allow: []netip.Prefix{}}
}

// who has turned it on, as long as events know: the order itself does not tell.
func who(a *control.Admin, m *control.MaintenanceStatus) (by, from string) {
	for _, e := range a.Events().Since(0) {
		if e.Kind == events.Operator && e.Source == "" && e.Rule == "" && e.New != "" &&
			e.Until.Sub(m.Until).Abs() < time.Second {
			return e.Who, e.From
		}
	}
	return "", ""
}

// Start turns maintenance on, on every edge of the PoP, in place of one that is on. d is 0 if no
// end is given.
func Start(a *control.Admin, d time.Duration, allow []string, text string, by control.Operator,
	now time.Time) (m control.MaintenanceStatus, err error) {
	if d == 0 {
		d = mitigation.MaxBlock
	}
	var list []string
	for _, one := range allow {
		src, err := counter.ParseSource(one)
		p, is := src.Prefix()
		if err != nil || !is {
			return m, fmt.Errorf("edge: allow: %q is no prefix: want an address, or CIDR such as 10.0.0.0/8", one)
		}
		if err := control.CheckWidth(p); err != nil {
			return m, err
		}
		if s := p.String(); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) ||
		strings.TrimSpace(text) != text {
		return m, fmt.Errorf("edge: message: want one line of text, without spaces around it")
	}
	reason := strings.Join(list, ",")
	if text != "" {
		reason += " " + text
	}
	if len(reason) > control.MaxReason {
		return m, fmt.Errorf("edge: allow and message have %d bytes together: want at most %d: shorten the message, or write wider prefixes", len(reason), control.MaxReason)
	}
	before := Now(a, now)
	put, err := a.SayOfSite(d, reason, by, now)
	if err != nil {
		return m, err
	}
	m = Now(a, time.Now()) // another may have been ordered in the same moment
	m.Changed, m.Edges = true, put.Edges
	var warnings []string
	if before.On {
		warnings = append(warnings, "it was on already, since "+before.Since.UTC().
			Format(time.RFC3339)+": this takes its place")
	}
	if put.Edges == nil {
		warnings = append(warnings, "this edge counts alone: it forgets that when it restarts")
	}
	m.Warning = strings.Join(warnings, "; ")
	return m, nil
}

// End turns it off.
func End(a *control.Admin, by control.Operator, now time.Time) (control.MaintenanceStatus, error) {
	l, err := a.LiftOfSite(by, now)
	if err != nil {
		return control.MaintenanceStatus{}, err
	}
	m := Now(a, time.Now())
	m.Changed, m.Edges = l.Lifted, l.Edges
	return m, nil
}
