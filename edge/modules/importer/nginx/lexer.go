package nginx

import (
	"fmt"
	"regexp"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// A directive of nginx, with what stands within its braces.
type directive struct {
	at     limit.Position
	words  []string
	within []directive
	block  bool
	// Of a block in another language, such as Lua: it is passed over
	program string
}

func (d *directive) name() string {
	if len(d.words) == 0 {
		return ""
	}
	return d.words[0]
}

func (d *directive) String() string { return strings.Join(d.words, " ") }

func (d *directive) mention() limit.Mention {
	return limit.Mention{Position: d.at, From: d.String()}
}

// isMap reports whether it is a block that says what a variable is.
func (d *directive) isMap() bool { return d.block && (d.name() == "map" || d.name() == "geo") }

// last is the last word.
func (d *directive) last() string { return d.words[len(d.words)-1] }

// tokenOf is what a file of nginx consists of: space and comments; a text in quotes; and one of
// { } ; alone, or a word, which has such only behind a backslash or within ${}.
var tokenOf = regexp.MustCompile(`(?s)^(?:([ \t\r\n]+|#[^\n]*)|` +
	`("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|` + `([{};]|(?:\\.|\$\{[^}]*\}|[^ \t\r\n;{])+))`)

// lexer reads nginx's words: plain, or in quotes, with comments left out.
type lexer struct {
	*limit.Result
	included *int     // how many files are, by all that are read
	files    []string // the one that it reads, behind those that include it
	text     string
	line     int
}

func (l *lexer) at() limit.Position {
	return limit.Position{File: l.files[len(l.files)-1], Line: l.line}
}

// pass passes over so many bytes.
func (l *lexer) pass(n int) {
	l.line += strings.Count(l.text[:n], "\n")
	l.text = l.text[n:]
}

// next is a word, or one of { } ; alone; "" is the end. Quoted says that it stood in quotes.
func (l *lexer) next() (word string, quoted bool, err error) {
	for l.text != "" {
		token := tokenOf.FindStringSubmatch(l.text)
		l.pass(len(token[0]))
		text, word := token[2], token[3]
		switch {
		case text != "":
			quote := text[:1]
			escapes := strings.NewReplacer(`\`+quote, quote, `\\`, `\`)
			return escapes.Replace(text[1 : len(text)-1]), true, nil
		case strings.HasPrefix(word, `"`), strings.HasPrefix(word, "'"):
			l.pass(len(l.text))
			return "", false, fmt.Errorf("%v: a quote has no end", l.at())
		case word != "":
			return word, false, nil
		}
	}
	return "", false, nil
}

const maxDepth = 50

// directives reads those of a block, or of the file.
func (l *lexer) directives(depth int) (list []directive, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%v: blocks within blocks, more than %d deep", l.at(), maxDepth)
	}
	var d directive
	for {
		word, quoted, err := l.next()
		switch {
		case err != nil:
			return nil, err
		case word == "" && !quoted && depth == 0 && len(d.words) == 0:
			return list, nil
		case word == "" && !quoted:
			return nil, fmt.Errorf("%v: the file ends within a block or a directive: is it nginx's?",
				l.at())
		case quoted || word != ";" && word != "{" && word != "}":
			if d.words = append(d.words, word); len(d.words) == 1 {
				d.at = l.at()
			}
			continue
		case word == "}" && depth > 0 && len(d.words) == 0:
			return list, nil
		case len(d.words) == 0 || word == "}":
			return nil, fmt.Errorf("%v: %q has no directive before it: is this a file of nginx?",
				l.at(), word)
		}
		switch d.block = word == "{"; {
		case d.block && strings.HasSuffix(d.name(), "_by_lua_block"):
			d.program, err = l.lua()
		case d.block:
			d.within, err = l.directives(depth + 1)
		case d.name() == "include" && len(d.words) == 2:
			included, err := l.include(d)
			if err != nil {
				return nil, err
			}
			list, d = append(list, included...), directive{}
			continue
		}
		if err != nil {
			return nil, err
		}
		list, d = append(list, d), directive{}
	}
}

// luaToken is what of a program may have braces in it that are none, or else one of its characters.
// Of strings and comments of several lines it knows [[, [=[ and [==[.
var luaToken = regexp.MustCompile(
	`(?s)^(?:(?:--)?(?:\[\[.*?\]\]|\[=\[.*?\]=\]|\[==\[.*?\]==\])|--[^\n]*|` +
		`"(?:[^"\\\n]|\\.)*["\n]?|'(?:[^'\\\n]|\\.)*['\n]?|.)`)

// lua passes over a program, to the brace that ends its block.
func (l *lexer) lua() (program string, err error) {
	begin, text := l.at(), l.text
	for depth := 1; l.text != ""; {
		token := luaToken.FindString(l.text)
		switch l.pass(len(token)); token {
		case "{":
			depth++
		case "}":
			if depth--; depth == 0 {
				return text[:len(text)-len(l.text)-1], nil
			}
		}
	}
	return "", fmt.Errorf("%v: the program that begins here has no end", begin)
}
