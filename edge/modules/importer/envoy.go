package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// envoyFile is what is known of a configuration of envoyproxy/ratelimit.
type envoyFile struct {
	*Result
	replaced map[string]bool // names of limits whose place others take
}

// units are those of Envoy's ratelimit, as windows; "": it is too long for one.
var units = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "24h",
	"week": "", "month": "", "year": ""}

func envoy(r *Result, text string) error {
	docs, err := readTrees(text, lines{})
	if err != nil {
		return fmt.Errorf("%s is no YAML: %w", r.File, err)
	}
	var domains []*tree
	kind := ""
	for _, doc := range docs {
		kind = doc.words("kind")
		domains = append(domains, domainsIn(doc, 0)...)
	}
	if len(domains) == 0 {
		if kind != "" {
			kind = fmt.Sprintf("; what a %s says is in the configuration that your control plane makes of it", kind)
		}
		return fmt.Errorf("%s has no domain: it is not a configuration of Envoy's ratelimit, which names one, and descriptors%s", r.File, kind)
	}
	f := &envoyFile{r, make(map[string]bool)}
	for _, d := range domains {
		f.mentions(d)
	}
	for _, d := range domains {
		for _, item := range d.list("descriptors") {
			f.descriptor(d.words("domain"), nil, item, 0)
		}
	}
	r.services = len(r.Rules) > 0
	return nil
}

// domainsIn finds the mappings of a document that have a domain: itself, a part of a chart's
// values, or what a ConfigMap of Kubernetes has as text.
func domainsIn(t *tree, depth int) (found []*tree) {
	if t == nil || depth > 20 {
		return nil
	}
	if t.words("domain") != "" {
		return []*tree{t}
	}
	if t.words("kind") == "ConfigMap" && t.field("data") != nil {
		for _, f := range t.field("data").fields {
			docs, _ := readTrees(f.value.text, lines{f.value.line, !f.value.block})
			for _, doc := range docs { // none of other files that it may have
				found = append(found, domainsIn(doc, depth+1)...)
			}
		}
		return found
	}
	for _, f := range t.fields {
		found = append(found, domainsIn(f.value, depth+1)...)
	}
	for _, item := range t.items {
		found = append(found, domainsIn(item, depth+1)...)
	}
	return found
}

// Fields of a descriptor and of its rate_limit. Ratelimit refuses others.
var (
	descriptorFields = []string{"key", "value", "descriptors", "rate_limit", "shadow_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "quota_mode", "metadata"}
	limitFields = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
)

// unknownField is the first field of a descriptor that it cannot have.
func unknownField(t *tree) string {
	for _, f := range t.fields {
		if !slices.Contains(descriptorFields, f.key) {
			return f.key
		}
	}
	if l := t.field("rate_limit"); l != nil {
		for _, f := range l.fields {
			if !slices.Contains(limitFields, f.key) {
				return "rate_limit." + f.key
			}
		}
	}
	return ""
}

// mentions has each limit of descriptors accounted for.
func (f *envoyFile) mentions(t *tree) {
	for _, d := range t.list("descriptors") {
		if l := d.field("rate_limit"); l != nil {
			for _, other := range l.list("replaces") {
				f.replaced[other.words("name")] = true
			}
			f.mention(lineOf(d.line), written(d))
		}
		f.mentions(d)
	}
}

// written is a descriptor as notes and rules say it.
func written(d *tree) string {
	text := "key " + d.words("key")
	if value := d.words("value"); value != "" {
		text += ", value " + value
	}
	switch l := d.field("rate_limit"); {
	case l == nil:
	case l.isTrue("unlimited"):
		text += ": unlimited"
	case l.words("unit") == "":
		text += ": a rate_limit without a unit"
	default:
		text += fmt.Sprintf(": %s in a %s", l.words("requests_per_unit"),
			strings.ToLower(l.words("unit")))
	}
	return text
}

// descriptor makes rules of one and of those within it.
func (f *envoyFile) descriptor(domain string, above []yaml.MapSlice, d *tree, depth int) {
	entry := named("key", d.words("key"))
	if value := d.words("value"); value != "" {
		entry = append(entry, yaml.MapItem{Key: "value", Value: value})
	}
	entries := append(above[:len(above):len(above)], entry)
	switch unknown := unknownField(d); {
	case d.words("key") == "":
		f.leftOutAll(d, "it has no key")
		return
	case unknown != "":
		f.leftOutAll(d, "there is no field "+unknown+" in a configuration of Envoy's ratelimit")
		return
	case depth > 20:
		f.leftOutAll(d, "descriptors within descriptors, more than 20 deep")
		return
	}
	if d.field("rate_limit") != nil {
		f.limit(domain, entries, d)
	}
	for _, inner := range d.list("descriptors") {
		f.descriptor(domain, entries, inner, depth+1)
	}
}

// leftOutAll notes that a descriptor has no rule, nor one within it.
func (f *envoyFile) leftOutAll(d *tree, why string) {
	f.note(lineOf(d.line), "left out, with the descriptors within it: %s: %s", written(d), why)
	for _, inner := range d.list("descriptors") {
		f.leftOutAll(inner, "the one around it is left out")
	}
}

// limit makes a rule of the rate_limit of a descriptor.
func (f *envoyFile) limit(domain string, entries []yaml.MapSlice, d *tree) {
	m := mention{lineOf(d.line), written(d)}
	l, x := d.field("rate_limit"), Rule{Position: m.Position, From: m.text}
	unit, requests := strings.ToLower(l.words("unit")), l.words("requests_per_unit")
	n, err := strconv.ParseUint(strings.ReplaceAll(requests, "_", ""), 0, 32)
	window, known := units[unit]
	switch {
	case l.isTrue("unlimited"):
		n, window = mostRequests, "1s"
		x.Notes = append(x.Notes,
			"unlimited: a limit that nobody reaches, before rules about any value")
	case !known:
		f.leftOut(m, "the unit %q is none of Envoy's ratelimit", l.words("unit"))
		return
	case window == "":
		f.leftOut(m, "a window of a %s is longer than 24h, which is the longest here: a quota of "+
			"a plan may be what you want", unit)
		return
	case err != nil:
		f.leftOut(m, "%q is no number of requests", requests)
		return
	case n == 0:
		f.leftOut(m, "a limit of 0 refuses everything: have the proxy refuse it")
		return
	case n > mostRequests:
		x.Notes = append(x.Notes, fmt.Sprintf("%d is the most that a limit can be", mostRequests))
		n = mostRequests
	}
	var unknown []string
	if d.isTrue("quota_mode") {
		unknown = append(unknown, "quota_mode, in which Envoy refuses nobody")
	}
	if name := l.words("name"); name != "" && f.replaced[name] {
		unknown = append(unknown,
			"that another limit replaces "+name+" where both are about a request")
	}
	if d.isTrue("share_threshold") {
		x.Notes = append(x.Notes, "share_threshold has no equal: each value that an entry leaves "+
			"open has a counter of its own")
	}
	name := domain
	for _, e := range entries {
		name += "_" + fmt.Sprint(e[len(e)-1].Value)
	}
	f.begin(&x, name, named("descriptors",
		yaml.MapSlice{{Key: "domain", Value: domain}, {Key: "entries", Value: entries}}))
	x.set("limit", n)
	x.set("window", window)
	x.set("algorithm", "fixed")
	x.set("mitigation_timeout", "0s")
	x.shadow = d.isTrue("shadow_mode")
	f.add(x, unknown)
}

// mostRequests is the highest limit of a rule.
const mostRequests = 1_000_000_000
