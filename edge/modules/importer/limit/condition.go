package limit

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A Condition is what a rule is about, and what it leaves out.
type Condition struct {
	Match, Not yaml.MapSlice
	Unknown    []string // what is not understood
}

// Clone is a copy that shares nothing with c.
func (c *Condition) Clone() Condition {
	return Condition{slices.Clone(c.Match), slices.Clone(c.Not), slices.Clone(c.Unknown)}
}

// Put sets a field of what a rule is about, or of what it leaves out: that are all values that the
// field is given. A match has one value of a field; a second one, which was written so, is not
// understood.
func (c *Condition) Put(not bool, field string, v any, written string) {
	to := &c.Match
	if not {
		to = &c.Not
	}
	i := slices.IndexFunc(*to, func(item yaml.MapItem) bool { return item.Key == field })
	if i < 0 {
		*to = append(*to, yaml.MapItem{Key: field, Value: v})
		return
	}
	has := (*to)[i].Value
	if list, more := texts(has), texts(v); not && list != nil && more != nil {
		if all := Unique(slices.Concat(list, more)); len(all) > len(list) {
			(*to)[i].Value = all
		}
	} else if fmt.Sprint(has) != fmt.Sprint(v) {
		c.Unknown = append(c.Unknown, written)
	}
}

// texts are those of a value that is one or a list; nil: it is neither.
func texts(v any) []string {
	if text, is := v.(string); is {
		return []string{text}
	}
	list, _ := v.([]string)
	return list
}

// And adds what another condition asks.
func (c *Condition) And(other Condition, written string) {
	for _, item := range other.Match {
		c.Put(false, item.Key.(string), item.Value, written)
	}
	for _, item := range other.Not {
		c.Put(true, item.Key.(string), item.Value, written)
	}
}

// whole is the match of a rule; nil: it is about everything.
func (c *Condition) whole() yaml.MapSlice {
	m := slices.Clone(c.Match)
	if len(c.Not) > 0 {
		m = append(m, yaml.MapItem{Key: "not", Value: c.Not})
	}
	return m
}

// Named is one header, cookie or parameter, with what it has to be.
func Named(name string, v any) yaml.MapSlice { return yaml.MapSlice{{Key: name, Value: v}} }

// FieldOf is the field of a match that is about what a part of a key is, and the name there of that
// header, cookie or parameter; "": it is none of these.
func FieldOf(part string) (field, name string) {
	kind, name, _ := strings.Cut(part, ":")
	return map[string]string{"header": "headers", "cookie": "cookies", "query": "query"}[kind], name
}

// Counted leaves out requests without that by which a key counts, which others do not count.
func (c *Condition) Counted(part, written string) {
	field, name := FieldOf(part)
	is := func(item yaml.MapItem) bool { return strings.EqualFold(item.Key.(string), name) }
	if field == "" || slices.ContainsFunc(c.Match, func(item yaml.MapItem) bool {
		values, named := item.Value.(yaml.MapSlice)
		return named && item.Key == field && slices.ContainsFunc(values, is)
	}) {
		return
	}
	c.Put(false, field, Named(name, "*"), written)
}

// maxExpression bounds a regular expression that is made of several.
const maxExpression = 1000

// IsExpression reports whether a rule can have a regular expression. PCRE says more.
func IsExpression(e string) bool {
	_, err := regexp.Compile(e)
	return err == nil && len(e) <= maxExpression
}

// clientHeaders are those in which proxies name a client.
var clientHeaders = strings.Fields(`x-forwarded-for forwarded x-real-ip x-client-ip
	x-original-forwarded-for x-cluster-client-ip cf-connecting-ip cf-connecting-ipv6
	cf-pseudo-ipv4 true-client-ip fastly-client-ip fly-client-ip do-connecting-ip
	x-azure-clientip x-azure-socketip x-appengine-user-ip cloudfront-viewer-address
	x-envoy-external-address client-ip wl-proxy-client-ip proxy-client-ip`)

// IsClientHeader reports whether proxies name a client in a header.
func IsClientHeader(name string) bool {
	return slices.Contains(clientHeaders, strings.ToLower(name))
}

// NamesClient is the note about a key that names the client.
func NamesClient(key string) string {
	return key +
		" names the client, and anyone can write it: name the addresses of your proxies in source.trust and the header in " +
		"source.header; then the source is the client, and mode: shadow can go"
}

// Prefixes are those of a list that are addresses or CIDR.
func Prefixes(list []string) (good, bad []string) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if addr, alone := netip.ParseAddr(text); alone == nil {
			p, err = addr.Prefix(addr.BitLen())
		}
		switch p = p.Masked(); {
		case err != nil:
			bad = append(bad, text)
		case p.IsSingleIP():
			good = append(good, p.Addr().String())
		default:
			good = append(good, p.String())
		}
	}
	return good, bad
}

// Unique is a list without what stands in it again.
func Unique[T comparable](list []T) (all []T) {
	for _, x := range list {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}
