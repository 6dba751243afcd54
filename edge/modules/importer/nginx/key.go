package nginx

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/modules/importer/limit"
)

var variables = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)

// spelled is a variable's name as nginx has it, to which case does not matter, but for what names a
// parameter or a cookie, whose names have case here.
func spelled(name string) string {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"arg_", "cookie_"} {
		if strings.HasPrefix(lower, prefix) {
			return prefix + name[len(prefix):]
		}
	}
	return lower
}

// keyParts are variables that are a part of a key.
var keyParts = map[string]string{"binary_remote_addr": "source", "remote_addr": "source",
	"realip_remote_addr": "source", "proxy_add_x_forwarded_for": "source",
	"proxy_protocol_addr": "source", "host": "host", "http_host": "host", "server_name": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path"}

// keyPart is what a variable is as a part of a key, and the note about it; "": it is none.
func keyPart(name string) (part, note string) {
	name = spelled(name)
	part = keyParts[name]
	kind, rest, is := strings.Cut(name, "_")
	switch {
	case name == "request_uri": // counts by path are of several such values
		note = RequestURI
	case name == "proxy_add_x_forwarded_for" || name == "proxy_protocol_addr":
		note = limit.NamesClient("$" + name)
	case part != "" || !is:
	case kind == "cookie":
		part = "cookie:" + rest
	case kind == "arg":
		part = "query:" + rest
	case kind == "http":
		rest = http.CanonicalHeaderKey(strings.ReplaceAll(rest, "_", "-"))
		if part = "header:" + rest; limit.IsClientHeader(rest) {
			part, note = "source", limit.NamesClient("$"+name)
		}
	}
	return part, note
}

// within is the key in a server. $server_name is the first of its names, whichever was asked for:
// all requests of a server that has names are one, and its rule has them under match.
func (z *zone) within(c *limit.Condition) []string {
	if !z.byServer || !slices.ContainsFunc(c.Match,
		func(i yaml.MapItem) bool { return i.Key == "hosts" }) {
		return z.key
	}
	key := slices.DeleteFunc(slices.Clone(z.key), func(part string) bool { return part == "host" })
	if len(key) == 0 {
		return []string{"global"}
	}
	return key
}

// RequestURI is the note about a key that has $request_uri.
const RequestURI = "$request_uri has the query as well, and a path has not"

// named notes that the key of a zone is what names the client, or that it tells more requests apart
// than a rule's would. Its rules are shadows: as long as no proxy is trusted, all clients behind
// one are one source.
func (z *zone) named(variable, note string) {
	if note != "" {
		z.notes = append(z.notes, note)
		z.cond.Unknown = append(z.cond.Unknown, "$"+variable)
	}
}

// key is who is counted in a zone, and which requests, where a map or geo says so.
func (f *file) key(text string) *zone {
	z := &zone{}
	names := variables.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		z.key = []string{"global"}
	}
	for _, m := range names {
		part, note := keyPart(m[1])
		z.byServer = z.byServer || spelled(m[1]) == "server_name"
		if from, is := f.maps["$"+m[1]]; is && len(names) == 1 {
			if part, is = f.mapped(z, from); !is {
				z.cond.Unknown = append(z.cond.Unknown, from.String())
				part = "source"
			}
		}
		z.named(m[1], note)
		if part == "" {
			z.cond.Unknown = append(z.cond.Unknown, "$"+m[1])
			part = "source"
		}
		if !z.elseSource {
			z.cond.Counted(part, "$"+m[1])
		}
		if !slices.Contains(z.key, part) {
			z.key = append(z.key, part)
		}
	}
	return z
}

// mappedFrom is the variable that a map or geo is of.
func mappedFrom(m directive) string {
	if m.name() == "map" || len(m.words) == 3 {
		return m.words[1]
	}
	return "$remote_addr"
}

// pairs are what a map or geo gives for the values of its variable, and for all others.
func pairs(m directive) (list [][2]string, standard string, is bool) {
	for _, v := range m.within {
		switch {
		case len(v.words) == 2 && v.name() == "default":
			standard = v.last()
		case len(v.words) == 2:
			list = append(list, [2]string(v.words))
		case !slices.Contains([]string{"volatile", "hostnames", "ranges"}, v.name()):
			return nil, "", false
		}
	}
	return list, standard, true
}

