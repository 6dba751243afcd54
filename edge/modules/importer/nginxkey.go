package importer

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
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

// keyPart is what a variable is as a part of a key, and the note about it; "": it is none.
func keyPart(name string) (part, note string) {
	name = spelled(name)
	switch name {
	case "binary_remote_addr", "remote_addr", "realip_remote_addr":
		return "source", ""
	case "proxy_add_x_forwarded_for", "proxy_protocol_addr":
		return "source", namesClient("$" + name)
	case "host", "http_host", "server_name":
		return "host", ""
	case "uri", "document_uri":
		return "path", ""
	case "request_uri": // counts by path are of several such values
		return "path", requestURI
	}
	kind, rest, is := strings.Cut(name, "_")
	switch {
	case is && kind == "cookie":
		return "cookie:" + rest, ""
	case is && kind == "arg":
		return "query:" + rest, ""
	case is && kind == "http":
		rest = http.CanonicalHeaderKey(strings.ReplaceAll(rest, "_", "-"))
		if isClientHeader(rest) {
			return "source", namesClient("$" + name)
		}
		return "header:" + rest, ""
	}
	return "", ""
}

// within is the key in a server. $server_name is the first of its names, whichever was asked for:
// all requests of a server that has names are one, and its rule has them under match.
func (z *zone) within(c *condition) []string {
	if !z.byServer || !slices.ContainsFunc(c.match,
		func(i yaml.MapItem) bool { return i.Key == "hosts" }) {
		return z.key
	}
	key := slices.DeleteFunc(slices.Clone(z.key), func(part string) bool { return part == "host" })
	if len(key) == 0 {
		return []string{"global"}
	}
	return key
}

const requestURI = "$request_uri has the query as well, and a path has not"

// named notes that the key of a zone is what names the client, or that it tells more requests apart
// than a rule's would. Its rules are shadows: as long as no proxy is trusted, all clients behind
// one are one source.
func (z *zone) named(variable, note string) {
	if note != "" {
		z.notes = append(z.notes, note)
		z.cond.unknown = append(z.cond.unknown, "$"+variable)
	}
}

// key is who is counted in a zone, and which requests, where a map or geo says so.
func (f *nginxFile) key(text string) *zone {
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
				z.cond.unknown = append(z.cond.unknown, from.String())
				part = "source"
			}
		}
		z.named(m[1], note)
		if part == "" {
			z.cond.unknown = append(z.cond.unknown, "$"+m[1])
			part = "source"
		}
		if !z.elseSource {
			z.cond.counted(part, "$"+m[1])
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

// mapped is the key that a map gives, where it is one key for some requests, and none for others.
func (f *nginxFile) mapped(z *zone, m directive) (part string, is bool) {
	from, values := mappedFrom(m), make(map[string]string)
	for _, v := range m.within {
		switch {
		case len(v.words) == 2:
			values[v.words[0]] = v.words[1]
		case !slices.Contains([]string{"volatile", "hostnames", "ranges"}, v.name()):
			return "", false
		}
	}
	if source, is := values[""]; is && len(values) == 2 && values["default"] == from {
		instead, _ := keyPart(strings.Trim(source, "${}"))
		own, note := keyPart(strings.Trim(from, "${}"))
		if instead == "source" && own != "" && own != "source" && note == "" {
			z.elseSource = true
			z.notes = append(z.notes, "who has no "+own+" counts by address, as in nginx; "+
				"who has an empty one has one counter with all such")
			return own, true
		}
	}
	inner, nested := f.maps[from]
	if !nested || m.name() != "map" {
		return z.chosen(m, func(word string) string { return word })
	}
	// Of a geo or map of few words: the usual list of exceptions
	return z.chosen(inner, func(word string) string {
		if key, is := values[word]; is {
			return key
		}
		return values["default"]
	})
}

// chosen reads a map or geo whose words stand for a key each: one key, or "" for who is not
// counted.
func (z *zone) chosen(m directive, keyOf func(string) string) (part string, is bool) {
	from, geo := strings.Trim(mappedFrom(m), "${}"), m.name() == "geo"
	standard, key := keyOf(""), ""
	var in, out []string // whose requests are counted, or are not, beside the default
	for _, v := range m.within {
		if len(v.words) != 2 {
			continue
		}
		k := keyOf(v.words[1])
		switch {
		case k != "" && key != "" && k != key:
			return "", false
		case v.words[0] == "default":
			standard = k
		case k == "":
			out = append(out, v.words[0])
		default:
			in = append(in, v.words[0])
		}
		if k != "" {
			key = k
		}
	}
	name := variables.FindStringSubmatch(key)
	if name == nil {
		return "", false
	}
	if geo && slices.ContainsFunc(m.within, func(d directive) bool { return d.last() == key }) {
		z.notes = append(z.notes, "nginx takes "+key+" in a geo as it is written, so all of these "+
			"share one counter there; here each has its own, as was meant")
	}
	part, note := keyPart(name[1])
	z.named(name[1], note)
	list, not := in, standard != ""
	if not {
		list = out
	} else if len(out) > 0 && geo {
		return "", false // a part of a part
	}
	about, note := keyPart(from)
	field, its := fieldOf(about)
	tilde := func(v string) bool { return strings.HasPrefix(v, "~") }
	plain := !strings.Contains(strings.Join(list, ""), "~")
	switch {
	case part == "":
		return "", false
	case len(list) == 0:
	case geo || from == "remote_addr" || from == "binary_remote_addr":
		good, bad := prefixes(list)
		if len(bad) > 0 {
			return "", false
		}
		z.cond.put(not, "sources", good, m.String())
	case from == "request_method" && plain:
		z.cond.put(not, "methods", list, m.String())
	case field != "" && note == "" && slices.ContainsFunc(slices.Concat(in, out), tilde):
		return part, (not || z.expressions(false, field, its, in, m.String())) &&
			z.expressions(true, field, its, out, m.String())
	case (from == "host" || from == "http_host") && plain:
		z.cond.put(not, "hosts", list, m.String())
	case field == "headers" && note == "" && len(list) == 1 && list[0] != "":
		z.cond.put(not, "headers", named(its, list[0]), m.String())
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
		case p == "": // who has none is in no condition
			return false
		default:
			p = "^(?i:" + regexp.QuoteMeta(strings.TrimPrefix(p, "\\")) + ")$"
		}
		all = append(all, p)
	}
	e := strings.Join(all, "|")
	if !isExpression(e) {
		return false
	}
	z.cond.put(not, field, named(name, "~"+e), written)
	return true
}
