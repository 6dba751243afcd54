package haproxy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// A section is a frontend, backend, listen, or peers of HAProxy, or another.
type section struct {
	kind, name string
	lines      []line
}

// A line is one of a section.
type line struct {
	limit.Mention
	words []string
	about string   // its first word, and of tcp-request the second
	verbs []string // what it does, with its words, if it is one of http-request or tcp-request
	cond  clause   // of requests that it does that to; nil: all
}

func newLine(n int, words []string) line {
	at := limit.Mention{Position: limit.Position{Line: n}, From: strings.Join(words, " ")}
	l := line{Mention: at, words: words, about: words[0], cond: condOf(words)}
	switch {
	case l.about == "http-request" && len(words) > 1:
		l.verbs = words[1:]
	case l.about == "tcp-request" && len(words) > 2:
		l.about, l.verbs = "tcp-request "+words[1], words[2:]
	}
	return l
}

var sectionKinds = strings.Fields(`frontend backend listen defaults global peers cache resolvers
	userlist program http-errors mailers ring log-forward fcgi-app crt-store traces log-profile acme`)

// parse reads the sections of a configuration.
func parse(text string) (sections []*section, err error) {
	n := 0
	for text := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		words, err := wordsOf(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case len(words) == 0:
		case slices.Contains(sectionKinds, words[0]):
			sections = append(sections, &section{kind: words[0], name: word(words, 1)})
		case len(sections) > 0:
			s := sections[len(sections)-1]
			s.lines = append(s.lines, newLine(n, words))
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
	// wordToken is a word with its quotes and backslashes; the group is a comment, or a text whose
	// quote has no end.
	wordToken = regexp.MustCompile(`(?s)(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^ \t\r\n#"'])+|([#"'].*)`)
	// quoted is what of a word is not as it is meant.
	quoted  = regexp.MustCompile(`(?s)\\.|"(?:\\.|[^"\\])*"|'[^']*'`)
	escaped = regexp.MustCompile(`(?s)\\(.)`)
)

// wordsOf splits a line as HAProxy does: quotes, backslashes, comments.
func wordsOf(line string) (words []string, err error) {
	for _, w := range wordToken.FindAllStringSubmatch(line, -1) {
		switch rest := w[1]; {
		case strings.HasPrefix(rest, "#"):
			return words, nil
		case rest != "":
			return nil, errors.New("a quote has no end: is this a file of HAProxy?")
		}
		words = append(words, quoted.ReplaceAllStringFunc(w[0], func(part string) string {
			switch part[0] {
			case '\\':
				return part[1:]
			case '"':
				part = escaped.ReplaceAllString(part, "$1")
			}
			return part[1 : len(part)-1]
		}))
	}
	return words, nil
}

// status is the one that a line answers with.
func (l *line) status(standard int) int {
	for i, w := range l.verbs {
		if w == "deny_status" || w == "status" {
			if v, err := strconv.Atoi(word(l.verbs, i+1)); err == nil {
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

func (t term) String() string {
	text := t.acl
	if t.test != nil {
		text = "{ " + strings.Join(t.test, " ") + " }"
	}
	if t.not {
		return "!" + text
	}
	return text
}

// A clause is a condition as it is written: terms, all of which must hold. Where or stands between
// them, it is one of them.
type clause []term

func (c clause) String() string {
	text := fmt.Sprint([]term(c))
	return text[1 : len(text)-1]
}

// condOf is what stands behind if or unless; nil: there is none.
func condOf(words []string) clause {
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i <= 0 {
		return nil
	}
	c := clause{}
	for rest := words[i+1:]; len(rest) > 0; {
		var t term
		if t.acl, t.not = strings.CutPrefix(rest[0], "!"); t.acl == "" && len(rest) > 1 {
			rest = rest[1:]
			t.acl = strings.TrimPrefix(rest[0], "!")
		}
		if rest = rest[1:]; t.acl == "{" {
			length := slices.Index(rest, "}")
			if length < 0 {
				length = len(rest)
			}
			t.acl, t.test = "", rest[:length]
			rest = rest[min(length+1, len(rest)):]
		}
		c = append(c, t)
	}
	switch {
	case words[i] == "if":
	case len(c) == 1:
		c[0].not = !c[0].not
	default: // no term, and so not understood
		return clause{{acl: "unless"}, {acl: c.String()}}
	}
	return c
}

// alternatives are what || or or stands between in a condition: each is enough.
func (c clause) alternatives() []clause {
	list := []clause{nil}
	for _, t := range c {
		if t.acl == "||" || t.acl == "or" {
			list = append(list, nil)
		} else {
			list[len(list)-1] = append(list[len(list)-1], t)
		}
	}
	return slices.DeleteFunc(list, func(c clause) bool { return len(c) == 0 })
}