// mapped is the key that a map or geo gives: one for some requests, and "" for who is not counted.
func (f *file) mapped(z *zone, m directive) (part string, is bool) {
	list, standard, is := pairs(m)
	from := mappedFrom(m)
	if len(list) == 1 && list[0][0] == "" && standard == from {
		instead, _ := keyPart(strings.Trim(list[0][1], "${}"))
		own, note := keyPart(strings.Trim(from, "${}"))
		if instead == "source" && own != "" && own != "source" && note == "" {
			z.elseSource = true
			z.notes = append(z.notes, "who has no "+own+" counts by address, as in nginx; "+
				"who has an empty one has one counter with all such")
			return own, true
		}
	}
	inner, nested := f.maps[from]
	if !is || !nested || m.name() != "map" {
		return z.chosen(m, list, standard, is)
	}
	// Of a geo or map of few words: the usual list of exceptions
	gives := func(word string) string {
		for _, p := range list {
			if p[0] == word {
				return p[1]
			}
		}
		return standard
	}
	words, other, is := pairs(inner)
	for i, p := range words {
		words[i][1] = gives(p[1])
	}
	return z.chosen(inner, words, gives(other), is)
}

// chosen is the one key of a list of values of what a map or geo is of. The condition of the zone
// is then about those.
func (z *zone) chosen(m directive, list [][2]string, standard string, read bool) (part string,
	is bool) {
	var in, out []string // whose requests are counted, or are not, beside the others
	key := standard
	for _, p := range list {
		switch {
		case p[1] == "":
			out = append(out, p[0])
		case key == "" || key == p[1]:
			key, in = p[1], append(in, p[0])
		default:
			return "", false
		}
	}
	name := variables.FindStringSubmatch(key)
	if name == nil || !read {
		return "", false
	}
	geo := m.name() == "geo"
	if geo && slices.ContainsFunc(m.within, func(d directive) bool { return d.last() == key }) {
		z.notes = append(z.notes, "nginx takes "+key+" in a geo as it is written, so all of these "+
			"share one counter there; here each has its own, as was meant")
	}
	part, note := keyPart(name[1])
	z.named(name[1], note)
	some, not := in, standard != ""
	if not {
		some = out
	} else if len(out) > 0 && geo {
		return "", false // a part of a part
	}
	from := strings.Trim(mappedFrom(m), "${}")
	about, note := keyPart(from)
	field, its := limit.FieldOf(about)
	plain := !strings.Contains(strings.Join(some, ""), "~")
	good, bad := limit.Prefixes(some)
	switch {
	case part == "":
		return "", false
	case len(some) == 0:
	case (geo || about == "source" && note == "") && len(bad) == 0:
		z.cond.Put(not, "sources", good, m.String())
	case geo || note != "" || about == "source":
		return "", false
	case from == "request_method" && plain:
		z.cond.Put(not, "methods", some, m.String())
	case about == "host" && plain:
		z.cond.Put(not, "hosts", some, m.String())
	case field != "":
		return part, (not || z.expressions(false, field, its, in, m.String())) &&
			z.expressions(true, field, its, out, m.String())
	default:
		return "", false
	}
	return part, true
}

// expressions has a header, cookie or parameter be one of the patterns of a map: texts, whatever
// their case, or regular expressions. It reports whether each can be said.
func (z *zone) expressions(not bool, field, name string, patterns []string,
	written string) bool {
	if len(patterns) == 0 {
		return true
	}
	var all []string
	for _, p := range patterns {
		switch {
		case strings.HasPrefix(p, "~*"):
			p = "(?i:" + p[2:] + ")"
		case strings.HasPrefix(p, "~"):
			p = "(?:" + p[1:] + ")"
		case p == "": // who has none is in no limit.Condition
			return false
		default:
			p = "^(?i:" + regexp.QuoteMeta(strings.TrimPrefix(p, "\\")) + ")$"
		}
		all = append(all, p)
	}
	e := strings.Join(all, "|")
	if !limit.IsExpression(e) {
		return false
	}
	z.cond.Put(not, field, limit.Named(name, "~"+e), written)
	return true
}
