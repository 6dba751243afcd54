package importer

import (
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

// keyParts is what a variable is as a part of a key.
func keyParts(name string) (part string, note string) {
	name = spelled(name)
	switch name {
	case "binary_remote_addr", "remote_addr", "realip_remote_addr":
		return "source", ""
	case "proxy_add_x_forwarded_for", "proxy_protocol_addr":
		return "source", namesClient("$" + name)
	case "host", "http_host", "server_name":
		return "host", ""
	case "uri", "document_uri", "request_uri":
		if name == "request_uri" { // counts by path are of several such values
			return "path", requestURI
		}
		return "path", ""
	}
	for prefix, part := range map[string]string{"http_": "header:", "cookie_": "cookie:",
		"arg_": "query:"} {
		if rest, is := strings.CutPrefix(name, prefix); is {
			if part == "header:" {
				words := strings.Split(rest, "_")
				for i, w := range words {
					if w != "" {
						words[i] = strings.ToUpper(w[:1]) + w[1:]
					}
				}
				if rest = strings.Join(words, "-"); clientHeaders[strings.ToLower(rest)] {
					return "source", namesClient("$" + name)
				}
			}
			return part + rest, ""
		}
	}
	return "", ""
}

// within is the key in a server. $server_name is the first of its names, whichever was asked for:
// all requests of a server that has names are one, and its rule has them under match.
func (z *zone) within(c *condition) []string {
	if !z.byServer || !slices.ContainsFunc(c.match, func(i yaml.MapItem) bool { return i.Key == "hosts" }) {
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
	if note == "" {
		return
	}
	z.notes = append(z.notes, note)
	if note == namesClient("$"+spelled(variable)) || note == requestURI {
		z.cond.unknown = append(z.cond.unknown, "$"+variable)
	}
}

// key is who is counted in a zone, and which requests, where a map or geo says so.
func (f *nginxFile) key(d directive, text string) *zone {
	z := &zone{}
	names := variables.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		z.key = []string{"global"}
	}
	for _, m := range names {
		part, note := keyParts(m[1])
		z.byServer = z.byServer || spelled(m[1]) == "server_name"
		if from, is := f.maps["$"+m[1]]; is && len(names) == 1 {
			part = f.mapped(z, from, 0)
		}
		z.named(m[1], note)
		if part == "" {
			z.cond.unknown = append(z.cond.unknown, "$"+m[1])
			part = "source"
		}
		kind, name, is := strings.Cut(part, ":")
		if is && !z.elseSource { // what is empty is not counted by nginx
			field := map[string]string{"header": "headers", "cookie": "cookies",
				"query": "query"}[kind]
			if !z.cond.names(field, name) {
				z.cond.put(&z.cond.match, field, yaml.MapSlice{{Key: name, Value: "*"}}, "$"+m[1])
			}
		}
		if !slices.Contains(z.key, part) {
			z.key = append(z.key, part)
		}
	}
	return z
}

// mapped is the key that a map gives, where it is one key for some requests, and none for others.
func (f *nginxFile) mapped(z *zone, m directive, depth int) (part string) {
	unknown := func() string {
		z.cond.unknown = append(z.cond.unknown, m.String())
		return "source"
	}
	if depth > 3 {
		return unknown()
	}
	from := "$remote_addr"
	if m.name() == "map" || len(m.words) == 3 {
		from = m.words[1]
	}
	values := make(map[string]string)
	for _, v := range m.within {
		if len(v.words) != 2 {
			if !slices.Contains([]string{"volatile", "hostnames", "ranges"}, v.name()) {
				return unknown()
			}
			continue
		}
		values[v.words[0]] = v.words[1]
	}
	if source, is := values[""]; is && len(values) == 2 && values["default"] == from {
		if part, _ := keyParts(strings.Trim(source, "${}")); part == "source" {
			own, note := keyParts(strings.Trim(from, "${}"))
			if own != "" && own != "source" && note == "" {
				z.elseSource = true
				z.notes = append(z.notes, "who has no "+own+" counts by address, as in nginx; "+
					"who has an empty one has one counter with all such")
				return own
			}
		}
	}
	inner, nested := f.maps[from]
	if nested && m.name() == "map" { // of a geo or map of few words: the usual list of exceptions
		sets := make(map[string]string) // its word to the key
		for word, key := range values {
			sets[word] = key
		}
		return f.chosen(z, inner, func(word string) string {
			if key, is := sets[word]; is {
				return key
			}
			return sets["default"]
		}, unknown)
	}
	return f.chosen(z, m, func(word string) string { return word }, unknown)
}

// chosen reads a map or geo whose words stand for a key each: one key, or "" for who is not
// counted.
func (f *nginxFile) chosen(z *zone, m directive, keyOf func(string) string,
	unknown func() string) string {
	from := "remote_addr"
	if m.name() == "map" || len(m.words) == 3 {
		from = strings.Trim(m.words[1], "${}")
	}
	standard, key := keyOf(""), ""
	var in, out []string // whose requests are counted, or are not, beside the default
	for _, v := range m.within {
		if len(v.words) != 2 {
			continue
		}
		k := keyOf(v.words[1])
		if k != "" && key != "" && k != key {
			return unknown()
		}
		if k != "" {
			key = k
		}
		if v.words[0] == "default" {
			standard = k
		} else if k == "" {
			out = append(out, v.words[0])
		} else {
			in = append(in, v.words[0])
		}
	}
	name := variables.FindStringSubmatch(key)
	if name == nil {
		return unknown()
	}
	if m.name() == "geo" && slices.ContainsFunc(m.within,
		func(d directive) bool { return d.words[len(d.words)-1] == key }) {
		z.notes = append(z.notes,
			"nginx takes "+key+" in a geo as it is written, so all of these share one counter there; here each has its own, as was meant")
	}
	part, note := keyParts(name[1])
	z.named(name[1], note)
	list, to := in, &z.cond.match
	if standard != "" {
		list, to = out, &z.cond.not
	} else if len(out) > 0 && m.name() == "geo" {
		return unknown() // a part of a part
	}
	switch {
	case part == "":
		return unknown()
	case len(list) == 0:
	case m.name() == "geo" || from == "remote_addr" || from == "binary_remote_addr":
		good, bad := prefixes(list)
		if len(bad) > 0 {
			return unknown()
		}
		z.cond.put(to, "sources", good, m.String())
	case from == "request_method" && !strings.ContainsAny(strings.Join(list, ""), "~"):
		z.cond.put(to, "methods", list, m.String())
	case of(from) != "" && slices.ContainsFunc(slices.Concat(in, out),
		func(v string) bool { return strings.HasPrefix(v, "~") }):
		if !z.expressions(from, in, &z.cond.match, standard == "", m.String()) ||
			!z.expressions(from, out, &z.cond.not, true, m.String()) {
			return unknown()
		}
	case (from == "host" || from == "http_host") && !strings.ContainsAny(strings.Join(list, ""),
		"~"):
		z.cond.put(to, "hosts", list, m.String())
	case strings.HasPrefix(from, "http_") && len(list) == 1 && list[0] != "" && list[0][0] != '~':
		header, _ := keyParts(from)
		z.cond.put(to, "headers", yaml.MapSlice{{Key: strings.TrimPrefix(header, "header:"),
			Value: list[0]}}, m.String())
	default:
		return unknown()
	}
	return part
}

// of is the field of a match that is about a variable: headers, cookies or query; "": none is.
func of(variable string) string {
	part, note := keyParts(variable)
	kind, _, _ := strings.Cut(part, ":")
	if note != "" {
		return ""
	}
	return map[string]string{"header": "headers", "cookie": "cookies", "query": "query"}[kind]
}

// expressions has a variable be one of the patterns of a map: texts, whatever their case, or
// regular expressions. It reports whether each can be said.
func (z *zone) expressions(variable string, patterns []string, to *yaml.MapSlice, use bool,
	written string) bool {
	if !use || len(patterns) == 0 {
		return true
	}
	e, is := anyOf(patterns)
	if is {
		part, _ := keyParts(variable)
		_, name, _ := strings.Cut(part, ":")
		z.cond.put(to, of(variable), yaml.MapSlice{{Key: name, Value: "~" + e}}, written)
	}
	return is
}

// anyOf is one expression for the patterns of a map.
func anyOf(patterns []string) (e string, is bool) {
	var all []string
	for _, p := range patterns {
		switch {
		case strings.HasPrefix(p, "~*"):
			p = "(?i:" + p[2:] + ")"
		case strings.HasPrefix(p, "~"):
			p = "(?:" + p[1:] + ")"
		case p == "": // who has none is in no condition
			return "", false
		default:
			p = "^(?i:" + regexp.QuoteMeta(strings.TrimPrefix(p, "\\")) + ")$"
		}
		if _, err := regexp.Compile(p); err != nil { // PCRE says more
			return "", false
		}
		all = append(all, p)
	}
	e = strings.Join(all, "|")
	return e, len(e) <= 1000
}
