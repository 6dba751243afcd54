package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A descriptor of envoyproxy/ratelimit's configuration.
type descriptor struct {
	Key       string
	Value     string
	RateLimit *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	} `yaml:"rate_limit"`
	ShadowMode     bool `yaml:"shadow_mode"`
	QuotaMode      bool `yaml:"quota_mode"`
	Descriptors    []descriptor
	ValueToMetric  bool `yaml:"value_to_metric"`
	ShareThreshold bool `yaml:"share_threshold"`

	line    int
	unknown string // a field that there is not
}

var units = map[string]string{"second": "1s", "minute": "1m", "hour": "1h", "day": "24h"}

func envoy(r *Result, text string) error {
	parsed, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return fmt.Errorf("%s is no YAML: %s", r.File, strings.SplitN(err.Error(), "\n", 2)[0])
	}
	found := false
	for _, doc := range parsed.Docs {
		is, err := r.envoyDomain(doc.Body, 0)
		if err != nil {
			return err
		}
		found = found || is
	}
	if !found {
		return fmt.Errorf("%s has no domain: it is not a configuration of Envoy's ratelimit, which names one, and descriptors", r.File)
	}
	r.services = len(r.Rules) > 0
	return nil
}

// envoyDomain reads a document: a domain with its descriptors, or a ConfigMap of Kubernetes whose
// values are such documents. It begins after a number of lines.
func (r *Result) envoyDomain(body ast.Node, before int) (found bool, err error) {
	var file struct {
		Kind        string
		Domain      string
		Descriptors []descriptor
	}
	if body == nil {
		return false, nil
	}
	if err := yaml.NodeToValue(body, &file); err != nil {
		return false, fmt.Errorf("%s is not a configuration of Envoy's ratelimit: %s", r.File,
			strings.SplitN(err.Error(), "\n", 2)[0])
	}
	if file.Kind == "ConfigMap" && before == 0 {
		return r.configMap(body)
	}
	if file.Domain == "" {
		return false, nil
	}
	r.envoyLines(body, file.Descriptors, before)
	for i := range file.Descriptors {
		r.descriptor(file.Domain, nil, &file.Descriptors[i], 0)
	}
	return true, nil
}

// configMap reads the documents of a ConfigMap.
func (r *Result) configMap(body ast.Node) (found bool, err error) {
	m, is := body.(*ast.MappingNode)
	if !is {
		return false, nil
	}
	for _, v := range m.Values {
		data, is := v.Value.(*ast.MappingNode)
		if v.Key.String() != "data" || !is {
			continue
		}
		for _, item := range data.Values {
			text, is := item.Value.(*ast.LiteralNode)
			if !is {
				continue
			}
			parsed, err := parser.ParseBytes([]byte(text.Value.Value), 0)
			if err != nil {
				continue // it may have other files
			}
			for _, doc := range parsed.Docs {
				one, err := r.envoyDomain(doc.Body, text.GetToken().Position.Line)
				if err != nil {
					return false, err
				}
				found = found || one
			}
		}
	}
	return found, nil
}

// envoyFields are those of a descriptor and of its rate_limit. Ratelimit refuses others.
var envoyFields = map[string]bool{"key": true, "value": true, "descriptors": true,
	"rate_limit": true, "shadow_mode": true, "detailed_metric": true, "value_to_metric": true,
	"share_threshold": true, "quota_mode": true, "metadata": true,
	"rate_limit.unit": true, "rate_limit.requests_per_unit": true, "rate_limit.unlimited": true,
	"rate_limit.name": true, "rate_limit.replaces": true}

// unknownField is the first field of a descriptor that it cannot have.
func unknownField(n ast.Node, within string) string {
	m, is := n.(*ast.MappingNode)
	if !is {
		return ""
	}
	for _, v := range m.Values {
		name := within + v.Key.String()
		if !envoyFields[name] {
			return name
		}
		if name == "rate_limit" {
			if bad := unknownField(v.Value, "rate_limit."); bad != "" {
				return bad
			}
		}
	}
	return ""
}

