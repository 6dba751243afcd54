// Package envoy reads the descriptors of envoyproxy/ratelimit, from YAML of any shape that has them.
package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/modules/importer/limit"
)

// file is what is known of a configuration of envoyproxy/ratelimit.
type file struct {
	*limit.Result
	replaced map[string]bool // names of limits whose place others take
	seen     map[string]bool // entries of limits
}

// units are those of Envoy's ratelimit, as windows; "": it is too long for one.
var units = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "24h",
	"week": "", "month": "", "year": ""}

// Read makes rules of the limits of descriptors.
func Read(r *limit.Result, text string) error {
	docs, err := readTrees(text, func(line int) int { return line })
	if err != nil {
		return fmt.Errorf("%s is no YAML: %w", r.File, err)
	}
	var domains []*tree
	kind := ""
	for _, doc := range docs {
		kind = doc.field("kind").text
		domains = append(domains, domainsIn(doc, 0)...)
	}
	if len(domains) == 0 {
		if kind != "" {
			kind = fmt.Sprintf("; what a %s says is in the configuration that your control plane makes of it", kind)
		}
		return fmt.Errorf("%s has no domain: it is not a configuration of Envoy's ratelimit, which names one, and descriptors%s", r.File, kind)
	}
	r.Services = true
	f := &file{r, make(map[string]bool), make(map[string]bool)}
	for _, d := range domains {
		f.mentions(d)
	}
	for _, d := range domains {
		for _, item := range d.field("descriptors").items {
			f.descriptor(d.field("domain").text, nil, item)
		}
	}
	return nil
}

// maxWithin bounds how deep domains and descriptors stand.
const maxWithin = 20

// domainsIn finds the mappings of a document that have a domain: itself, a part of a chart's
// values, or what a ConfigMap of Kubernetes has as text.
func domainsIn(t *tree, depth int) (found []*tree) {
	if depth > maxWithin {
		return nil
	}
	if t.field("domain").text != "" {
		return []*tree{t}
	}
	within := t.items
	for _, f := range t.fields {
		within = append(within, f.value)
	}
	if data := t.field("data"); t.field("kind").text == "ConfigMap" && data != none {
		within = nil
		for _, f := range data.fields {
			docs, _ := readTrees(f.value.text, func(line int) int {
				if !f.value.block { // all of it stands in one line
					line = 0
				}
				return f.value.line + line
			})
			within = append(within, docs...) // none of other files that it may have
		}
	}
	for _, inner := range within {
		found = append(found, domainsIn(inner, depth+1)...)
	}
	return found
}

// envoyFields are those of a descriptor, and behind a dot of its rate_limit. Ratelimit refuses
// others.
var envoyFields = strings.Fields(`key value descriptors rate_limit shadow_mode detailed_metric
	value_to_metric share_threshold quota_mode metadata rate_limit.unit rate_limit.name
	rate_limit.requests_per_unit rate_limit.unlimited rate_limit.replaces`)

// unknownField is the first field of a descriptor that it cannot have.
func unknownField(t *tree, before string) (unknown string) {
	for _, f := range t.fields {
		if !slices.Contains(envoyFields, before+f.key) {
			return before + f.key
		}
	}
	if l := t.field("rate_limit"); l != none {
		return unknownField(l, "rate_limit.")
	}
	return ""
}

// mentions has each limit of descriptors accounted for.
func (f *file) mentions(t *tree) {
	for _, d := range t.field("descriptors").items {
		if l := d.field("rate_limit"); l != none {
			for _, other := range l.field("replaces").items {
				f.replaced[other.field("name").text] = true
			}
			f.Mention(written(d))
		}
		f.mentions(d)
	}
}

// written is a descriptor as notes and rules say it.
func written(d *tree) limit.Mention {
	text := "key " + d.field("key").text
	if value := d.field("value").text; value != "" {
		text += ", value " + value
	}
	l := d.field("rate_limit")
	switch unit := l.field("unit").text; {
	case l == none:
	case l.isTrue("unlimited"):
		text += ": unlimited"
	case unit == "":
		text += ": a rate_limit without a unit"
	default:
		text += ": " + l.field("requests_per_unit").text + " in a " + strings.ToLower(unit)
	}
	return limit.Mention{Position: limit.Position{Line: d.line}, From: text}
}

