package importer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A section is a frontend, backend, listen, or peers of HAProxy, or another.
type section struct {
	kind, name string
	lines      []line
}

// A line is one of a section, in words.
type line struct {
	n     int
	words []string
}

func (l line) String() string { return strings.Join(l.words, " ") }

var sectionKinds = []string{"frontend", "backend", "listen", "defaults", "global", "peers", "cache",
	"resolvers", "userlist", "program", "http-errors", "mailers", "ring", "log-forward", "fcgi-app",
	"crt-store", "traces", "log-profile", "acme"}

// parseHAProxy reads the sections of a configuration.
func parseHAProxy(text string) (sections []*section, err error) {
	n := 0
	text = strings.TrimPrefix(text, "\ufeff")
	for words := range strings.Lines(text) {
		n++
		words, err := haproxyWords(words)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case len(words) == 0:
		case slices.Contains(sectionKinds, words[0]):
			s := &section{kind: words[0]}
			if len(words) > 1 {
				s.name = words[1]
			}
			sections = append(sections, s)
		case len(sections) == 0:
			if strings.HasPrefix(words[0], ".") { // a condition on whether lines are read
				continue
			}
			return nil, fmt.Errorf("line %d: %s stands in no section: is this a file of HAProxy?", n,
				words[0])
		default:
			s := sections[len(sections)-1]
			s.lines = append(s.lines, line{n, words})
		}
	}
	return sections, nil
}

// haproxyWords splits a line as HAProxy does: quotes, backslashes, comments.
func haproxyWords(line string) (words []string, err error) {
	var b strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
			in = true
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == '#':
			i = len(line)
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if in {
				words = append(words, b.String())
				b.Reset()
				in = false
			}
		default:
			b.WriteByte(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote has no end: is this a file of HAProxy?")
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}

// haproxyKey is who a sample stands for, as a key; "" where it is not known, as of one that goes
// through a converter, or that is one occurrence of several.
func haproxyKey(sample string) string {
	name, arg, _ := strings.Cut(strings.TrimSuffix(sample, ")"), "(")
	if strings.ContainsAny(name+arg, ",()") || namedBy(sample) != "" {
		return ""
	}
	switch name {
	case "src":
		return "source"
	case "hdr", "req.hdr", "req.fhdr":
		return "header:" + arg
	case "req.cook", "cook":
		return "cookie:" + arg
	case "url_param", "urlp":
		return "query:" + arg
	case "path":
		return "path"
	}
	return ""
}

// namedBy is the header in which a proxy names the client, if a sample reads one; "": it reads
// none.
func namedBy(sample string) string {
	name, arg, _ := strings.Cut(sample, "(")
	header, _, _ := strings.Cut(arg, ")")
	header, _, _ = strings.Cut(header, ",")
	if strings.Contains(name, "hdr") && clientHeaders[strings.ToLower(header)] {
		return header
	}
	return ""
}

// variable is the one that a line sets, and to what.
func variable(words []string) (name, expression string, is bool) {
	if words[0] == "set-var" && len(words) > 2 { // of global
		return words[1], words[2], true
	}
	verbs := verbsOf(words)
	if len(verbs) < 2 || !strings.HasPrefix(verbs[0], "set-var") {
		return "", "", false
	}
	_, name, is = strings.Cut(strings.TrimSuffix(verbs[0], ")"), "(")
	name, _, _ = strings.Cut(name, ",") // a condition on what it was
	return name, verbs[1], is
}

// conditionOf is what stands behind if or unless; nil: there is none.
func conditionOf(words []string) (cond []string) {
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i <= 0 {
		return nil
	}
	cond = words[i+1:]
	if words[i] == "if" {
		return cond
	}
	if len(terms(cond)) == 1 {
		if rest, is := strings.CutPrefix(cond[0], "!"); is {
			return slices.DeleteFunc(append([]string{rest}, cond[1:]...),
				func(w string) bool { return w == "" })
		}
		return append([]string{"!"}, cond...)
	}
	return []string{"unless", strings.Join(cond, " ")}
}

// verbsOf is what a line does, with its words.
func verbsOf(words []string) []string {
	switch {
	case words[0] == "http-request" && len(words) > 1:
		return words[1:]
	case words[0] == "tcp-request" && len(words) > 2:
		return words[2:]
	}
	return nil
}

// trackOf is what a line has counted in a slot.
func trackOf(s *section, words []string) (slot string, t track, is bool) {
	verbs := verbsOf(words)
	if len(verbs) < 2 || !strings.HasPrefix(verbs[0], "track-sc") {
		return "", t, false
	}
	t = track{key: haproxyKey(verbs[1]), table: s.name, cond: conditionOf(words), section: s}
	if t.key == "" {
		t.key = "?" + verbs[1]
	}
	if j := slices.Index(verbs, "table"); j > 0 && j+1 < len(verbs) {
		t.table = verbs[j+1]
	}
	return strings.TrimPrefix(verbs[0], "track-sc"), t, true
}

// status is the one that a line answers with.
func status(verbs []string, standard int) int {
	for i, w := range verbs {
		if (w == "deny_status" || w == "status") && i+1 < len(verbs) {
			if v, err := strconv.Atoi(verbs[i+1]); err == nil {
				return v
			}
		}
	}
	return standard
}

// terms splits a condition into its terms: an acl's name, or what stands in braces; a leading !
// says that it must not be.
func terms(cond []string) (list [][]string) {
	for i := 0; i < len(cond); i++ {
		not := ""
		w := cond[i]
		if w == "!" && i+1 < len(cond) {
			i++
			not, w = "!", cond[i]
		}
		if strings.HasPrefix(w, "!") {
			not, w = "!", w[1:]
		}
		if w != "{" {
			list = append(list, []string{not + w})
			continue
		}
		end := i + 1
		for end < len(cond) && cond[end] != "}" {
			end++
		}
		list = append(list, append([]string{not}, cond[i+1:min(end, len(cond))]...))
		i = end
	}
	return list
}

// alternatives are what || or or stands between in a condition: each is enough.
func alternatives(cond []string) (list [][]string) {
	begin, within := 0, false
	for i, w := range cond {
		switch {
		case w == "{":
			within = true
		case w == "}":
			within = false
		case !within && (w == "||" || w == "or") && cond[0] != "unless":
			list = append(list, cond[begin:i])
			begin = i + 1
		}
	}
	list = append(list, cond[begin:])
	return slices.DeleteFunc(list, func(c []string) bool { return len(c) == 0 })
}