// envoyLines finds where each descriptor stands, and what it has that none can have.
func (r *Result) envoyLines(n ast.Node, list []descriptor, before int) {
	m, is := n.(*ast.MappingNode)
	if !is {
		return
	}
	for _, v := range m.Values {
		s, several := v.Value.(*ast.SequenceNode)
		if v.Key.String() != "descriptors" || !several {
			continue
		}
		for i := range min(len(list), len(s.Values)) {
			list[i].line = s.Values[i].GetToken().Position.Line + before
			list[i].unknown = unknownField(s.Values[i], "")
			r.envoyLines(s.Values[i], list[i].Descriptors, before)
		}
	}
}

// descriptor makes rules of one and of those within it.
func (r *Result) descriptor(domain string, above []yaml.MapSlice, d *descriptor, depth int) {
	entry := yaml.MapSlice{{Key: "key", Value: d.Key}}
	name := d.Key
	if d.Value != "" {
		entry = append(entry, yaml.MapItem{Key: "value", Value: d.Value})
		name = d.Value
	}
	entries := append(above[:len(above):len(above)], entry)
	names := domain
	for _, e := range entries {
		names += "_" + fmt.Sprint(e[len(e)-1].Value)
	}
	x := Rule{Position: lineOf(d.line), From: strings.TrimSpace(fmt.Sprintf("key %s, value %s",
		d.Key, d.Value))}
	switch l := d.RateLimit; {
	case d.Key == "":
		r.note(lineOf(d.line), "left out: a descriptor without a key")
		return
	case d.unknown != "":
		r.note(lineOf(d.line),
			"left out, with the descriptors within it: %s: there is no field %s in a configuration of Envoy's ratelimit", name, d.unknown)
		return
	case l == nil:
	case l.Unlimited:
		x.Name = r.name(names)
		x.From += ": unlimited"
		x.Notes = []string{"unlimited: a limit that nobody reaches, before rules about any value"}
		x.fields = descriptorRule(x.Name, domain, entries, 1_000_000_000, "1s")
		r.add(x)
	case !slices.Contains([]string{"second", "minute", "hour", "day", "week", "month", "year"},
		strings.ToLower(l.Unit)):
		r.note(lineOf(d.line), "left out: %s: the unit %q is none of Envoy's ratelimit", name,
			l.Unit)
	case units[strings.ToLower(l.Unit)] == "":
		r.note(lineOf(d.line),
			"left out: %s: a window of a %s is longer than 24h, which is the longest here: a quota of a plan may be what you want", name, strings.ToLower(l.Unit))
	default:
		x.From += fmt.Sprintf(": %d in a %s", l.RequestsPerUnit, strings.ToLower(l.Unit))
		x.Name = r.name(names)
		x.fields = descriptorRule(x.Name, domain, entries, l.RequestsPerUnit,
			units[strings.ToLower(l.Unit)])
		if d.ShadowMode {
			x.fields = append(x.fields, yaml.MapItem{Key: "mode", Value: "shadow"})
		}
		if len(l.Replaces) > 0 {
			x.Notes = append(x.Notes,
				"replaces: a descriptor is under the rule with its entries, and takes no other's place")
		}
		if d.QuotaMode || d.ShareThreshold {
			x.Notes = append(x.Notes,
				"quota_mode and share_threshold have no equal: each value that an entry leaves open has a counter of its own")
		}
		if l.RequestsPerUnit == 0 {
			r.note(lineOf(d.line),
				"left out: %s: a limit of 0 refuses everything: have the proxy refuse it", name)
			delete(r.names, x.Name)
			break
		}
		r.add(x)
	}
	if depth > 20 {
		r.note(lineOf(d.line), "left out: descriptors within descriptors, more than 20 deep")
		return
	}
	for i := range d.Descriptors {
		r.descriptor(domain, entries, &d.Descriptors[i], depth+1)
	}
}

func descriptorRule(name, domain string, entries []yaml.MapSlice, limit uint32,
	window string) yaml.MapSlice {
	return yaml.MapSlice{{Key: "name", Value: name},
		{Key: "match",
			Value: yaml.MapSlice{{Key: "descriptors",
				Value: yaml.MapSlice{{Key: "domain", Value: domain},
					{Key: "entries", Value: entries}}}}},
		{Key: "limit", Value: limit}, {Key: "window", Value: window}, {Key: "algorithm",
			Value: "fixed"}, {Key: "mitigation_timeout", Value: "0s"}}
}