// descriptor makes rules of one and of those within it.
func (f *file) descriptor(domain string, above []yaml.MapSlice, d *tree) {
	entry := limit.Named("key", d.field("key").text)
	if value := d.field("value").text; value != "" {
		entry = append(entry, yaml.MapItem{Key: "value", Value: value})
	}
	entries := append(above[:len(above):len(above)], entry)
	switch unknown := unknownField(d, ""); {
	case d.field("key").text == "":
		f.leftOutAll(d, "it has no key")
		return
	case unknown != "":
		f.leftOutAll(d, "there is no field "+unknown+" in a configuration of Envoy's ratelimit")
		return
	case len(above) > maxWithin:
		f.leftOutAll(d, "descriptors within descriptors, more than 20 deep")
		return
	}
	if d.field("rate_limit") != none {
		f.Add(f.limit(domain, entries, d))
	}
	for _, inner := range d.field("descriptors").items {
		f.descriptor(domain, entries, inner)
	}
}

// leftOutAll notes that a descriptor has no rule, nor one within it.
func (f *file) leftOutAll(d *tree, why string) {
	m := written(d)
	f.Note(m.Position, "left out, with the descriptors within it: %s: %s", m.From, why)
	for _, inner := range d.field("descriptors").items {
		f.leftOutAll(inner, "the one around it is left out")
	}
}

// mostRequests is the highest limit of a rule.
const mostRequests = 1_000_000_000

// limit is the rate_limit of a descriptor.
func (f *file) limit(domain string, entries []yaml.MapSlice, d *tree) (x limit.Rule, err error) {
	l := d.field("rate_limit")
	x = limit.Rule{Name: domain, Mention: written(d), Shadow: d.isTrue("shadow_mode")}
	for _, e := range entries {
		x.Name += "_" + fmt.Sprint(e[len(e)-1].Value)
	}
	x.Cond.Match = limit.Named("descriptors",
		yaml.MapSlice{{Key: "domain", Value: domain}, {Key: "entries", Value: entries}})
	x.Fixed = true
	unit, requests := strings.ToLower(l.field("unit").text), l.field("requests_per_unit").text
	n, err := strconv.ParseUint(strings.ReplaceAll(requests, "_", ""), 0, 32)
	window, known := units[unit]
	switch {
	case l.isTrue("unlimited"):
		n, window = mostRequests, "1s"
		x.NoteThat("unlimited: a limit that nobody reaches, before rules about any value")
	case !known:
		return x, fmt.Errorf("the unit %q is none of Envoy's ratelimit", l.field("unit").text)
	case window == "":
		return x, fmt.Errorf("a window of a %s is longer than 24h, which is the longest here: "+
			"a quota of a plan may be what you want", unit)
	case err != nil:
		return x, fmt.Errorf("%q is no number of requests", requests)
	case n == 0:
		return x, errors.New("a limit of 0 refuses everything: have the proxy refuse it")
	case n > mostRequests:
		n = mostRequests
		x.NoteThat("%d is the most that a limit can be", n)
	}
	entriesOf := fmt.Sprint(x.Cond.Match)
	if f.seen[entriesOf] {
		return x, errors.New("a limit above it has the same entries, and Envoy's ratelimit " +
			"refuses two")
	}
	f.seen[entriesOf] = true
	x.Most, x.Window = int(n), window
	if d.isTrue("quota_mode") {
		x.Cond.Unknown = append(x.Cond.Unknown,
			"quota_mode, in which Envoy refuses nobody")
	}
	if name := l.field("name").text; name != "" && f.replaced[name] {
		x.Cond.Unknown = append(x.Cond.Unknown,
			"that another limit replaces "+name+" where both are about a request")
	}
	if d.isTrue("share_threshold") {
		x.NoteThat("share_threshold has no equal: each value that an entry leaves open has a " +
			"counter of its own")
	}
	return x, nil
}
