package importer

import (
	"errors"
	"fmt"
	"regexp"
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

// mention is the line as a limit that is accounted for.
func (l line) mention() mention { return mention{lineOf(l.n), l.String()} }

var sectionKinds = strings.Fields(`frontend backend listen defaults global peers cache resolvers
	userlist program http-errors mailers ring log-forward fcgi-app crt-store traces log-profile acme`)

// parseHAProxy reads the sections of a configuration.
func parseHAProxy(text string) (sections []*section, err error) {
	n := 0
	for text := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		words, err := haproxyWords(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case len(words) == 0:
		case slices.Contains(sectionKinds, words[0]):
			sections = append(sections, &section{kind: words[0], name: word(words, 1)})
		case len(sections) > 0:
			s := sections[len(sections)-1]
			s.lines = append(s.lines, line{n, words})
		case !strings.HasPrefix(words[0], "."): // a condition on whether lines are read
			return nil, fmt.Errorf("line %d: %s stands in no section: is this a file of HAProxy?", n,
				words[0])
		}
	}
	return sections, nil
}

// word is one of several words; "": there are fewer.
func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}

var (
	// haproxyWord is a word with its quotes and backslashes; the group is a comment, or a text whose
	// quote has no end.
	haproxyWord = regexp.MustCompile(`(?s)(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^ \t\r\n#"'])+|([#"'].*)`)
	// haproxyQuoted is what of a word is not as it is meant.
	haproxyQuoted  = regexp.MustCompile(`(?s)\\.|"(?:\\.|[^"\\])*"|'[^']*'`)
	haproxyEscaped = regexp.MustCompile(`(?s)\\(.)`)
)

// haproxyWords splits a line as HAProxy does: quotes, backslashes, comments.
func haproxyWords(line string) (words []string, err error) {
	for _, w := range haproxyWord.FindAllStringSubmatch(line, -1) {
		switch rest := w[1]; {
		case strings.HasPrefix(rest, "#"):
			return words, nil
		case rest != "":
			return nil, errors.New("a quote has no end: is this a file of HAProxy?")
		}
		words = append(words, haproxyQuoted.ReplaceAllStringFunc(w[0], func(part string) string {
			switch part[0] {
			case '\\':
				return part[1:]
			case '"':
				part = haproxyEscaped.ReplaceAllString(part, "$1")
			}
			return part[1 : len(part)-1]
		}))
	}
	return words, nil
}

// sampleKeys are the samples of HAProxy that are a part of a key; behind a colon the name follows.
var sampleKeys = map[string]string{"src": "source", "path": "path", "hdr": "header:",
	"req.hdr": "header:", "req.fhdr": "header:", "cook": "cookie:", "req.cook": "cookie:",
	"url_param": "query:", "urlp": "query:"}

// haproxyKey is who a sample stands for, as a key. Where it is not known, as of one that goes
// through a converter, or that is one occurrence of several, it is ? and the sample.
func haproxyKey(sample string) string {
	name, arg, _ := strings.Cut(strings.TrimSuffix(sample, ")"), "(")
	key := sampleKeys[name]
	switch {
	case key == "" || strings.ContainsAny(name+arg, ",()") || namedBy(sample) != "":
		return "?" + sample
	case strings.HasSuffix(key, ":"):
		return key + arg
	}
	return key
}

// namedBy is the header in which a proxy names the client, if a sample reads one; "": it reads
// none.
func namedBy(sample string) string {
	name, arg, _ := strings.Cut(sample, "(")
	header, _, _ := strings.Cut(arg, ")")
	header, _, _ = strings.Cut(header, ",")
	if strings.Contains(name, "hdr") && isClientHeader(header) {
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

// status is the one that a line answers with.
func status(verbs []string, standard int) int {
	for i, w := range verbs {
		if w == "deny_status" || w == "status" {
			if v, err := strconv.Atoi(word(verbs, i+1)); err == nil {
				return v
			}
		}
	}
	return standard
}

// A term of a condition is an acl's name, or a test in braces.
type term struct {
	not  bool
	acl  string
	test []string
}

// conditionOf is what stands behind if or unless; nil: there is none.
func conditionOf(words []string) (cond []string) {
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i <= 0 {
		return nil
	}
	cond = words[i+1:]
	switch {
	case words[i] == "if":
		return cond
	case len(terms(cond)) != 1: // which is no term, and so not understood
		return []string{"unless", strings.Join(cond, " ")}
	}
	rest, is := strings.CutPrefix(cond[0], "!")
	switch {
	case !is:
		return append([]string{"!"}, cond...)
	case rest == "":
		return cond[1:]
	}
	return append([]string{rest}, cond[1:]...)
}

// terms are those of a condition, all of which must hold.
func terms(cond []string) (list []term) {
	for i := 0; i < len(cond); i++ {
		var t term
		w := cond[i]
		if w == "!" && i+1 < len(cond) {
			i++
			t.not, w = true, cond[i]
		}
		if rest, is := strings.CutPrefix(w, "!"); is {
			t.not, w = true, rest
		}
		if t.acl = w; w == "{" {
			length := slices.Index(cond[i+1:], "}")
			if length < 0 {
				length = len(cond) - i - 1
			}
			t.acl, t.test = "", cond[i+1:i+1+length]
			i += length + 1
		}
		list = append(list, t)
	}
	return list
}

// alternatives are what || or or stands between in a condition: each is enough.
func alternatives(cond []string) (list [][]string) {
	begin, within := 0, false
	for i, w := range cond {
		switch {
		case w == "{" || w == "}":
			within = w == "{"
		case !within && (w == "||" || w == "or") && cond[0] != "unless":
			list = append(list, cond[begin:i])
			begin = i + 1
		}
	}
	list = append(list, cond[begin:])
	return slices.DeleteFunc(list, func(c []string) bool { return len(c) == 0 })
}
