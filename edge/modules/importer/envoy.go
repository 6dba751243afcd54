package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// A descriptor of envoyproxy/ratelimit's configuration.
type descriptor struct {
	line        int
	key, value  string
	limit       *envoyLimit // nil: it has none of its own
	shadow      bool        // shadow_mode
	quota       bool        // quota_mode
	shares      bool        // share_threshold
	descriptors []descriptor
	unknown     string // a field that there is not
}

// An envoyLimit is a rate_limit.
type envoyLimit struct {
	unit, requests, name string
	unlimited            bool
	replaces             []string
}

// envoyFile is what is known of one.
type envoyFile struct {
	*Result
	replaced map[string]bool // names of limits whose place others take
}

var units = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "24h"}

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
	lists := make([][]descriptor, len(domains))
	for i, d := range domains {
		lists[i] = f.descriptors(d.field("descriptors"))
	}
	for i, d := range domains {
		for j := range lists[i] {
			f.descriptor(d.words("domain"), nil, &lists[i][j], 0)
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
	if t.words("kind") == "ConfigMap" {
		data := t.field("data")
		if data == nil {
			return nil
		}
		for _, item := range data.fields {
			docs, err := readTrees(item.value.text, lines{item.value.line, !item.value.block})
			if err != nil {
				continue // it may have other files
			}
			for _, doc := range docs {
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

// isTrue reads a boolean as ratelimit's YAML does.
func isTrue(text string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(text))
}

// descriptors reads a list of them, and has each limit accounted for.
func (f *envoyFile) descriptors(t *tree) (list []descriptor) {
	if t == nil {
		return nil
	}
	for _, item := range t.items {
		d := descriptor{line: item.line, key: item.words("key"), value: item.words("value"),
			shadow: isTrue(item.words("shadow_mode")), quota: isTrue(item.words("quota_mode")),
			shares:  isTrue(item.words("share_threshold")),
			unknown: unknownField(item), descriptors: f.descriptors(item.field("descriptors"))}
		if l := item.field("rate_limit"); l != nil {
			d.limit = &envoyLimit{unit: l.words("unit"), requests: l.words("requests_per_unit"),
				name: l.words("name"), unlimited: isTrue(l.words("unlimited"))}
			if r := l.field("replaces"); r != nil {
				for _, other := range r.items {
					d.limit.replaces = append(d.limit.replaces, other.words("name"))
					f.replaced[other.words("name")] = true
				}
			}
			f.mention(lineOf(d.line), d.String())
		}
		list = append(list, d)
	}
	return list
}

// String is the descriptor as notes and rules say it.
func (d *descriptor) String() string {
	text := "key " + d.key
	if d.value != "" {
		text += ", value " + d.value
	}
	switch l := d.limit; {
	case l == nil:
	case l.unit == "" && !l.unlimited:
		text += ": a rate_limit without a unit"
	case l.unlimited:
		text += ": unlimited"
	default:
		text += fmt.Sprintf(": %s in a %s", l.requests, strings.ToLower(l.unit))
	}
	return text
}

// descriptor makes rules of one and of those within it.
func (f *envoyFile) descriptor(domain string, above []yaml.MapSlice, d *descriptor, depth int) {
	entry := yaml.MapSlice{{Key: "key", Value: d.key}}
	if d.value != "" {
		entry = append(entry, yaml.MapItem{Key: "value", Value: d.value})
	}
	entries := append(above[:len(above):len(above)], entry)
	at, why := lineOf(d.line), ""
	switch {
	case d.key == "":
		why = "it has no key"
	case d.unknown != "":
		why = "there is no field " + d.unknown + " in a configuration of Envoy's ratelimit"
	case depth > 20:
		why = "descriptors within descriptors, more than 20 deep"
	}
	if why != "" {
		f.leftOut(d, why)
		return
	}
	if d.limit != nil {
		f.limit(at, domain, entries, d)
	}
	for i := range d.descriptors {
		f.descriptor(domain, entries, &d.descriptors[i], depth+1)
	}
}

// leftOut notes that a descriptor has no rule, nor one within it.
func (f *envoyFile) leftOut(d *descriptor, why string) {
	f.note(lineOf(d.line), "left out, with the descriptors within it: %s: %s", d.String(), why)
	for i := range d.descriptors {
		f.leftOut(&d.descriptors[i], "the one around it is left out")
	}
}

// limit makes a rule of a rate_limit.
func (f *envoyFile) limit(at Position, domain string, entries []yaml.MapSlice, d *descriptor) {
	l, x := d.limit, Rule{Position: at, From: d.String()}
	names := domain
	for _, e := range entries {
		names += "_" + fmt.Sprint(e[len(e)-1].Value)
	}
	unit := strings.ToLower(l.unit)
	n, err := strconv.ParseUint(strings.ReplaceAll(l.requests, "_", ""), 0, 32)
	window := units[unit]
	var unknown []string
	switch {
	case l.unlimited:
		n, window = mostRequests, "1s"
		x.Notes = append(x.Notes,
			"unlimited: a limit that nobody reaches, before rules about any value")
	case !slices.Contains([]string{"second", "minute", "hour", "day", "week", "month", "year"},
		unit):
		f.note(at, "left out: %s: the unit %q is none of Envoy's ratelimit", d.String(), l.unit)
		return
	case window == "":
		f.note(at, "left out: %s: a window of a %s is longer than 24h, which is the longest here: a quota of a plan may be what you want", d.String(), unit)
		return
	case err != nil:
		f.note(at, "left out: %s: %q is no number of requests", d.String(), l.requests)
		return
	case n == 0:
		f.note(at, "left out: %s: a limit of 0 refuses everything: have the proxy refuse it",
			d.String())
		return
	case n > mostRequests:
		x.Notes = append(x.Notes, fmt.Sprintf("%d is the most that a limit can be", mostRequests))
		n = mostRequests
	}
	if d.quota {
		unknown = append(unknown, "quota_mode, in which Envoy refuses nobody")
	}
	if l.name != "" && f.replaced[l.name] {
		unknown = append(unknown,
			"that another limit replaces "+l.name+" where both are about a request")
	}
	if d.shares {
		x.Notes = append(x.Notes,
			"share_threshold has no equal: each value that an entry leaves open has a counter of its own")
	}
	x.Name = f.name(names)
	x.fields = descriptorRule(x.Name, domain, entries, n, window)
	if len(unknown) > 0 {
		x.Notes = append(x.Notes, noEqual(unknown))
	}
	if d.shadow || len(unknown) > 0 {
		x.fields = append(x.fields, yaml.MapItem{Key: "mode", Value: "shadow"})
	}
	f.add(x)
}

// mostRequests is the highest limit of a rule.
const mostRequests = 1_000_000_000

func descriptorRule(name, domain string, entries []yaml.MapSlice, limit uint64,
	window string) yaml.MapSlice {
	return yaml.MapSlice{{Key: "name", Value: name},
		{Key: "match",
			Value: yaml.MapSlice{{Key: "descriptors",
				Value: yaml.MapSlice{{Key: "domain", Value: domain},
					{Key: "entries", Value: entries}}}}},
		{Key: "limit", Value: limit}, {Key: "window", Value: window}, {Key: "algorithm",
			Value: "fixed"}, {Key: "mitigation_timeout", Value: "0s"}}
}
